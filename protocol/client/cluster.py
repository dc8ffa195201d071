"""A cluster as its clients see it: leaders, coordinators, and requests to each broker.

Brokers are addressed by id. Their addresses come from metadata. The bootstrap servers are used
while no other broker is known or reachable. Only one metadata request is under way at a time. This
module repeats requests for metadata and coordinators only. Callers repeat the other ones.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection
from enum import IntEnum
from typing import Any, TypeVar

from protocol.client.backoff import Backoff
from protocol.client.bootstrap import parse_bootstrap_servers
from protocol.client.connection import ByVersion, Connection
from protocol.client.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    EntryRefused,
    raise_for,
)
from protocol.client.login import ClientLogin, LoginSettings
from protocol.client.metadata import ClusterMetadata, MetadataCache, TopicMetadata
from protocol.client.nodes import LinkSettings, NodeLink, joined_reasons, refusal_of
from protocol.client.refresher import Refresher
from protocol.client.retry import repeat
from protocol.client.tls import ClientTls, TlsSettings
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

GENERAL = "general"
"""The purpose of the connections that short requests share."""

T = TypeVar("T")


class CoordinatorType(IntEnum):
    """The kinds of coordinators, with Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


def monotonic_ms() -> int:
    """Return the time of the clients' monotonic clock, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


class Cluster:
    """One client's view of one cluster. It must be used in the event loop in which `start` ran."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        metadata_max_age_ms: int = METADATA_MAX_AGE_MS,
        reconnect_backoff_ms: tuple[int, int] = RECONNECT_BACKOFF_MS,
        tls: TlsSettings | None = None,
        login: LoginSettings | None = None,
        clock: Callable[[], int] = monotonic_ms,
        rng: random.Random | None = None,
    ) -> None:
        """`tls` is for listeners with the security protocol SSL or SASL_SSL, `login` for those with
        SASL_SSL.
        """
        self.bootstrap_servers = parse_bootstrap_servers(bootstrap_servers)
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.now_ms = clock
        self.rng = rng or random.Random()
        self._reconnect_backoff_ms = reconnect_backoff_ms
        self._link_settings = LinkSettings(
            client_id,
            connect_timeout_ms=min(request_timeout_ms, METADATA_TIMEOUT_MS),
            tls=None if tls is None else ClientTls(tls),
            login=None if login is None else ClientLogin(login, self.rng),
        )
        self._cache = MetadataCache(metadata_max_age_ms)
        self._addresses: dict[int, tuple[str, int]] = {}
        self._links: dict[tuple[int, str], NodeLink] = {}
        self._bootstrap = [self._new_link(host, port) for host, port in self.bootstrap_servers]
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._purposes = 0
        self._refresher = Refresher(self._ask_any, self._take, self.new_backoff())
        self._is_closed = False

    async def start(self, deadline_ms: int | None = None) -> None:
        """Ask the bootstrap servers for the brokers of the cluster until one answers.

        After `deadline_ms` milliseconds (None: never), raise BrokerUnreachable with the last
        reason. Raise EntryRefused at once.
        """
        await self._refresher.ask((), False, deadline_ms)

    async def close(self) -> None:
        """Close all connections. Waiting calls raise ClientClosed."""
        self._is_closed = True
        await self._refresher.close()
        links = [*self._links.values(), *self._bootstrap]
        self._links.clear()
        for link in links:
            await link.close()

    @property
    def refusal(self) -> EntryRefused | None:
        """The reason why a broker refused the last login, or was not trusted; None if a connection
        is open, or if there is no such reason."""
        return refusal_of([*self._links.values(), *self._bootstrap])

    # --- metadata -----------------------------------------------------------------------------

    @property
    def current(self) -> ClusterMetadata:
        """The newest known metadata. No request is sent."""
        return self._cache.current

    async def metadata(
        self,
        topics: Collection[str] | None = None,
        *,
        refresh: bool = False,
        allow_auto_topic_creation: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterMetadata:
        """Return metadata with these topics (None: all topics).

        Known but old metadata is returned at once and refreshed in the background. With `refresh`,
        a request is made in any case. A topic that does not exist is included with its error.
        Raises BrokerUnreachable if no broker answers within `timeout_ms` (by default the request
        time-out).
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
        """Refresh the metadata of these topics in the background if it is old."""
        if not self._is_closed and not self._cache.is_fresh(topics, self.now_ms()):
            self._refresher.ask_later(topics)

    async def topic(self, name: str, *, timeout_ms: int | None = None) -> TopicMetadata:
        """Return the metadata of a topic that should exist. Ask until the topic has partitions.

        Raises ApiError if it has no partitions after `timeout_ms`, and BrokerUnreachable as
        `metadata` does.
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
        """Return the id of the broker that leads a partition.

        Asks until `timeout_ms` is over, then raises ApiError with the reason. If waiting cannot
        help, it raises at once. Raises BrokerUnreachable as `metadata` does.
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
        """Forget the leader of a partition, because an answer has shown that it is out of date."""
        self._cache.forget_leader(tp)

    def forget_node(self, node_id: int) -> None:
        """Forget all leaderships of a broker that is unreachable."""
        self._cache.forget_node(node_id)

    async def coordinator(
        self,
        key: str,
        *,
        key_type: CoordinatorType = CoordinatorType.GROUP,
        timeout_ms: int | None = None,
    ) -> int:
        """Return the id of the broker that coordinates a group or a transactional id.

        Asks again while there is no coordinator. After `timeout_ms` it raises the last ApiError or
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
        """Forget the coordinator, because an answer has shown that it is out of date."""
        self._coordinators.pop((key_type, key), None)

    # --- requests -----------------------------------------------------------------------------

    async def request(
        self, node_id: int | None, message: Message | ByVersion, *, timeout_ms: int | None = None
    ) -> Any:
        """Send a request to a broker (None: any reachable broker) and return the answer.

        Raises BrokerUnreachable if nothing was sent. Raises ConnectionLost or RequestTimedOut if it
        is unknown whether the request was executed. Raises UnsupportedVersion. The caller handles
        error codes in the answer.
        """
        wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        if node_id is None:
            return await self._ask_any(message, wait_ms)
        deadline = self.now_ms() + wait_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                connection = await self.connection(node_id)
        except TimeoutError as error:
            raise BrokerUnreachable(
                f"broker {node_id} did not accept a connection in time"
            ) from error
        left_ms = max(1, deadline - self.now_ms())
        return await connection.request(message, timeout_ms=left_ms)

    async def connection(self, node_id: int, purpose: str = GENERAL) -> Connection:
        """Return the connection to a broker for a purpose, and open it if needed.

        If the broker is unreachable, forget all its leaderships and raise BrokerUnreachable.
        """
        if node_id not in self._addresses:
            await self._refresher.ask((), False, self.request_timeout_ms)
        if node_id not in self._addresses:
            raise BrokerUnreachable(f"broker {node_id} is not in the cluster")
        try:
            return await self._link(node_id, purpose).get()
        except BrokerUnreachable:
            self._cache.forget_node(node_id)
            raise

    def ready_connection(self, node_id: int, purpose: str = GENERAL) -> Connection | None:
        """Return the connection to a broker if it is already open, else None."""
        link = self._links.get((node_id, purpose))
        return None if link is None else link.ready

    async def repeat(
        self, attempt: Callable[[int], Awaitable[T]], timeout_ms: int | None = None
    ) -> T:
        """Await `attempt(left_ms)`, and repeat it after transient errors; see `retry.repeat`.

        `timeout_ms` None means the request time-out.
        """
        wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        return await repeat(
            attempt, backoff=self.new_backoff(), clock=self.now_ms, timeout_ms=wait_ms
        )

    def new_backoff(self) -> Backoff:
        """Return the waiting times between the attempts of one request."""
        return Backoff(*RETRY_BACKOFF_MS, self.rng)

    def new_purpose(self, name: str) -> str:
        """Return a new purpose, for requests that can wait long. Call `release` when it is not
        needed.

        Answers come in order, so such requests would delay all others on a shared connection.
        """
        self._purposes += 1
        return f"{name} {self._purposes}"

    async def release(self, purpose: str) -> None:
        """Close the connections of a purpose. Those for GENERAL stay, because others share them."""
        for key in [key for key in self._links if key[1] == purpose != GENERAL]:
            await self._links.pop(key).close()

    # --- internals ----------------------------------------------------------------------------

    def _new_link(self, host: str, port: int) -> NodeLink:
        backoff = Backoff(*self._reconnect_backoff_ms, self.rng)
        return NodeLink(host, port, self._link_settings, backoff, self.now_ms)

    def _link(self, node_id: int, purpose: str) -> NodeLink:
        if self._is_closed:
            raise ClientClosed("this client of the cluster is closed")
        link = self._links.get((node_id, purpose))
        if link is None:
            host, port = self._addresses[node_id]
            link = self._adopted(host, port) if purpose == GENERAL else None
            link = self._links[node_id, purpose] = link or self._new_link(host, port)
        return link

    def _adopted(self, host: str, port: int) -> NodeLink | None:
        """Return the bootstrap link to this address, because a broker needs no second login."""
        for number, link in enumerate(self._bootstrap):
            if (link.host, link.port) == (host, port):
                self._bootstrap[number] = self._new_link(host, port)
                return link
        return None

    def _take(self, response: MetadataResponse, asked: Collection[str] | None) -> None:
        current = self._cache.apply(response, asked, self.now_ms())
        for broker in current.brokers.values():
            self._note_address(broker.node_id, broker.host, broker.port)

    def _note_address(self, node_id: int, host: str, port: int) -> None:
        if self._addresses.get(node_id) == (host, port):
            return
        self._addresses[node_id] = (host, port)
        # Requests to the old address fail, so that they are sent again to the new address.
        moved = ConnectionLost(f"broker {node_id} has moved to {host}:{port}")
        for key in [key for key in self._links if key[0] == node_id]:
            self._refresher.run_aside(self._links.pop(key).close(moved))

    async def _ask_any(self, message: Message | ByVersion, timeout_ms: int) -> Any:
        """Send a request to the first reachable broker; the bootstrap servers come last.

        The next broker is tried only if nothing was sent to the previous one.
        """
        if self._is_closed:
            raise ClientClosed("this client of the cluster is closed")
        deadline = self.now_ms() + timeout_ms
        reasons: list[BrokerUnreachable] = []
        for link in self._links_by_promise():
            left_ms = deadline - self.now_ms()
            if left_ms <= 0:
                break
            try:
                async with asyncio.timeout(left_ms / 1000):
                    connection = await link.get()
            except BrokerUnreachable as error:
                reasons.append(error)
                continue
            except TimeoutError:
                reasons.append(link.refusal or link.time_out_error())
                continue
            left_ms = max(1, deadline - self.now_ms())
            return await connection.request(message, timeout_ms=left_ms)
        raise joined_reasons(reasons)

    def _links_by_promise(self) -> list[NodeLink]:
        known = [self._link(node_id, GENERAL) for node_id in self._cache.current.brokers]
        self.rng.shuffle(known)
        bootstrap = self.rng.sample(self._bootstrap, len(self._bootstrap))
        links = known + bootstrap
        # The sort is stable, so links with equal keys stay in random order.
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
