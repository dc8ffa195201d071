"""The reassignments under way: their progress, their speed, and why some do not advance.

This module is pure: the time of each polling cycle is an argument. The rates and the remaining
times are those of `protocol/copy_progress`, which `millrace reassign` uses too. A broker of the
mill reports the size of each of its replicas, and why a copy waits. Another cluster reports
neither, so there the bytes are unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from protocol.copy_progress import CopyEstimate, CopyProgress, CopySample
from protocol.reassignment import awaited_replicas, effective_min_isr, target_replicas
from protocol.types import TopicPartition

STILL_SHOWN_MS = 30_000
"""The time without a byte after which a copy without another reason counts as stalled."""

SHARE_MAX = 0.99
"""The largest share that is shown. Only the metadata say that a reassignment is complete."""

UNANSWERED = "no broker answers"
COPIED = "everything is copied; the controller completes it next"


@dataclass(frozen=True, slots=True)
class ReplicaCopy:
    """A replica that a broker copies, as that broker reports it.

    `waits_for` has the words of the broker's `/status`: queue, throttle, room.
    """

    missing_bytes: int | None
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MovingPartition:
    """A partition that is reassigned, with all that is known of its replicas.

    `sizes` and `copies` have the brokers that report them.
    """

    tp: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    min_in_sync: int | None = None
    is_compacted: bool = False
    is_limited: bool = False
    """True if the topic has a list of replicas whose copies are limited."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    copies: Mapping[int, ReplicaCopy] = field(default_factory=dict)

    @property
    def copying(self) -> tuple[int, ...]:
        """The added replicas that are not in sync yet."""
        return tuple(one for one in self.adding if one not in self.in_sync)

    @property
    def to_copy_bytes(self) -> int | None:
        """The bytes that the added replicas lack; None if they are unknown.

        The leader's log of a compacted topic can be smaller than the copy, so the broker's own
        estimate is used there.
        """
        full = None if self.leader is None else self.sizes.get(self.leader)
        missing = 0
        for node in self.copying:
            copy, size = self.copies.get(node), self.sizes.get(node)
            if self.is_compacted and copy is not None and copy.missing_bytes is not None:
                missing += copy.missing_bytes
            elif full is None or size is None:
                return None
            else:
                missing += max(0, full - size)
        return missing

    @property
    def full_bytes(self) -> int | None:
        """The size of the copies when they are complete; None if unknown."""
        full = None if self.leader is None else self.sizes.get(self.leader)
        return None if full is None else full * len(self.copying)


@dataclass(frozen=True, slots=True)
class BrokersNow:
    """The state of the brokers, from which the reason of a stalled copy follows.

    `away` has the brokers that are not in service, each with the time since when (None: unknown).
    The other sets have the brokers whose limit for copies is 0 bytes a second.
    """

    away: Mapping[int, str | None] = field(default_factory=dict)
    receive_nothing: frozenset[int] = frozenset()
    send_nothing: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class MoveView:
    """One reassignment under way. Bytes, rates (bytes a second) and times are None if unknown."""

    topic: str
    partition: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    copying: tuple[int, ...]
    to_go: int | None
    share: float | None
    """The share of the bytes that is copied, below 1; None if unknown."""
    rate: float | None
    writes: float | None
    eta_s: float | None
    is_endless: bool
    is_about: bool
    """True if the bytes are an estimate, because the topic is compacted."""
    waits: str
    """The reason why the reassignment does not advance, as text; empty if it advances."""
    is_queued: bool
    """True if other copies must end first. Such a wait can be long without a fault."""
    still_since_ms: int
    """The time since which no byte was copied and no replica got in sync."""
    is_done: bool = False
    """True if everything is copied, so that only the controller's record is missing."""
    is_measured: bool = True
    """False if no broker reports the bytes, so it is unknown whether the copy advances."""

    @property
    def name(self) -> str:
        """The partition as text."""
        return f"{self.topic}-{self.partition}"

    @property
    def is_standing(self) -> bool:
        """True if the reassignment does not advance, for another reason than a queue."""
        return bool(self.waits) and not (self.is_queued or self.is_done)


@dataclass(slots=True)
class _MoveTrack:
    """The samples of one reassignment."""

    copying: tuple[int, ...]
    progress: CopyProgress = field(default_factory=CopyProgress)
    seen: tuple[object, ...] = ()
    still_since_ms: int = 0


@dataclass(slots=True)
class MoveMemory:
    """The reassignments of the last polling cycle, with the samples of their sizes."""

    _tracks: dict[TopicPartition, _MoveTrack] = field(default_factory=dict)

    def look(
        self, moving: Iterable[MovingPartition], brokers: BrokersNow, now_ms: int
    ) -> tuple[MoveView, ...]:
        """Add a sample for each reassignment and return their state.

        Reassignments that are missing in `moving` are forgotten.
        """
        before, self._tracks = self._tracks, {}
        found = []
        for one in moving:
            track = before.get(one.tp)
            if track is None or track.copying != one.copying:
                # The bytes of a copy that is done leave the sums, so the samples begin again.
                track = _MoveTrack(one.copying)
            self._tracks[one.tp] = track
            found.append(_view(one, track, brokers, now_ms))
        return tuple(found)


