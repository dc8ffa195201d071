"""A cluster as its clients use it: who leads what, and a way to send each broker a request.

Floor: client. Nodes are addressed by id; where an id lives is learnt from metadata, and from the
bootstrap servers as long as nothing else is known or reachable. One metadata request is on its way
at a time, whoever needs it. Nothing is repeated here except the search for metadata and
coordinators: whether a request may be sent again is for its caller to say.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection
from enum import IntEnum
from typing import Any, TypeVar

from protocol.client.backoff import Backoff
from protocol.client.connection import ByVersion, Connection
from protocol.client.errors import BrokerUnreachable, ClientClosed, ConnectionLost, raise_for
from protocol.client.metadata import ClusterMetadata, MetadataCache, TopicMetadata
from protocol.client.nodes import Link, LinkSettings
from protocol.client.refresher import Refresher
from protocol.client.retry import repeat
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.cluster import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import MetadataResponse
from protocol.types import TopicPartition
from protocol.wire.schema import Message

REQUEST_TIMEOUT_MS = 30_000
METADATA_MAX_AGE_MS = 300_000
METADATA_TIMEOUT_MS = 10_000
RECONNECT_BACKOFF_MS = (50, 1_000)
RETRY_BACKOFF_MS = (50, 1_000)

DEFAULT_PORT = 9092

GENERAL = "general"
"""The purpose of the connections that short requests share."""

T = TypeVar("T")


class CoordinatorType(IntEnum):
    """What a coordinator coordinates, by Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


