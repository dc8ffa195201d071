"""A follower's side of all partitions it follows at one leader: what to fetch, what to do with it.

Floor: replication. Pure. One request is under way at a time, and the next one waits until all that
the last answer brought is synced: so a fetch offset is always a durable end, and the request that
asks for more is the acknowledgement of what came before.

Requests are incremental (KIP-227): the first names every partition, later ones only those that have
something new to say; an answer with another request's id is not looked at. What is being opened,
truncated or emptied is not asked for until the driver says that it is done. Between the two sides
this holds: after an error or a divergence the leader has put the partition out of the session, and
the follower names it anew.

Decides by the leader's answers alone:
- the log parts from the leader's (KIP-101, KIP-279): Truncate, then ask again, until it does not;
- nothing left that the leader still has: Reset, drop all and begin at its start;
- above the leader's end: never a reason to cut. Wait; a later epoch will tell;
- an older epoch than the leader's: Drop, and wait for the metadata log to say what to follow.
"""

from __future__ import annotations

from broker.replication.epochs import EpochEnd, common_end
from broker.replication.fetch_session import EPOCH_MAX, FULL_EPOCH, NO_SESSION
from broker.replication.follower_steps import (
    Action,
    Append,
    Asked,
    Drop,
    FetchPlan,
    Followed,
    Key,
    PartitionId,
    Reset,
    Truncate,
)
from broker.timers import Timer, Timers
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse, PartitionData
from protocol.types import NO_LEADER_EPOCH, NO_OFFSET

BACKOFF_MIN_MS = 50
BACKOFF_MAX_MS = 1_000
"""After each failure in a row twice as long, between these two."""


class _Tracked:
    """One followed partition."""

    __slots__ = (
        "end_offset",
        "epochs",
        "failures",
        "is_busy",
        "key",
        "last_epoch",
        "log_start_offset",
        "timer",
        "verified_end",
    )

    def __init__(self, one: Followed) -> None:
        self.key = one.key
        self.epochs = one.epochs
        self.log_start_offset = one.log_start_offset
        self.end_offset = one.end_offset
        self.last_epoch = one.epochs.latest
        self.is_busy = False
        """Something is being done to its log, or it waits out a failure."""
        self.failures = 0
        self.timer: Timer[_Tracked] | None = None
        self.verified_end = NO_OFFSET
        """What is committed by the leader of this epoch and is here: never cut within it."""


