"""Learns the versions that other brokers speak, each over a link of its own.

The exchange has its own link, because a broker of 1.0.0-rc1 closes a link on which it gets
ApiVersions. So no other request waits for the exchange or fails with it. The link stays open,
because its end shows that the process has ended: the next process can be of another version, so the
versions are forgotten.
"""

from __future__ import annotations

import logging
from functools import partial

from broker.sessions.peer import CorrelationIds, Peer
from broker.sessions.versions import NO_VERSIONS, Versions, choose, shown, versions_in
from broker.world import Address, End, World
from protocol.errors import ErrorCode
from protocol.log import fields
from protocol.messages.api import ApiKey
from protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse

logger = logging.getLogger(__name__)

VERSIONS_NAME = "-versions"
"""The end of the client id on these links."""

ANSWER_MS_MAX = 10_000
"""The time in milliseconds after which an exchange without an answer fails."""

REFRESH_MS = 60_000
"""The interval in milliseconds at which a node that gets requests is asked again. So the other side
does not close the link as idle (`connections.max.idle.ms`)."""

AGAIN_MS_MIN = 1_000
AGAIN_MS_MAX = 300_000
"""The first and the longest wait in milliseconds before a failed exchange is repeated. It doubles
each time that the other broker has possibly received the request, because a broker of 1.0.0-rc1
logs a warning for each one."""

POSSIBLY_RECEIVED = frozenset({End.EOF, End.RESET, End.CLOSED})
"""The ends of a link on which the other broker has possibly received the request. The others mean
that its process or its host was not there."""


class _NodeVersions:
    """The versions that the current process of one node speaks, and its link."""

    __slots__ = ("ask_at_ms", "peer", "unspoken", "versions", "wait_ms")

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.versions: Versions | None = None
        """None while the versions are not known."""
        self.unspoken: set[int] = set()
        """The requests without a common version that were logged."""
        self.ask_at_ms = 0
        self.wait_ms = 0


class PeerVersions:
    """The versions that all other brokers speak."""

    def __init__(self, world: World, ids: CorrelationIds, client_id: str, own: Versions) -> None:
        """`own` has the ranges of this broker."""
        self._world = world
        self._ids = ids
        self._client_id = client_id
        self._own = own
        self._nodes: dict[int, _NodeVersions] = {}

    def choose(self, node_id: int, key: int) -> int | None:
        """Return the version for a request to a node; None if the brokers have none in common."""
        own, known = self._own[key], self._nodes.get(node_id)
        if known is None or known.versions is None:
            return choose(own, None)
        other = known.versions.get(key, NO_VERSIONS)
        version = choose(own, other)
        if version is None and key not in known.unspoken:
            known.unspoken.add(key)
            logger.warning(
                "another broker speaks no version of a request that this broker speaks",
                extra=fields(
                    broker=self._client_id,
                    other_node_id=node_id,
                    request=ApiKey(key).name,
                    versions=shown(own),
                    other_versions=shown(other),
                ),
            )
        return version

    def learn(self, node_id: int, address: Address) -> None:
        """Ask a node for its versions, unless it was asked a short time ago. Call this before each
        request to the node."""
        known = self._nodes.get(node_id)
        if known is None:
            known = self._nodes[node_id] = _NodeVersions()
        now_ms = self._world.clock.monotonic_ms()
        if now_ms < known.ask_at_ms:
            return
        known.ask_at_ms = now_ms + REFRESH_MS
        if known.peer is None:
            client_id = self._client_id + VERSIONS_NAME
            known.peer = Peer(self._world, self._ids, client_id, partial(self._ended, known))
            known.peer.dial(address, node_id=node_id)
        known.peer.ask(
            ApiVersionsRequest(),
            self._own[ApiKey.API_VERSIONS][0],
            now_ms + ANSWER_MS_MAX,
            partial(self._answered, known, known.peer),
            partial(self._failed, known.peer),
        )

    def forget(self, node_id: int) -> None:
        """Forget the versions of a node, because another process has taken its place."""
        known = self._nodes.pop(node_id, None)
        if known is not None and known.peer is not None:
            known.peer.close()

    def close(self) -> None:
        """Close all links."""
        for node_id in sorted(self._nodes):
            self.forget(node_id)

    def _answered(self, known: _NodeVersions, peer: Peer, answer: ApiVersionsResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            known.versions = versions_in(answer)
            known.unspoken.clear()
        else:
            peer.close()

    def _failed(self, peer: Peer, end: End) -> None:
        peer.close()

    def _ended(self, known: _NodeVersions, end: End) -> None:
        longer_ms = min(max(2 * known.wait_ms, AGAIN_MS_MIN), AGAIN_MS_MAX)
        is_refused = known.versions is None and end in POSSIBLY_RECEIVED
        known.wait_ms = longer_ms if is_refused else AGAIN_MS_MIN
        known.ask_at_ms = self._world.clock.monotonic_ms() + known.wait_ms
        known.peer = known.versions = None
