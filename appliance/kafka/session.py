"""Opens a cluster for one command, and turns the client's errors into exit codes."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from appliance.output import CommandError, Exit
from protocol.client.cluster import Cluster
from protocol.client.errors import BrokerUnreachable, ClientError, EntryRefused, RequestTimedOut
from protocol.client.security import cluster_of
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.security.cluster_security import ClusterEntry

TIMEOUT_MS = 10_000

T = TypeVar("T")

NOT_FOUND = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)


@asynccontextmanager
async def open_cluster(
    entry: ClusterEntry | str, *, timeout_ms: int = TIMEOUT_MS, client_id: str = "millrace"
) -> AsyncIterator[Cluster]:
    """Open a cluster once one broker has answered. Raises BrokerUnreachable and CommandError.

    A text is the bootstrap servers of a cluster without TLS.
    """
    entry = ClusterEntry(entry) if isinstance(entry, str) else entry
    try:
        cluster = cluster_of(entry, client_id=client_id, request_timeout_ms=timeout_ms)
    except ValueError as error:
        raise CommandError(f"bootstrap server: {error}", Exit.USAGE) from error
    try:
        await cluster.start(timeout_ms)
        yield cluster
    finally:
        await cluster.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run one command's work; errors of the cluster and the client become CommandErrors."""
    try:
        return asyncio.run(work)
    except (ApiError, ClientError, WireError) as error:
        raise CommandError(text_of(error), exit_of(error)) from error


def text_of(error: BaseException) -> str:
    """Return an error of the client as one sentence."""
    if isinstance(error, EntryRefused):
        return f"the cluster cannot be entered: {error}"
    if isinstance(error, BrokerUnreachable):
        return f"no broker answers: {error}"
    return str(error)


def exit_of(error: BaseException) -> Exit:
    """Return the exit code for an error of the client."""
    if isinstance(error, ApiError):
        if error.code in NOT_FOUND:
            return Exit.NOT_FOUND
        return Exit.TIMEOUT if error.code == ErrorCode.REQUEST_TIMED_OUT else Exit.FAILED
    if isinstance(error, RequestTimedOut):
        return Exit.TIMEOUT
    return Exit.UNREACHABLE if isinstance(error, BrokerUnreachable) else Exit.FAILED