def in_order(moves: Iterable[MoveView]) -> list[MoveView]:
    """Return stalled reassignments first, then copying ones, then queued ones."""
    return sorted(moves, key=lambda one: (one.is_queued, not one.is_standing))


def by_topic(moves: Iterable[MoveView]) -> dict[str, list[MoveView]]:
    """Return the reassignments of each topic that has any."""
    found: dict[str, list[MoveView]] = {}
    for one in moves:
        found.setdefault(one.topic, []).append(one)
    return found


def unanswered(moves: Sequence[MoveView]) -> tuple[MoveView, ...]:
    """Return the last known reassignments in a cycle in which no broker answered."""
    return tuple(
        replace(one, rate=None, writes=None, eta_s=None, is_endless=False, waits=UNANSWERED)
        for one in moves
    )


def _view(one: MovingPartition, track: _MoveTrack, brokers: BrokersNow, now_ms: int) -> MoveView:
    to_go = one.to_copy_bytes
    seen = (one.in_sync, tuple(one.sizes.get(node) for node in one.adding))
    if seen != track.seen:
        track.seen, track.still_since_ms = seen, now_ms
    estimate = CopyEstimate(to_go or 0, None, None, None, False)
    if to_go is not None and one.full_bytes is not None and one.copying:
        estimate = track.progress.add(CopySample(now_ms / 1000, to_go, one.full_bytes))
    still_ms = now_ms - track.still_since_ms
    waits, is_queued = _reason(one, brokers, still_ms)
    is_done = waits == COPIED
    return MoveView(
        one.tp.topic,
        one.tp.partition,
        one.adding,
        one.removing,
        one.copying,
        to_go,
        _share(to_go, one.full_bytes),
        estimate.rate,
        estimate.writes,
        None if waits else estimate.eta_s,
        estimate.is_endless,
        one.is_compacted,
        waits,
        is_queued,
        track.still_since_ms,
        is_done,
        to_go is not None or any(node in brokers.away for node in one.copying),
    )


def _share(to_go: int | None, full: int | None) -> float | None:
    if to_go is None or full is None:
        return None
    return min(SHARE_MAX, max(0.0, 1 - to_go / full)) if full else SHARE_MAX


def _reason(one: MovingPartition, brokers: BrokersNow, still_ms: int) -> tuple[str, bool]:
    """Return why a reassignment does not advance, and whether it only waits in a queue."""
    if one.leader is None:
        return "the partition has no leader", False
    away = [node for node in one.copying if node in brokers.away]
    if away:
        since = brokers.away[away[0]]
        return f"waits for broker {away[0]}, away since {since or 'an unknown time'}", False
    for node in one.copying:
        waits_for = one.copies[node].waits_for if node in one.copies else ()
        if "room" in waits_for:
            return f"the disk of broker {node} is nearly full, so copies pause", False
        if "queue" in waits_for:
            return f"waits in the queue of broker {node}", True
        if "throttle" in waits_for and node in brokers.receive_nothing:
            return f"broker {node} may receive 0 bytes/s of copies", False
        if one.is_limited and one.leader in brokers.send_nothing:
            return f"broker {one.leader} may send 0 bytes/s of copies", False
    if not one.copying:
        return _uncompleted(one), False
    if still_ms >= STILL_SHOWN_MS and all(node in one.sizes for node in one.copying):
        return f"broker {one.copying[0]} gets no bytes from broker {one.leader}", False
    return "", False


def _uncompleted(one: MovingPartition) -> str:
    """Return why a reassignment is not complete although all added replicas are in sync."""
    awaited = awaited_replicas(one.replicas, one.adding, one.removing, one.in_sync)
    if awaited:
        return f"waits until broker {awaited[0]} is in sync, because its replica stays"
    target = target_replicas(one.replicas, one.removing)
    in_sync = sum(node in one.in_sync for node in target)
    needed = effective_min_isr(one.min_in_sync or 0, target, ())
    if in_sync < needed:
        return f"waits for {needed} replicas in sync among those that stay; {in_sync} are"
    return COPIED


@dataclass(frozen=True, slots=True)
class MovesSum:
    """The sums over all reassignments. Rates are in bytes a second."""

    count: int
    queued: int
    standing: int
    unknown: int
    """The number of reassignments whose bytes are unknown."""
    to_go: int
    """The bytes to copy of all reassignments whose bytes are known."""
    rate: float | None
    eta_s: float | None
    is_endless: bool


def sum_of(moves: Sequence[MoveView]) -> MovesSum:
    """Add up the reassignments. `eta_s` is the time for all remaining bytes at the present rate."""
    known = [one.to_go for one in moves if one.to_go is not None]
    to_go = sum(known)
    rates = [one for one in moves if one.rate is not None and one.writes is not None]
    rate = sum(one.rate or 0.0 for one in rates) if rates else None
    net = sum((one.rate or 0.0) - (one.writes or 0.0) for one in rates)
    is_timed = len(known) == len(moves) and any(one.eta_s is not None for one in moves)
    return MovesSum(
        len(moves),
        sum(one.is_queued for one in moves),
        sum(one.is_standing for one in moves),
        len(moves) - len(known),
        to_go,
        rate,
        to_go / net if is_timed and net > 0 else None,
        any(one.is_endless for one in moves),
    )
