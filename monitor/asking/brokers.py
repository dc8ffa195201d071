"""Asks every broker if it is alive, and one broker for the state of the metadata quorum.

Metadata lists only brokers that are in service. To notice a missing broker, the monitor also asks
every broker that has a replica or a vote, at its last known address. The connection to a broker
that does not answer is closed, so later requests go to brokers that answered.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from monitor.state.reading import NodeReading
from monitor.state.snapshot import QuorumReplicaView, QuorumView
from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError
from protocol.client.metadata import BrokerInfo
from protocol.client.quorum_admin import QuorumInfo, describe_quorum
from protocol.errors import ApiError, WireError
from protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from protocol.types import METADATA_VERSION

NODE_TIMEOUT_MS = 1_000
UNLISTED = "not in the cluster's metadata"
NO_ADDRESS = "address unknown"

FAILURES = (ApiError, ClientError, WireError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The answer of one broker: the levels of the metadata log that it names, or why it did not
    answer."""

    error: str | None = None
    supported: tuple[int, int] | None = None
    finalised: int | None = None


async def ask_nodes(cluster: Cluster, known: Mapping[int, str]) -> dict[int, NodeAnswer]:
    """Return the answer of each broker by its id."""

    async def ask(node_id: int) -> NodeAnswer:
        try:
            return node_answer(
                await cluster.request(node_id, ApiVersionsRequest(), timeout_ms=NODE_TIMEOUT_MS)
            )
        except FAILURES as error:
            return NodeAnswer(say(error))

    answers = await asyncio.gather(*map(ask, known))
    return dict(zip(known, answers, strict=True))


def node_answer(response: ApiVersionsResponse) -> NodeAnswer:
    """Return the levels in a broker's ApiVersions."""
    ranges = {one.name: (one.min_version, one.max_version) for one in response.supported_features}
    levels = {one.name: one.max_version_level for one in response.finalized_features}
    return NodeAnswer(None, ranges.get(METADATA_VERSION), levels.get(METADATA_VERSION))


async def ask_quorum(cluster: Cluster, timeout_ms: int) -> QuorumInfo | str:
    """Return the state of the metadata quorum, or why it is unknown."""
    try:
        return await describe_quorum(cluster, timeout_ms=timeout_ms)
    except FAILURES as error:
        return say(error)


def quorum_view(found: QuorumInfo, now_ms: int) -> QuorumView:
    """Return the leader's view of the quorum with ages instead of times, the leader first."""
    rows = [
        *((one, "voter") for one in found.voters),
        *((one, "observer") for one in found.observers),
    ]
    rows.sort(key=lambda row: (row[0].node_id != found.leader_id, row[0].node_id))
    return QuorumView(
        now_ms,
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        tuple(
            QuorumReplicaView(
                one.node_id,
                "leader" if one.node_id == found.leader_id else role,
                one.log_end_offset,
                found.lag(one),
                _ago(one.fetched_at_ms, now_ms),
                _ago(one.caught_up_at_ms, now_ms),
            )
            for one, role in rows
        ),
    )


def voter_addresses(found: QuorumInfo) -> dict[int, str]:
    """Return the addresses of the voters by id."""
    return {
        node_id: places[0].partition("://")[2]
        for node_id, places in found.endpoints.items()
        if places
    }


def _ago(moment_ms: int | None, now_ms: int) -> int | None:
    # The clocks of two machines can differ, so do not let the age be negative.
    return None if moment_ms is None else max(now_ms - moment_ms, 0)


def node_readings(
    listed: Mapping[int, BrokerInfo],
    answers: Mapping[int, NodeAnswer],
    known: Mapping[int, str],
    named: Iterable[int],
) -> tuple[NodeReading, ...]:
    """Return a reading for each broker that is `listed`, or `named` by partitions and quorum."""

    def reading(node_id: int) -> NodeReading:
        broker, answer = listed.get(node_id), answers.get(node_id, NodeAnswer(UNLISTED))
        return NodeReading(
            node_id,
            known.get(node_id, NO_ADDRESS) if broker is None else address_of(broker),
            answer.error,
            broker is not None,
            None if broker is None else broker.rack,
            answer.supported,
            answer.finalised,
        )

    return tuple(map(reading, sorted({*listed, *named})))


def address_of(broker: BrokerInfo) -> str:
    """Return the address of a broker's listener for this client."""
    return f"{broker.host}:{broker.port}"


def say(error: BaseException) -> str:
    """Return an error as text for people."""
    return str(error) or type(error).__name__
