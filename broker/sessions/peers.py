"""The links of this broker to all others: one for each node and kind, dialled when it is needed.

Floor: sessions. Kinds are apart so that nothing starts behind a request that waits for something
else: an election must not stand behind what the old leader cannot commit. A link that has ended is
dialled again when somebody next asks, after a wait that doubles from one link in vain to the next;
what is asked meanwhile waits for that dial, and fails with its end. A link that nobody uses stays.

A link belongs to one incarnation of the other broker. When the metadata names another than the one
it knew before, all links of the node are dropped: what was asked there was asked of a process that
is no more, though a host that has lost its power has not said so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from broker.sessions.peer import Answered, CorrelationIds, Failed, Peer
from broker.world import Address, Cancel, End, World
from protocol.types import Uuid
from protocol.wire.schema import Message

REDIAL_MS_MIN = 10
"""The wait before the link after one that was of use, and the first of those that double."""

REDIAL_MS_MAX = 320
"""With what chance adds, a node that can be reached again is called within half a second: so long
its controller believes that a closed link may only have broken (decision 0049)."""


class LinkKind(Enum):
    """What a link carries: requests that may stand behind each other."""

    QUICK = "quick"
    """Votes, the begin and end of a quorum's epoch, reports, verification: nothing that waits for a
    commit."""
    CONTROL = "control"
    """Registration, heartbeats, AlterPartition, blocks of ids."""
    ORDERS = "orders"
    """What clients want of the active controller, in an Envelope."""
    METADATA = "metadata"
    """Fetch and FetchSnapshot of the metadata log."""
    DATA = "data"
    """Fetch of partitions."""
    MARKERS = "markers"
    """WriteTxnMarkers."""


OnEnd = Callable[[int, LinkKind, End], None]


@dataclass(frozen=True, slots=True)
class _Registration:
    """A process of a node as the metadata names it; without an address after it was taken out."""

    incarnation_id: Uuid
    address: Address | None


@dataclass(frozen=True, slots=True)
class Silence:
    """A node from which nothing is heard, since this monotonic time; `end` is how the last link to
    it ended, None while the first one is on its way."""

    since_ms: int
    end: End | None


class _Line:
    """One node and kind: its link, if there is one, and when the next may be dialled."""

    __slots__ = ("dial_at_ms", "peer", "redial", "wait_ms")

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.redial: Cancel | None = None
        self.wait_ms = 0
        self.dial_at_ms = 0


def _no_listener(node_id: int, kind: LinkKind, end: End) -> None:
    """Nobody wants to hear of ends."""


class Peers:
    """All links that this broker has dialled. Requests end as `Peer` has it: once, in any case."""

    def __init__(
        self,
        world: World,
        client_id: str,
        voters: Mapping[int, Address],
        on_end: OnEnd = _no_listener,
    ) -> None:
        """`voters`: where the configuration says they are; it holds while no registration names
        another address. `on_end` hears of each link's end, before those who have asked there."""
        self._world = world
        self._client_id = client_id
        self._ids = CorrelationIds()
        self._voters = dict(voters)
        self._on_end = on_end
        self._registrations: dict[int, _Registration] = {}
        self._lines: dict[tuple[int, LinkKind], _Line] = {}
        self._is_closed = False
        self._began_ms = world.clock.monotonic_ms()
        self._silent: dict[int, Silence] = {}
        """By node, since its last link ended on which anything was answered."""
        for address in self._voters.values():
            world.look_up(address.host)

    def address_of(self, node_id: int) -> Address | None:
        """Where a node listens for brokers; None if nobody has said."""
        known = self._registrations.get(node_id)
        if known is not None and known.address is not None:
            return known.address
        return self._voters.get(node_id)

    def silence_of(self, node_id: int) -> Silence | None:
        """Since when nothing is heard of a node, and why; None while a link to it stands on which
        it has answered. One that nobody has asked is silent too."""
        for (other_id, _), line in self._lines.items():
            if other_id == node_id and line.peer is not None and line.peer.has_answered:
                return None
        return self._silent.get(node_id) or Silence(self._began_ms, None)

    def registered(self, node_id: int, incarnation_id: Uuid, address: Address) -> None:
        """The metadata names a process of a node, and where it listens; it may be the known one.

        The name is looked up here, for a probe must not wait for a resolver.
        """
        known = self._registrations.get(node_id)
        self._registrations[node_id] = _Registration(incarnation_id, address)
        if known is None or known.address != address:
            self._world.look_up(address.host)
        if known is not None and known.incarnation_id != incarnation_id:
            self._drop(node_id)

    def unregistered(self, node_id: int) -> None:
        """The metadata names a node no more: its links are dropped."""
        known = self._registrations.get(node_id)
        if known is not None:
            self._registrations[node_id] = _Registration(known.incarnation_id, None)
        self._drop(node_id)

    def ask(
        self,
        node_id: int,
        kind: LinkKind,
        request: Message,
        version: int,
        deadline_ms: int,
        answered: Answered,
        failed: Failed,
    ) -> int:
        """Send a request on the node's link of that kind: `Peer.ask`.

        Fails with UNRESOLVED where no address of the node is known, with CLOSED after `close`.
        """
        address = self.address_of(node_id)
        if self._is_closed or address is None:
            self._world.soon(failed, End.CLOSED if self._is_closed else End.UNRESOLVED)
            return self._ids.take()
        line = self._lines.setdefault((node_id, kind), _Line())
        peer = line.peer or self._begin(node_id, kind, line)
        return peer.ask(request, version, deadline_ms, answered, failed)

    def close(self) -> None:
        """Drop all links and dial no more: what is asked has failed with CLOSED."""
        self._is_closed = True
        for node_id in sorted({node_id for node_id, _ in self._lines}):
            self._drop(node_id)

    # Inside.

    def _begin(self, node_id: int, kind: LinkKind, line: _Line) -> Peer:
        peer = Peer(self._world, self._ids, self._client_id, lambda end: ended(peer, end))
        ended = partial(self._ended, node_id, kind, line)
        line.peer = peer
        delay_ms = line.dial_at_ms - self._world.clock.monotonic_ms()
        if delay_ms > 0:
            line.redial = self._world.later(delay_ms, partial(self._dial, node_id, line))
        else:
            self._dial(node_id, line)
        return peer

    def _dial(self, node_id: int, line: _Line) -> None:
        line.redial = None
        address = self.address_of(node_id)
        assert line.peer is not None and address is not None, "both go with the links"
        # It may have ended already: a thousand were asked before its dial.
        if line.peer.is_open:
            line.peer.dial(address)

    def _ended(self, node_id: int, kind: LinkKind, line: _Line, peer: Peer, end: End) -> None:
        line.peer = None
        if peer.has_answered:
            since_ms = self._world.clock.monotonic_ms()
        else:
            since_ms = self._silent.get(node_id, Silence(self._began_ms, None)).since_ms
        self._silent[node_id] = Silence(since_ms, end)
        longer_ms = min(max(2 * line.wait_ms, REDIAL_MS_MIN), REDIAL_MS_MAX)
        line.wait_ms = REDIAL_MS_MIN if peer.has_answered else longer_ms
        # Not all at once when a node comes back that many call; never beyond half a second.
        more_ms = self._world.chance.randint(0, line.wait_ms // 2)
        line.dial_at_ms = self._world.clock.monotonic_ms() + line.wait_ms + more_ms
        self._stop_redial(line)
        self._on_end(node_id, kind, end)

    def _drop(self, node_id: int) -> None:
        for key in [key for key in self._lines if key[0] == node_id]:
            # The next link is on a line of its own, and is dialled at once.
            line = self._lines.pop(key)
            self._stop_redial(line)
            if line.peer is not None:
                line.peer.close()

    def _stop_redial(self, line: _Line) -> None:
        if line.redial is not None:
            line.redial.cancel()
            line.redial = None
