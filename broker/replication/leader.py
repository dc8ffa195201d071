"""The leader's state in one leader epoch: its followers, the in-sync replicas, the high watermark.

This module is pure. The state is created when the epoch starts and dropped when it ends. So it
never includes progress that followers reported in an earlier epoch.

The high watermark is the lowest durable end of the leader, of the maximal in-sync replicas, and of
followers that are about to join. It does not move while fewer replicas are in sync than the topic
requires. So an eligible leader replica has all records below it (KIP-966). It never falls.

Times are lived milliseconds: monotonic time without the periods in which this process was stopped.
So a leader that was stopped does not take its followers for slow ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from broker.replication.isr import Isr, IsrProposal
from broker.replication.progress import NO_BROKER_EPOCH, FollowerProgress, FollowerStatus
from protocol.errors import ErrorCode
from protocol.reassignment import effective_min_isr, is_under_replicated
from protocol.types import NO_OFFSET

REPLICA_LAG_TIME_MAX_MS = 5_000
"""`replica.lag.time.max.ms`. If a follower freezes, appends with acks=all wait up to this long."""

REJOIN_DWELL_MS = 5_000
"""The time in milliseconds for which a replica that was removed for its lag cannot join again, so
that the in-sync replicas do not change back and forth."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One partition as the replayed metadata log describes it."""

    offset: int
    """The exclusive end of the replayed metadata log."""
    leader: int
    """The leader's id; NO_NODE if there is no leader."""
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    min_in_sync_replicas: int
    """The topic's `min.insync.replicas`, whatever the number of replicas."""
    adding_replicas: tuple[int, ...] = ()
    """The replicas that a reassignment adds. The minimum is computed without them."""
    is_recovering: bool = False
    """True if the leader was elected uncleanly and has not recovered yet. No replica can join in
    this state."""


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The start and end offsets of a replica's log at the moment of an assignment."""

    log_start_offset: int
    high_watermark: int
    """The high watermark in the checkpoint. The real high watermark can be higher."""
    durable_end: int
    log_end_offset: int


