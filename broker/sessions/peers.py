"""The links of this broker to all other brokers: one for each node and kind, connected on demand.

There are several kinds of links, so that no request waits for an unrelated one. For example, an
election must not wait for a write that the old leader cannot commit. After a link has ended, the
next request connects again, after a delay that doubles with each failed attempt. Requests that are
made in the meantime wait for that attempt and fail with it. An unused link stays open.

A link belongs to one incarnation of the other broker. When the metadata names a new incarnation,
all links of the node are closed. Their requests were sent to a process that no longer exists,
although a host that lost power has not closed the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from broker.sessions.peer import Answered, CorrelationIds, Failed, Peer
from broker.sessions.peer_versions import PeerVersions
from broker.sessions.versions import OWN_VERSIONS, Versions
from broker.world import Address, Cancel, End, World
from protocol.types import Uuid
from protocol.wire.schema import Message

REDIAL_MS_MIN = 10
"""The delay in milliseconds after a working link has ended. It is also the first of the delays that
double."""

REDIAL_MS_MAX = 320
"""The longest delay in milliseconds, without the random part.

With this limit a node that is reachable again is connected within half a second. Until then its
controller assumes that only the connection was lost (decision 0049).
"""

UNTRIED_MS = 10_000
"""The time in milliseconds without a link or an attempt to connect one, after which a broker cannot
say how long a node has been silent. A broker that waits for a node tries it every few seconds."""


class LinkKind(Enum):
    """The kinds of links. Each kind has its own connection to a node, so a request waits only for
    requests of its own kind."""

    QUICK = "quick"
    """Votes, the begin and end of a quorum epoch, reports and verification. None of them waits for
    a commit."""
    CONTROL = "control"
    """Registration, heartbeats, AlterPartition, blocks of ids, addresses of voters."""
    ORDERS = "orders"
    """Client requests for the active controller, in an Envelope."""
    METADATA = "metadata"
    """Fetch and FetchSnapshot of the metadata log."""
    DATA = "data"
    """Fetch of partitions."""
    CATCH_UP = "catch-up"
    """Fetch of partitions that are far behind, so that their bytes delay no other fetch."""
    MARKERS = "markers"
    """WriteTxnMarkers."""


CATCH_UP_NAME = "-catch-up"
"""The end of the client id on CATCH_UP links. Each request has the client id, so the other side
knows the kind of the link from the first request on."""


def is_catch_up(client_id: str | None) -> bool:
    """Return True if a request came on a CATCH_UP link."""
    return client_id is not None and client_id.endswith(CATCH_UP_NAME)


OnEnd = Callable[[int, LinkKind, End], None]


@dataclass(frozen=True, slots=True)
class _Registration:
    """The process and the address of a node in the metadata. The address is None after the node was
    removed."""

    incarnation_id: Uuid
    address: Address | None


@dataclass(frozen=True, slots=True)
class Silence:
    """The time since which a node has not answered, in monotonic milliseconds.

    After more than UNTRIED_MS without an attempt to connect, the time begins with the next attempt.
    `end` says how the last link ended. It is None while the first link is being connected.
    """

    since_ms: int
    end: End | None


class _PeerLine:
    """The link of one kind to one node, if any, and the earliest time to connect again."""

    __slots__ = ("dial_at_ms", "peer", "redial", "wait_ms")

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.redial: Cancel | None = None
        self.wait_ms = 0
        self.dial_at_ms = 0


def _no_listener(node_id: int, kind: LinkKind, end: End) -> None:
    """Ignore the end of a link."""


class Peers:
    """All outgoing links of this broker. Each request ends exactly once, as in `Peer`."""

    def __init__(
        self,
        world: World,
        client_id: str,
        voters: Mapping[int, Address],
        on_end: OnEnd = _no_listener,
        versions: Versions = OWN_VERSIONS,
    ) -> None:
        """`voters` has the configured addresses. They are used until a registration names another
        address. `on_end` is called when a link ends, before its requests fail. `versions` has the
        ranges of the requests of this broker."""
        self._world = world
        self._client_id = client_id
        self._ids = CorrelationIds()
        self._versions = PeerVersions(world, self._ids, client_id, versions)
        self._voters = dict(voters)
        self._named: Callable[[int], Address | None] = lambda node_id: None
        self._on_end = on_end
        self._registrations: dict[int, _Registration] = {}
        self._lines: dict[tuple[int, LinkKind], _PeerLine] = {}
        self._is_closed = False
        self._began_ms = world.clock.monotonic_ms()
        self._silent: dict[int, Silence] = {}
        """The silence of each node, by node id. It has no meaning while a link is open on which the
        node has answered."""
        self._tried_ms: dict[int, int] = {}
        """The monotonic time at which a link to a node last ended, by node id."""
        self._lost_ms: dict[int, int] = {}
        """The monotonic time at which a link last ended on which the node had answered, by node
        id."""
        for address in self._voters.values():
            world.look_up(address.host)

    def address_of(self, node_id: int) -> Address | None:
        """Return the address on which a node listens for brokers; None if unknown.

        A node that neither a registration nor the configuration names can be named by the voters in
        the log.
        """
        known = self._registrations.get(node_id)
        if known is not None and known.address is not None:
            return known.address
        return self._voters.get(node_id) or self._named(node_id)

    def look_in(self, named: Callable[[int], Address | None]) -> None:
        """Set the function that returns the address of a node in the newest voter set."""
        self._named = named

    def silence_of(self, node_id: int) -> Silence | None:
        """Return the time since which a node has not answered, and the reason.

        A node to which no request was sent counts as a node without an answer. Return None while
        there is a link on which the node has answered.
        """
        for (other_id, _), line in self._lines.items():
            if other_id == node_id and line.peer is not None and line.peer.answered_ms is not None:
                return None
        return self._silent.get(node_id) or Silence(self._began_ms, None)

    def lost_ms(self, node_id: int) -> int | None:
        """Return the monotonic time at which a working link to a node last ended; None if the node
        has answered since."""
        lost_ms = self._lost_ms.get(node_id)
        if lost_ms is None:
            return None
        for (other_id, _), line in self._lines.items():
            answered_ms = None if line.peer is None else line.peer.answered_ms
            if other_id == node_id and answered_ms is not None and answered_ms > lost_ms:
                return None
        return lost_ms

    def registered(self, node_id: int, incarnation_id: Uuid, address: Address) -> None:
        """Set the process and the address of a node, as the metadata names them. Both can be
        unchanged.

        The host name is resolved here, because a probe must not wait for a resolver.
        """
        known = self._registrations.get(node_id)
        self._registrations[node_id] = _Registration(incarnation_id, address)
        if known is None or known.address != address:
            self._world.look_up(address.host)
        if known is not None and known.incarnation_id != incarnation_id:
            self._drop(node_id)

    def unregistered(self, node_id: int) -> None:
        """Close the links of a node that the metadata no longer names."""
        known = self._registrations.get(node_id)
        if known is not None:
            self._registrations[node_id] = _Registration(known.incarnation_id, None)
        self._drop(node_id)

    def ask(
        self,
        node_id: int,
        kind: LinkKind,
        request: Message,
        deadline_ms: int,
        answered: Answered,
        failed: Failed,
    ) -> int:
        """Send a request on the node's link of this kind, as in `Peer.ask`.

        It goes in the highest version that both brokers speak. It fails with UNRESOLVED if no
        address of the node is known, with UNSUPPORTED if there is no common version, and with
        CLOSED after `close`.
        """
        address = self.address_of(node_id)
        if self._is_closed or address is None:
            self._world.soon(failed, End.CLOSED if self._is_closed else End.UNRESOLVED)
            return self._ids.take()
        version = self._versions.choose(node_id, request.api_key)
        if version is None:
            # Fail late, as after a lost link, because the caller can repeat the request at once.
            self._world.later(REDIAL_MS_MAX, partial(failed, End.UNSUPPORTED))
            number = self._ids.take()
        else:
            line = self._lines.setdefault((node_id, kind), _PeerLine())
            peer = line.peer or self._begin(node_id, kind, line)
            number = peer.ask(request, version, deadline_ms, answered, failed)
        # Dial the link for versions last, so that the request does not wait for it.
        self._versions.learn(node_id, address)
        return number

    def version_for(self, node_id: int, key: int) -> int | None:
        """Return the version in which a node now gets a request from this broker; None if the
        brokers have none in common."""
        return self._versions.choose(node_id, key)

    def close(self) -> None:
        """Close all links, and connect no more. Open requests fail with CLOSED."""
        self._is_closed = True
        self._versions.close()
        for node_id in sorted({node_id for node_id, _ in self._lines}):
            self._drop(node_id)

    # Connecting a link, ending it, and connecting again after a delay.

    def _begin(self, node_id: int, kind: LinkKind, line: _PeerLine) -> Peer:
        client_id = self._client_id + (CATCH_UP_NAME if kind is LinkKind.CATCH_UP else "")
        peer = Peer(self._world, self._ids, client_id, lambda end: ended(peer, end))
        ended = partial(self._ended, node_id, kind, line)
        now_ms = self._world.clock.monotonic_ms()
        self._begin_silence(node_id, now_ms)
        line.peer = peer
        delay_ms = line.dial_at_ms - now_ms
        if delay_ms > 0:
            line.redial = self._world.later(delay_ms, partial(self._dial, node_id, line))
        else:
            self._dial(node_id, line)
        return peer

    def _begin_silence(self, node_id: int, now_ms: int) -> None:
        """Let the silence of a node begin now if no link to it was tried for a long time, because
        the node can have worked until now."""
        is_linked = any(
            other_id == node_id and line.peer is not None
            for (other_id, _), line in self._lines.items()
        )
        tried_ms = self._tried_ms.get(node_id, self._began_ms)
        if not is_linked and now_ms - tried_ms > UNTRIED_MS:
            before = self._silent.get(node_id)
            self._silent[node_id] = Silence(now_ms, None if before is None else before.end)

    def _dial(self, node_id: int, line: _PeerLine) -> None:
        line.redial = None
        address = self.address_of(node_id)
        assert line.peer is not None and address is not None, "a redial is cancelled with its link"
        # The link can have ended before it is connected, if too many requests were made.
        if line.peer.is_open:
            line.peer.dial(address, node_id=node_id)

    def _ended(self, node_id: int, kind: LinkKind, line: _PeerLine, peer: Peer, end: End) -> None:
        line.peer = None
        now_ms = self._tried_ms[node_id] = self._world.clock.monotonic_ms()
        if peer.answered_ms is not None:
            since_ms = self._lost_ms[node_id] = now_ms
        else:
            since_ms = self._silent.get(node_id, Silence(self._began_ms, None)).since_ms
        self._silent[node_id] = Silence(since_ms, end)
        longer_ms = min(max(2 * line.wait_ms, REDIAL_MS_MIN), REDIAL_MS_MAX)
        line.wait_ms = REDIAL_MS_MIN if peer.answered_ms is not None else longer_ms
        # Add a random part to the delay, so that not all brokers connect to a returning node at the
        # same time. The whole delay is below half a second.
        more_ms = self._world.chance.randint(0, line.wait_ms // 2)
        line.dial_at_ms = now_ms + line.wait_ms + more_ms
        self._stop_redial(line)
        self._on_end(node_id, kind, end)

    def _drop(self, node_id: int) -> None:
        self._versions.forget(node_id)
        for key in [key for key in self._lines if key[0] == node_id]:
            # The next link gets a new entry, so it connects at once.
            line = self._lines.pop(key)
            self._stop_redial(line)
            if line.peer is not None:
                line.peer.close()

    def _stop_redial(self, line: _PeerLine) -> None:
        if line.redial is not None:
            line.redial.cancel()
            line.redial = None
