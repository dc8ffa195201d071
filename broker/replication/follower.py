"""A follower's side of replication with one leader: what to fetch, and what to do with the
response.

This module is pure. The follower has at most one request without a response. It sends the next one
when all records of the last response are fsynced. So a fetch offset is always the end of durable
records, and each request acknowledges the records below it.

Requests are incremental (KIP-227). The first one names every partition, and later ones name only
those with changes. A response to another request is ignored. A partition is left out while its log
is being opened, truncated or reset. After an error or a divergence, the leader has removed the
partition from the session, and the follower names it again.

The follower decides only by the leader's responses:

- The logs diverge (KIP-101, KIP-279): Truncate, and fetch again until they agree.
- The leader has deleted all offsets of this log: Reset, which drops the log and continues at the
  leader's log start offset.
- The end of this log is above the leader's end: wait, and never truncate. A later epoch decides.
- The epoch of this follower is older than the leader's: Drop, and wait for the metadata log.
"""

from __future__ import annotations

from broker.replication.epochs import EpochEnd, common_end
from broker.replication.fetch_session import EPOCH_MAX, FULL_EPOCH, NO_SESSION
from broker.replication.follower_lag import FollowerLag
from broker.replication.follower_steps import (
    Action,
    Append,
    Drop,
    FetchedPartition,
    FetchPlan,
    Followed,
    Key,
    PartitionId,
    Reset,
    Truncate,
)
from broker.replication.tracked import CopyPause, TrackedPartition
from broker.timers import Timers
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse, PartitionData
from protocol.types import NO_LEADER_EPOCH

BACKOFF_MIN_MS = 50
BACKOFF_MAX_MS = 1_000
"""The limits in milliseconds of the wait after a failure, which doubles after each failure in a
row."""