class LeaderFetch:
    """All that is followed at one leader over one link."""

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
        self._tracked: dict[PartitionId, _Tracked] = {}
        self._changed: dict[PartitionId, None] = {}
        """What the next request has to name, in the order in which it came up."""
        self._held: dict[PartitionId, _Tracked] = {}
        """What the leader's session holds, each as it was named last."""
        self._forgotten: dict[PartitionId, None] = {}
        self._owed: dict[PartitionId, None] = {}
        """What was appended and is not synced yet."""
        self._timers: Timers[_Tracked] = Timers()
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
        """When `next_fetch` may have something though nothing else happens; None: never."""
        if self._in_flight is not None or self._owed:
            return None
        return self._backoff_until_ms or self._timers.next_deadline_ms

    def follow(self, one: Followed) -> None:
        """Begin with a partition, in place of an older epoch of it if that is followed here."""
        partition = one.key.partition
        self._take_out(partition)
        self._tracked[partition] = _Tracked(one)
        self._changed[partition] = None

    def drop(self, key: Key) -> None:
        """End with a partition; one that is not followed in this epoch is left alone."""
        if self._find(key) is not None:
            self._take_out(key.partition)

    def next_fetch(self, now_ms: int) -> FetchPlan | None:
        """The next request, or None: one is under way, a sync is owed, or a failure is waited out.

        Costs what has changed, not what is followed, except in a full request.
        """
        if self._in_flight is not None or self._owed:
            return None
        if self._backoff_until_ms is not None and now_ms < self._backoff_until_ms:
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
        named = [self._tracked[one] for one in self._changed if not self._tracked[one].is_busy]
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
        """What the answer asks for, in its order. A late answer to an older request asks nothing.

        The driver does all of it, syncs all appended logs together, and calls `synced` for each.
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
                # What was dropped, or taken up in another epoch, since it was asked for is not
                # what this part of the answer speaks of.
                if tracked is None or tracked is not self._tracked.get(partition):
                    continue
                if not tracked.is_busy:
                    action = self._judge(tracked, data, now_ms)
                    if action is not None:
                        actions.append(action)
        return actions

    def failed(self, request_id: int, now_ms: int) -> None:
        """No answer will come: the link has ended, or the time is up. Then a new session."""
        if request_id == self._in_flight:
            self._in_flight = None
            self._start_over(now_ms)

    def synced(self, key: Key, end_offset: int) -> None:
        """What `on_answer` had appended is durable up to here."""
        tracked = self._find(key)
        if tracked is None:
            return
        self._owed.pop(key.partition, None)
        self._at(tracked, end_offset, tracked.epochs.latest)

    def truncated(self, key: Key, end_offset: int, last_epoch: int) -> None:
        """A Truncate or a Reset is durable; `last_epoch` is that of the last batch left, or -1."""
        tracked = self._find(key)
        if tracked is None:
            return
        tracked.is_busy = False
        tracked.log_start_offset = min(tracked.log_start_offset, end_offset)
        self._at(tracked, end_offset, last_epoch)

    def trimmed(self, key: Key, log_start_offset: int) -> None:
        """The own log begins here: the leader hears of it by the next request."""
        tracked = self._find(key)
        if tracked is not None and tracked.log_start_offset != log_start_offset:
            tracked.log_start_offset = log_start_offset
            self._changed[key.partition] = None

    def refused(self, key: Key, now_ms: int) -> None:
        """The log has not taken what was to be appended (a bad batch, a full disk): ask again
        later, from the same offset."""
        tracked = self._find(key)
        if tracked is not None:
            self._owed.pop(key.partition, None)
            self._wait(tracked, now_ms)

    def begins_below(self, key: Key, start_offset: int) -> Reset | None:
        """The log, which is empty, has to begin with a batch of the leader's that begins there."""
        tracked = self._find(key)
        if tracked is None:
            return None
        self._owed.pop(key.partition, None)
        if self._held.pop(key.partition, None) is not None:
            self._forgotten[key.partition] = None
        return self._reset(tracked, start_offset)

    def _judge(self, tracked: _Tracked, data: PartitionData, now_ms: int) -> Action | None:
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
        if len(records):
            self._owed[tracked.key.partition] = None
        tracked.verified_end = max(
            tracked.verified_end, min(data.high_watermark, tracked.end_offset)
        )
        return Append(tracked.key, records, data.high_watermark, data.log_start_offset)

    def _refused_by_leader(
        self, tracked: _Tracked, code: ErrorCode, data: PartitionData, now_ms: int
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
        # The leader has not come as far as we have in the metadata log, its disk is in trouble, or
        # our end is above its own: none of it says anything about our log.
        self._wait(tracked, now_ms)
        return None

    def _reset(self, tracked: _Tracked, log_start_offset: int) -> Reset:
        tracked.is_busy = True
        tracked.log_start_offset = log_start_offset
        return Reset(tracked.key, log_start_offset)

    def _truncate(
        self, tracked: _Tracked, leaders: EpochEnd, leaders_start: int, now_ms: int
    ) -> Action | None:
        end_offset = common_end(tracked.epochs, tracked.end_offset, leaders)
        if leaders.epoch == NO_LEADER_EPOCH or end_offset >= tracked.end_offset:
            self._wait(tracked, now_ms)
            return None
        assert end_offset >= tracked.verified_end, (
            f"{tracked.key}: {end_offset} lies below {tracked.verified_end}, which is committed"
        )
        if end_offset <= leaders_start:
            # The leader has deleted all that could tell whether what would be left is the same.
            return self._reset(tracked, leaders_start)
        tracked.is_busy = True
        return Truncate(tracked.key, end_offset)

    def _ask(self, tracked: _Tracked) -> Asked:
        return Asked(tracked.key, tracked.end_offset, tracked.last_epoch, tracked.log_start_offset)

    def _at(self, tracked: _Tracked, end_offset: int, last_epoch: int) -> None:
        tracked.end_offset = end_offset
        tracked.last_epoch = last_epoch
        self._changed[tracked.key.partition] = None

    def _find(self, key: Key) -> _Tracked | None:
        tracked = self._tracked.get(key.partition)
        return tracked if tracked is not None and tracked.key == key else None

    def _take_out(self, partition: PartitionId) -> None:
        tracked = self._tracked.pop(partition, None)
        if tracked is None:
            return
        if tracked.timer is not None:
            self._timers.cancel(tracked.timer)
        self._changed.pop(partition, None)
        self._owed.pop(partition, None)
        if self._held.pop(partition, None) is not None:
            self._forgotten[partition] = None

    def _wait(self, tracked: _Tracked, now_ms: int) -> None:
        """Leave a partition out for a while."""
        partition = tracked.key.partition
        if self._held.pop(partition, None) is not None:
            self._forgotten[partition] = None
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