def monotonic_ms() -> int:
    """The clock of clients, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def parse_bootstrap_servers(text: str) -> list[tuple[str, int]]:
    """Hosts and ports of "host:port,[::1]:port,host"; ValueError says what is wrong."""
    addresses = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ValueError(f"found {part!r}, expected host:port")
        addresses.append((host, int(port)))
    if not addresses:
        raise ValueError(f"found {text!r}, expected host:port, or several with commas between")
    return addresses


class Cluster:
    """One client's view of one cluster. Lives in the loop in which `start` was awaited."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        metadata_max_age_ms: int = METADATA_MAX_AGE_MS,
        reconnect_backoff_ms: tuple[int, int] = RECONNECT_BACKOFF_MS,
        clock: Callable[[], int] = monotonic_ms,
        rng: random.Random | None = None,
    ) -> None:
        self.bootstrap_servers = parse_bootstrap_servers(bootstrap_servers)
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.now_ms = clock
        self.rng = rng or random.Random()
        self._reconnect_backoff_ms = reconnect_backoff_ms
        self._link_settings = LinkSettings(
            client_id, connect_timeout_ms=min(request_timeout_ms, METADATA_TIMEOUT_MS)
        )
        self._cache = MetadataCache(metadata_max_age_ms)
        self._addresses: dict[int, tuple[str, int]] = {}
        self._links: dict[tuple[int, str], Link] = {}
        self._bootstrap = [self._new_link(host, port) for host, port in self.bootstrap_servers]
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._purposes = 0
        self._refresher = Refresher(self._ask_any, self._take, self.new_backoff())
        self._is_closed = False

    async def start(self, deadline_ms: int | None = None) -> None:
        """Return once one broker has told who is in the cluster.

        Tries for `deadline_ms` milliseconds (None: for ever), then raises BrokerUnreachable with
        the last reason.
        """
        await self._refresher.ask((), False, deadline_ms)

    async def close(self) -> None:
        """End all connections; whoever still waits gets ClientClosed."""
        self._is_closed = True
        await self._refresher.close()
        links = [*self._links.values(), *self._bootstrap]
        self._links.clear()
        for link in links:
            await link.close()

    # --- metadata -----------------------------------------------------------------------------

    @property
    def current(self) -> ClusterMetadata:
        """The latest picture, without asking anybody."""
        return self._cache.current

    async def metadata(
        self,
        topics: Collection[str] | None = None,
        *,
        refresh: bool = False,
        allow_auto_topic_creation: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterMetadata:
        """A picture that holds these topics (None: all there are).

        What is known but aged is returned at once and renewed behind the scenes; `refresh` asks
        and waits in any case. A topic that does not exist is in the picture with its error. Raises
        BrokerUnreachable when nobody answers within `timeout_ms` (the request time-out by default).
        """
        topics = None if topics is None else tuple(topics)
        if not refresh and self._cache.is_known(topics):
            if not self._cache.is_fresh(topics, self.now_ms()):
                self._refresher.ask_later(topics)
            return self._cache.current
        wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        await self._refresher.ask(topics, allow_auto_topic_creation, wait_ms)
        return self._cache.current

    def renew_if_aged(self, topics: Collection[str]) -> None:
        """Ask for these topics behind the scenes if what is known of them is old."""
        if not self._is_closed and not self._cache.is_fresh(topics, self.now_ms()):
            self._refresher.ask_later(topics)

    async def topic(self, name: str, *, timeout_ms: int | None = None) -> TopicMetadata:
        """What is known of a topic that should exist, asked for until it has partitions.

        Raises ApiError when it still has none after `timeout_ms`, BrokerUnreachable as `metadata`.
        """

        async def attempt(left_ms: int) -> TopicMetadata:
            current = await self.metadata((name,), timeout_ms=left_ms)
            found = current.topics[name]
            if found.error or not found.partitions:
                code = found.error or ErrorCode.LEADER_NOT_AVAILABLE
                raise ApiError(code, f"topic {name!r}: {code.description}")
            return found

        return await self.repeat(attempt, timeout_ms)

    async def leader(self, tp: TopicPartition, *, timeout_ms: int | None = None) -> int:
        """The node that leads a partition.

        Asks again until `timeout_ms` is over, then raises ApiError with the code that says why
        there is none; at once if waiting cannot help. Raises BrokerUnreachable as `metadata` does.
        """
        wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self.now_ms() + wait_ms
        backoff = self.new_backoff()
        current = await self.metadata((tp.topic,))
        while (node_id := current.leader(tp)) is None:
            code = current.error_of(tp)
            if backoff.failures:
                if not code.retriable or self.now_ms() >= deadline:
                    raise ApiError(code, f"no leader for {tp}: {code.description}")
                await asyncio.sleep(backoff.next_ms() / 1000)
            else:
                backoff.next_ms()
            current = await self.metadata((tp.topic,), refresh=True)
        return node_id

    def forget_leader(self, tp: TopicPartition) -> None:
        """Trust what is known of the partition's leader no longer, after an answer that says so."""
        self._cache.forget_leader(tp)

    def forget_node(self, node_id: int) -> None:
        """Trust none of a node's leaderships any longer, after it has gone away."""
        self._cache.forget_node(node_id)

    async def coordinator(
        self,
        key: str,
        *,
        key_type: CoordinatorType = CoordinatorType.GROUP,
        timeout_ms: int | None = None,
    ) -> int:
        """The node that coordinates a group, or a transactional id.

        Asks again while there is none; after `timeout_ms` raises the last ApiError or
        BrokerUnreachable.
        """
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        return await self.repeat(
            lambda left_ms: self._find_coordinator(key, key_type, left_ms), timeout_ms
        )

    def forget_coordinator(
        self, key: str, key_type: CoordinatorType = CoordinatorType.GROUP
    ) -> None:
        """Look for the coordinator again, after an answer that says so."""
        self._coordinators.pop((key_type, key), None)

    # --- requests -----------------------------------------------------------------------------

    async def request(
        self, node_id: int | None, message: Message | ByVersion, *, timeout_ms: int | None = None
    ) -> Any:
        """Send a request to a node (None: to any that can be reached) and return the answer.

        Raises BrokerUnreachable (nothing was sent), ConnectionLost or RequestTimedOut (unknown
        whether it was executed), UnsupportedVersion. Error codes inside the answer are the
        caller's.
        """
        wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        if node_id is None:
            return await self._ask_any(message, wait_ms)
        deadline = self.now_ms() + wait_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                connection = await self.connection(node_id)
        except TimeoutError as error:
            raise BrokerUnreachable(f"broker {node_id} gave no connection in time") from error
        left_ms = max(1, deadline - self.now_ms())
        return await connection.request(message, timeout_ms=left_ms)

    async def connection(self, node_id: int, purpose: str = GENERAL) -> Connection:
        """The connection to a node, made if need be; one for each purpose.

        Raises BrokerUnreachable, and then trusts none of that node's leaderships any more.
        """
        if node_id not in self._addresses:
            await self._refresher.ask((), False, self.request_timeout_ms)
        if node_id not in self._addresses:
            raise BrokerUnreachable(f"there is no broker {node_id} in the cluster")
        try:
            return await self._link(node_id, purpose).get()
        except BrokerUnreachable:
            self._cache.forget_node(node_id)
            raise

    def ready_connection(self, node_id: int, purpose: str = GENERAL) -> Connection | None:
        """The connection to a node if it is there already."""
        link = self._links.get((node_id, purpose))
        return None if link is None else link.ready

    async def repeat(
        self, attempt: Callable[[int], Awaitable[T]], timeout_ms: int | None = None
    ) -> T:
        """Await `attempt(left_ms)` until it raises nothing transient; see `retry.repeat`.

        `timeout_ms` None means the request time-out.
        """
        wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        return await repeat(
            attempt, backoff=self.new_backoff(), clock=self.now_ms, timeout_ms=wait_ms
        )

    def new_backoff(self) -> Backoff:
        """The waits between attempts of one request."""
        return Backoff(*RETRY_BACKOFF_MS, self.rng)

    def new_purpose(self, name: str) -> str:
        """A purpose of its own for somebody whose requests may wait long.

        Answers come in order, so they would hold up everybody else's. To be given back.
        """
        self._purposes += 1
        return f"{name} {self._purposes}"

    async def release(self, purpose: str) -> None:
        """Close the connections that were made for a purpose."""
        for key in [key for key in self._links if key[1] == purpose]:
            await self._links.pop(key).close()

    # --- inside -------------------------------------------------------------------------------

    def _new_link(self, host: str, port: int) -> Link:
        backoff = Backoff(*self._reconnect_backoff_ms, self.rng)
        return Link(host, port, self._link_settings, backoff, self.now_ms)

    def _link(self, node_id: int, purpose: str) -> Link:
        if self._is_closed:
            raise ClientClosed("the cluster's client was closed")
        link = self._links.get((node_id, purpose))
        if link is None:
            link = self._links[node_id, purpose] = self._new_link(*self._addresses[node_id])
        return link

    def _take(self, response: MetadataResponse, asked: Collection[str] | None) -> None:
        current = self._cache.apply(response, asked, self.now_ms())
        for broker in current.brokers.values():
            self._note_address(broker.node_id, broker.host, broker.port)

    def _note_address(self, node_id: int, host: str, port: int) -> None:
        if self._addresses.get(node_id) == (host, port):
            return
        self._addresses[node_id] = (host, port)
        # What was on its way there may be sent again, to where the node is now.
        moved = ConnectionLost(f"broker {node_id} has moved to {host}:{port}")
        for key in [key for key in self._links if key[0] == node_id]:
            self._refresher.run_aside(self._links.pop(key).close(moved))

    async def _ask_any(self, message: Message | ByVersion, timeout_ms: int) -> Any:
        """Send to whoever can be reached, the bootstrap servers last.

        Goes on to the next only as long as nothing was sent.
        """
        if self._is_closed:
            raise ClientClosed("the cluster's client was closed")
        deadline = self.now_ms() + timeout_ms
        reasons: list[str] = []
        for link in self._links_by_promise():
            left_ms = deadline - self.now_ms()
            if left_ms <= 0:
                break
            try:
                async with asyncio.timeout(left_ms / 1000):
                    connection = await link.get()
            except BrokerUnreachable as error:
                reasons.append(str(error))
                continue
            except TimeoutError:
                reasons.append(f"{link.host}:{link.port} gave no connection in time")
                continue
            left_ms = max(1, deadline - self.now_ms())
            return await connection.request(message, timeout_ms=left_ms)
        raise BrokerUnreachable("; ".join(dict.fromkeys(reasons)) or "no broker answered in time")

    def _links_by_promise(self) -> list[Link]:
        known = [self._link(node_id, GENERAL) for node_id in self._cache.current.brokers]
        self.rng.shuffle(known)
        bootstrap = self.rng.sample(self._bootstrap, len(self._bootstrap))
        links = known + bootstrap
        # The sort is stable: among equals the chance of the shuffle decides.
        links.sort(key=lambda link: (link.ready is None, link.is_backing_off))
        return links

    async def _find_coordinator(self, key: str, key_type: CoordinatorType, timeout_ms: int) -> int:
        request = ByVersion(
            ApiKey.FIND_COORDINATOR,
            lambda version: (
                FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
                if version >= 4
                else FindCoordinatorRequest(key_type=key_type, key=key)
            ),
        )
        response: FindCoordinatorResponse = await self._ask_any(request, timeout_ms)
        found = response.coordinators[0] if response.coordinators else response
        raise_for(found.error_code, found.error_message)
        self._note_address(found.node_id, found.host, found.port)
        self._coordinators[key_type, key] = found.node_id
        return found.node_id