class LeaderFetch:
    """All partitions that are fetched from one leader over one link."""

    __slots__ = (
        "_backoff_until_ms",
        "_changed",
        "_failures",
        "_forgotten",
        "_held",
        "_in_flight",
        "_last_request_id",
        "_owed",
        "_session_epoch",
        "_session_id",
        "_timers",
        "_tracked",
    )

    def __init__(self) -> None:
        self._tracked: dict[PartitionId, TrackedPartition] = {}
        self._changed: dict[PartitionId, None] = {}
        """The partitions that the next request must name, in the order in which they were
        marked."""
        self._held: dict[PartitionId, TrackedPartition] = {}
        """The partitions in the leader's session, as they were last named."""
        self._forgotten: dict[PartitionId, None] = {}
        self._owed: dict[PartitionId, None] = {}
        """The partitions with appended records that are not fsynced yet, in order."""
        self._timers: Timers[TrackedPartition] = Timers()
        self._session_id = NO_SESSION
        self._session_epoch = FULL_EPOCH
        self._in_flight: int | None = None
        self._last_request_id = 0
        self._failures = 0
        self._backoff_until_ms: int | None = None

    def __len__(self) -> int:
        return len(self._tracked)

    def __contains__(self, key: Key) -> bool:
        return self._find(key) is not None

    @property
    def next_deadline_ms(self) -> int | None:
        """The time at which `next_fetch` can return a request without another event; None if
        never."""
        if self._in_flight is not None or self._owed:
            return None
        return self._backoff_until_ms or self._timers.next_deadline_ms

    def is_free(self, now_ms: int) -> bool:
        """Return True if a request can be sent now: no request or fsync is in progress, and the
        wait after a failure is over."""
        if self._in_flight is not None or self._owed:
            return False
        return self._backoff_until_ms is None or now_ms >= self._backoff_until_ms

    def lag_of(self, key: Key) -> FollowerLag | None:
        """Return the lag of a partition; None if it must stay on this link for now.

        It must stay if its last records are not fsynced, or if it waits for a job or after a
        failure. The result is also None if this link does not fetch the partition.
        """
        tracked = self._find(key)
        if tracked is None or tracked.is_busy or key.partition in self._owed:
            return None
        return tracked.lag

    def log_start_of(self, key: Key) -> int | None:
        """Return the log start offset that requests report; None if not fetched on this link."""
        tracked = self._find(key)
        return None if tracked is None else tracked.log_start_offset

    def follow(self, one: Followed) -> None:
        """Start fetching a partition. This replaces an older epoch of the same partition."""
        partition = one.key.partition
        self._take_out(partition)
        self._tracked[partition] = TrackedPartition(one)
        self._changed[partition] = None

    def drop(self, key: Key) -> None:
        """Stop fetching a partition. Another epoch of the partition is not affected."""
        if self._find(key) is not None:
            self._take_out(key.partition)

    def pause(self, key: Key, why: CopyPause) -> None:
        """Leave a partition out of requests until `resume` is called for every reason of the pause.

        An answer to a request that is in flight no longer applies to it.
        """
        tracked = self._find(key)
        if tracked is not None:
            tracked.pauses |= why
            self._let_go(key.partition)

    def resume(self, key: Key, why: CopyPause) -> None:
        """End a pause for one reason. If no other reason is left, the next request names the
        partition."""
        tracked = self._find(key)
        if tracked is not None and why in tracked.pauses:
            tracked.pauses &= ~why
            self._changed[key.partition] = None

    def pauses_of(self, key: Key) -> CopyPause:
        """Return the reasons why requests leave a partition out; empty if there are none."""
        tracked = self._find(key)
        return CopyPause(0) if tracked is None else tracked.pauses

    def is_failing(self, key: Key) -> bool:
        """Return True if the last attempt to fetch a partition failed, so that it waits."""
        tracked = self._find(key)
        return self._failures > 0 or (tracked is not None and tracked.timer is not None)

    def next_fetch(self, now_ms: int) -> FetchPlan | None:
        """Return the next request; None while a request or an fsync is in progress, or after a
        failure.

        The cost depends on the number of changed partitions and not of all partitions, except in a
        full request.
        """
        if not self.is_free(now_ms):
            return None
        self._backoff_until_ms = None
        for tracked in self._timers.due(now_ms):
            tracked.is_busy = False
            tracked.timer = None
            self._changed[tracked.key.partition] = None
        if self._session_epoch == FULL_EPOCH:
            self._held.clear()
            self._forgotten.clear()
            self._changed = dict.fromkeys(self._tracked)
        changed = (self._tracked[one] for one in self._changed)
        named = [tracked for tracked in changed if tracked.can_be_named]
        if not named and not self._held:
            return None
        self._changed.clear()
        for tracked in named:
            self._held[tracked.key.partition] = tracked
            self._forgotten.pop(tracked.key.partition, None)
        forgotten = tuple(self._forgotten)
        self._forgotten.clear()
        self._last_request_id += 1
        self._in_flight = self._last_request_id
        return FetchPlan(
            request_id=self._last_request_id,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            partitions=tuple(self._ask(tracked) for tracked in named),
            forgotten=forgotten,
        )

    def on_answer(self, request_id: int, answer: FetchResponse, now_ms: int) -> list[Action]:
        """Return the actions for a response, in order. A late response to an older request causes
        no actions.

        The driver performs all actions, fsyncs all appended logs together, and calls `synced` for
        each.
        """
        if request_id != self._in_flight:
            return []
        self._in_flight = None
        code = ErrorCode.of(answer.error_code)
        if code is not ErrorCode.NONE:
            self._start_over(now_ms)
            return []
        self._failures = 0
        self._go_on(answer.session_id)
        actions: list[Action] = []
        for topic in answer.responses:
            for data in topic.partitions:
                partition = PartitionId(topic.topic_id, data.partition_index)
                tracked = self._held.get(partition)
                # The partition was dropped, or followed in another epoch, after the request was
                # sent. This part of the response does not apply to it.
                if tracked is None or tracked is not self._tracked.get(partition):
                    continue
                if not tracked.is_busy:
                    action = self._judge(tracked, data, now_ms)
                    if action is not None:
                        actions.append(action)
        return actions

    def failed(self, request_id: int, now_ms: int) -> None:
        """Handle a request that gets no response, because the link ended or the request timed out.
        Start a new session."""
        if request_id == self._in_flight:
            self._in_flight = None
            self._start_over(now_ms)

    def synced(self, key: Key, end_offset: int) -> None:
        """Record that the records from an `Append` action are durable up to `end_offset`."""
        tracked = self._find(key)
        if tracked is None:
            return
        self._owed.pop(key.partition, None)
        self._at(tracked, end_offset, tracked.epochs.latest)

    def truncated(self, key: Key, end_offset: int, last_epoch: int) -> None:
        """Record that a Truncate or Reset is done and durable. `last_epoch` is the epoch of the
        last remaining batch, or -1."""
        tracked = self._find(key)
        if tracked is None:
            return
        tracked.is_busy = False
        tracked.log_start_offset = min(tracked.log_start_offset, end_offset)
        self._at(tracked, end_offset, last_epoch)

    def trimmed(self, key: Key, log_start_offset: int) -> None:
        """Record this replica's log start offset. The next request reports it to the leader."""
        tracked = self._find(key)
        if tracked is not None and tracked.log_start_offset != log_start_offset:
            tracked.log_start_offset = log_start_offset
            self._changed[key.partition] = None

    def refused(self, key: Key, now_ms: int) -> None:
        """Handle a failed append (a bad batch, a full disk). The same offset is fetched again
        later."""
        tracked = self._find(key)
        if tracked is not None:
            self._owed.pop(key.partition, None)
            self._wait(tracked, now_ms)

    def begins_below(self, key: Key, start_offset: int) -> Reset | None:
        """Handle an empty log that must begin with the leader's batch at `start_offset`. Return the
        reset that does this, or None."""
        tracked = self._find(key)
        if tracked is None:
            return None
        self._owed.pop(key.partition, None)
        self._let_go(key.partition)
        return self._reset(tracked, start_offset)

    def _judge(self, tracked: TrackedPartition, data: PartitionData, now_ms: int) -> Action | None:
        code = ErrorCode.of(data.error_code)
        if code is not ErrorCode.NONE:
            self._held.pop(tracked.key.partition)
            return self._refused_by_leader(tracked, code, data, now_ms)
        if data.diverging_epoch is not None:
            self._held.pop(tracked.key.partition)
            found = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return self._truncate(tracked, found, data.log_start_offset, now_ms)
        tracked.failures = 0
        records = data.records or b""
        tracked.lag.answered(data.high_watermark, len(records), now_ms)
        if len(records):
            self._owed[tracked.key.partition] = None
        tracked.verified_end = max(
            tracked.verified_end, min(data.high_watermark, tracked.end_offset)
        )
        return Append(tracked.key, records, data.high_watermark, data.log_start_offset)

    def _refused_by_leader(
        self, tracked: TrackedPartition, code: ErrorCode, data: PartitionData, now_ms: int
    ) -> Action | None:
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            self._take_out(tracked.key.partition)
            return Drop(tracked.key, code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and (
            data.log_start_offset > tracked.end_offset
            or (
                data.log_start_offset == tracked.end_offset
                and tracked.last_epoch != NO_LEADER_EPOCH
            )
        ):
            return self._reset(tracked, data.log_start_offset)
        # The leader's metadata is older than this broker's, its disk has a problem, or this log's
        # end is above the leader's end. None of these means that this log is wrong, so only wait.
        self._wait(tracked, now_ms)
        return None

    def _reset(self, tracked: TrackedPartition, log_start_offset: int) -> Reset:
        tracked.is_busy = True
        tracked.log_start_offset = log_start_offset
        return Reset(tracked.key, log_start_offset)

    def _truncate(
        self, tracked: TrackedPartition, leaders: EpochEnd, leaders_start: int, now_ms: int
    ) -> Action | None:
        end_offset = common_end(tracked.epochs, tracked.end_offset, leaders)
        if leaders.epoch == NO_LEADER_EPOCH or end_offset >= tracked.end_offset:
            self._wait(tracked, now_ms)
            return None
        assert end_offset >= tracked.verified_end, (
            f"{tracked.key}: {end_offset} is below the committed {tracked.verified_end}"
        )
        if end_offset <= leaders_start:
            # The leader has deleted all records that could show whether this log agrees with its
            # log.
            return self._reset(tracked, leaders_start)
        tracked.is_busy = True
        return Truncate(tracked.key, end_offset)

    def _ask(self, tracked: TrackedPartition) -> FetchedPartition:
        return FetchedPartition(
            tracked.key, tracked.end_offset, tracked.last_epoch, tracked.log_start_offset
        )

    def _at(self, tracked: TrackedPartition, end_offset: int, last_epoch: int) -> None:
        tracked.end_offset = end_offset
        tracked.last_epoch = last_epoch
        tracked.lag.reached(end_offset)
        self._changed[tracked.key.partition] = None

    def _find(self, key: Key) -> TrackedPartition | None:
        tracked = self._tracked.get(key.partition)
        return tracked if tracked is not None and tracked.key == key else None

    def _take_out(self, partition: PartitionId) -> None:
        tracked = self._tracked.pop(partition, None)
        if tracked is None:
            return
        if tracked.timer is not None:
            self._timers.cancel(tracked.timer)
        self._owed.pop(partition, None)
        self._let_go(partition)
        self._changed.pop(partition, None)

    def _let_go(self, partition: PartitionId) -> None:
        """Let the next request remove a partition from the leader's session if necessary."""
        if self._held.pop(partition, None) is not None:
            self._forgotten[partition] = None

    def _wait(self, tracked: TrackedPartition, now_ms: int) -> None:
        """Leave a partition out of requests for a while."""
        partition = tracked.key.partition
        self._let_go(partition)
        self._changed.pop(partition, None)
        tracked.is_busy = True
        tracked.timer = self._timers.add(now_ms + _backoff_ms(tracked.failures), tracked)
        tracked.failures += 1

    def _start_over(self, now_ms: int) -> None:
        self._session_id = NO_SESSION
        self._session_epoch = FULL_EPOCH
        self._backoff_until_ms = now_ms + _backoff_ms(self._failures)
        self._failures += 1

    def _go_on(self, session_id: int) -> None:
        if session_id == NO_SESSION:
            self._session_epoch = FULL_EPOCH
        elif self._session_epoch == EPOCH_MAX:
            self._session_epoch = 1
        else:
            self._session_epoch += 1
        self._session_id = session_id


def _backoff_ms(failures: int) -> int:
    return int(min(BACKOFF_MAX_MS, BACKOFF_MIN_MS << min(failures, BACKOFF_MAX_MS.bit_length())))