class LeaderLedger:
    """The state of one leader epoch. Read `high_watermark` after every call."""

    __slots__ = (
        "_adding",
        "_brokers",
        "_counting",
        "_is_recovering",
        "_lag_time_max_ms",
        "_node_id",
        "_numbers",
        "_shrunk",
        "_started_ms",
        "broker_epoch",
        "durable_end",
        "epoch",
        "epoch_start_offset",
        "high_watermark",
        "is_under_min_isr",
        "isr",
        "log_start_offset",
        "progress",
        "replicas",
    )

    def __init__(
        self,
        node_id: int,
        broker_epoch: int,
        seen: Assignment,
        ends: LogEnds,
        high_watermark: int,
        brokers: Mapping[int, int],
        lag_time_max_ms: int,
        numbers: Iterator[int],
        now_ms: int,
    ) -> None:
        """`numbers` yields the numbers of proposals. No number repeats, not even in a later
        epoch."""
        self.broker_epoch = broker_epoch
        self.epoch = seen.leader_epoch
        self.epoch_start_offset = ends.log_end_offset
        self.high_watermark = high_watermark
        """The value at the start is a lower bound, because the former leader can have committed
        more."""
        self.durable_end = ends.durable_end
        self.log_start_offset = ends.log_start_offset
        self.replicas: tuple[int, ...] = ()
        self._adding: tuple[int, ...] = ()
        self.progress: dict[int, FollowerProgress] = {}
        self.isr = Isr(seen.in_sync_replicas, seen.partition_epoch)
        self._node_id = node_id
        self._brokers = brokers
        self._lag_time_max_ms = lag_time_max_ms
        self._started_ms = now_ms
        self.is_under_min_isr = False
        """True if too few replicas are in sync, so that nothing more is committed."""
        self._is_recovering = False
        self._numbers = numbers
        self._shrunk: tuple[int, ...] = ()
        """The replicas that proposals in this partition epoch remove for their lag."""
        self._counting: tuple[FollowerProgress, ...] = ()
        """The followers whose durable ends limit the high watermark."""
        self.assigned(seen, now_ms)

    @property
    def is_under_replicated(self) -> bool:
        """True if an original replica is not in sync. Replicas that a reassignment adds are ignored
        (KIP-352)."""
        return is_under_replicated(self.replicas, self._adding, self.isr.committed)

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of all live replicas; NO_OFFSET while one is unknown."""
        low = self.log_start_offset
        for node_id, progress in self.progress.items():
            if node_id in self._brokers:
                # The value is unknown if an earlier process of the follower reported it, because it
                # is possibly not durable.
                is_known = self._is_eligible(node_id)
                low = min(low, progress.start_offset if is_known else NO_OFFSET)
        return low

    def followers(self, now_ms: int) -> tuple[FollowerStatus, ...]:
        """Return the state of each follower, in the order of ids."""
        if not self.progress:
            return ()
        return tuple(
            self._status(node_id, progress, now_ms)
            for node_id, progress in sorted(self.progress.items())
        )

    def _status(self, node_id: int, progress: FollowerProgress, now_ms: int) -> FollowerStatus:
        end = progress.durable_end if progress.has_fetched else None
        lag = None if end is None else max(self.durable_end - end, 0)
        since_ms = now_ms if lag == 0 else progress.last_caught_up_ms
        ago_ms = None if since_ms is None else now_ms - since_ms
        return FollowerStatus(node_id, end, lag, ago_ms, node_id in self.isr.committed)

    def assigned(self, seen: Assignment, now_ms: int) -> None:
        """Apply new metadata within the epoch: other replicas, in-sync replicas or another
        minimum."""
        self.replicas = seen.replicas
        self._adding = seen.adding_replicas
        self._is_recovering = seen.is_recovering
        before = self.progress
        self.progress = {}
        for node_id in seen.replicas:
            if node_id != self._node_id:
                self.progress[node_id] = before.get(node_id) or self._newcomer(node_id, seen)
        if seen.partition_epoch > self.isr.partition_epoch:
            self._settle(seen, now_ms)
        min_in_sync = effective_min_isr(
            seen.min_in_sync_replicas, seen.replicas, seen.adding_replicas
        )
        self.is_under_min_isr = len(self.isr.committed) < min_in_sync
        self._judge_joiners(now_ms)
        self._recount()

    def _newcomer(self, node_id: int, seen: Assignment) -> FollowerProgress:
        # A replica that the metadata log names as in sync had all records when the epoch started.
        return FollowerProgress(self._started_ms if node_id in seen.in_sync_replicas else None)

    def _settle(self, seen: Assignment, now_ms: int) -> None:
        former = self.isr.committed
        self.isr.settle(seen.in_sync_replicas, seen.partition_epoch)
        for node_id, progress in self.progress.items():
            is_member = node_id in seen.in_sync_replicas
            if is_member and node_id not in former:
                progress.caught_up_at(now_ms)
            elif not is_member and node_id in self._shrunk:
                progress.joins_after_ms = now_ms + REJOIN_DWELL_MS
        self._shrunk = ()

    def eligible(self, brokers: Mapping[int, int]) -> None:
        """Set the brokers that can be in sync, with their broker epochs: they are unfenced and not
        stopping."""
        self._brokers = brokers
        for node_id, progress in self.progress.items():
            progress.is_awaited = progress.is_awaited and self._is_eligible(node_id)
        self._recount()

    def advance_durable_end(self, end_offset: int) -> None:
        """Set the end up to which the leader's own log is durable. If the topic does not wait for
        fsyncs, written records are treated as durable."""
        self.durable_end = end_offset
        self._advance()

    def trimmed(self, log_start_offset: int) -> None:
        """Set the leader's own log start offset."""
        self.log_start_offset = log_start_offset

    def fetched(
        self, node_id: int, broker_epoch: int, durable_end: int, start_offset: int, now_ms: int
    ) -> None:
        """Record that a follower has all records below `durable_end`. Its log agrees with the
        leader's.

        A fetch of a broker that is not a replica is ignored.
        """
        progress = self.progress.get(node_id)
        if progress is None:
            return
        if not progress.fetched(broker_epoch, durable_end, start_offset, self.durable_end, now_ms):
            return
        if node_id not in self.isr.committed and progress.is_awaited != self._is_joiner(
            node_id, progress, now_ms
        ):
            progress.is_awaited = not progress.is_awaited
            self._recount()
        else:
            self._advance()

    def proposal(self, now_ms: int) -> IsrProposal | None:
        """Return the proposal to send; None if there is none. Call this at every tick and after a
        fetch.

        Members that lag are removed first. Then replicas that can join are added.
        """
        for progress in self.progress.values():
            # An idle partition is not in the follower's fetches. If the follower has all records,
            # it is caught up at this moment.
            if progress.durable_end >= self.durable_end:
                progress.caught_up_at(now_ms)
        if self._judge_joiners(now_ms):
            self._recount()
        if not self.isr.may_propose(now_ms):
            return None
        committed = self.isr.committed
        if self._is_recovering:
            return self._propose(committed, now_ms)
        lagging = self._lagging(now_ms)
        if lagging:
            self._shrunk += lagging
            return self._propose(tuple(m for m in committed if m not in lagging), now_ms)
        joiners = tuple(
            m for m in self.progress if m not in committed and self._may_join(m, now_ms)
        )
        if joiners or self.isr.needs_void:
            return self._propose(tuple(sorted((*committed, *joiners))), now_ms)
        return None

    def answered(self, number: int, code: ErrorCode) -> None:
        """Handle the answer to a proposal, or an error such as REQUEST_TIMED_OUT if there was no
        answer."""
        self.isr.answered(number, code)
        self._recount()

    def _propose(self, members: tuple[int, ...], now_ms: int) -> IsrProposal:
        number = next(self._numbers)
        self.isr.proposed(number, members, now_ms)
        self._recount()
        return IsrProposal(
            number=number,
            leader_epoch=self.epoch,
            partition_epoch=self.isr.partition_epoch,
            in_sync_replicas=tuple((member, self._broker_epoch_of(member)) for member in members),
        )

    def _broker_epoch_of(self, node_id: int) -> int:
        if node_id == self._node_id:
            return self.broker_epoch
        progress = self.progress.get(node_id)
        return NO_BROKER_EPOCH if progress is None else progress.broker_epoch

    def _lagging(self, now_ms: int) -> tuple[int, ...]:
        lagging = []
        for member in self.isr.committed:
            progress = self.progress.get(member)
            if progress is not None and not progress.is_caught_up(now_ms, self._lag_time_max_ms):
                lagging.append(member)
        return tuple(lagging)

    def _is_eligible(self, node_id: int) -> bool:
        """Return True if the broker is unfenced, not stopping, and fetches as the registered
        incarnation."""
        return self._brokers.get(node_id) == self.progress[node_id].broker_epoch

    def _is_joiner(self, node_id: int, progress: FollowerProgress, now_ms: int) -> bool:
        """Return True if the high watermark waits for a follower that is not in sync.

        Without this wait, the high watermark would stay ahead of every follower under load, and no
        follower could join.
        """
        return (
            progress.has_fetched
            and not self._is_recovering
            and now_ms >= progress.joins_after_ms
            and progress.is_caught_up(now_ms, self._lag_time_max_ms)
            and self._is_eligible(node_id)
        )

    def _may_join(self, node_id: int, now_ms: int) -> bool:
        """Return True if a follower can be proposed, because it has all records that are or can be
        committed."""
        progress = self.progress[node_id]
        return (
            progress.has_fetched
            and now_ms >= progress.joins_after_ms
            and self._is_eligible(node_id)
            and self._holds_committed(progress)
            and self._holds_earlier_epochs(progress)
        )

    def _holds_committed(self, progress: FollowerProgress) -> bool:
        return progress.durable_end >= self.high_watermark

    def _holds_earlier_epochs(self, progress: FollowerProgress) -> bool:
        # At the start of an epoch the high watermark is only a lower bound. The former leader can
        # have committed any record below the start of this epoch.
        return progress.durable_end >= self.epoch_start_offset

    def _judge_joiners(self, now_ms: int) -> bool:
        """Decide again for which joining followers the high watermark waits. Return True if this
        has changed."""
        has_changed = False
        for node_id, progress in self.progress.items():
            is_awaited = node_id not in self.isr.committed and self._is_joiner(
                node_id, progress, now_ms
            )
            has_changed |= is_awaited != progress.is_awaited
            progress.is_awaited = is_awaited
        return has_changed

    def waits_for(self, node_id: int) -> bool:
        """Return True if the high watermark waits for a follower, in sync or about to join."""
        progress = self.progress.get(node_id)
        return progress is not None and any(one is progress for one in self._counting)

    def _recount(self) -> None:
        """Collect the followers whose durable ends limit the high watermark, and advance it."""
        members = self._waited_for()
        self._counting = tuple(
            progress
            for node_id, progress in self.progress.items()
            if node_id in members or progress.is_awaited
        )
        self._advance()

    def _waited_for(self) -> tuple[int, ...]:
        return self.isr.maximal

    def _advance(self) -> None:
        if self.is_under_min_isr:
            return
        end = self.durable_end
        for progress in self._counting:
            if progress.durable_end < end:
                end = progress.durable_end
        if end > self.high_watermark:
            self.high_watermark = end
