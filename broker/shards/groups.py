"""Runs the group coordinator: it answers members' requests, stores generations and calls the groups
at their deadlines.

The groups of a shard return effects, which are performed in order. An answer goes to the request
that waits for it. A generation is appended, and the group is notified when it is committed. A
waiting request is kept as the function that answers it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, cast

from broker.alarm import Alarm
from broker.config import InForce
from broker.coordinators.ages import Ages
from broker.coordinators.expiry import ExpiredKey
from broker.coordinators.group_records import decode_offset_key
from broker.coordinators.group_terms import GroupAnswer, GroupLimits, Moment, StoreGroup
from broker.coordinators.offsets import GroupShard
from broker.coordinators.outcome import CoordinatorRecord, ShardOutcome, fitting
from broker.metadata.image import OFFSETS_TOPIC
from broker.metrics.warnings import Warnings
from broker.shards.loaded_shard import LoadedShard, Refused, Reply, ShardPorts
from broker.shards.shard_driver import CoordinatorDriver
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.types import Uuid

logger = logging.getLogger(__name__)

OF_A_MEMBER = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
)
"""The error codes about members.

FENCED_INSTANCE_ID and the last two codes stop a consumer. The other codes make it give up its
partitions.
"""


class GroupCoordinator(CoordinatorDriver[GroupShard]):
    """The groups whose coordinator is this broker."""

    def __init__(
        self,
        ports: ShardPorts,
        settings: InForce,
        alarm: Alarm,
        chance: Random,
        warnings: Warnings,
    ) -> None:
        self._alarm = alarm
        self._warnings = warnings
        self._ages = Ages(ports.clock.now_ms(), ports.clock.monotonic_ms())
        config = settings.config
        limits = GroupLimits(
            config.group_initial_rebalance_delay_ms,
            config.group_max_size,
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.max_shard_groups,
            config.max_group_pending_members,
            config.max_member_protocols_bytes,
        )
        super().__init__(
            ports,
            OFFSETS_TOPIC,
            lambda: GroupShard(
                limits,
                config.offset_metadata_max_bytes,
                config.offsets_retention_minutes * 60_000,
                chance,
                self._ages,
            ),
            "committed offsets cannot be loaded",
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        )
        self._is_stopping = False
        self._removed_unseen: dict[LoadedShard[GroupShard], set[str]] = {}
        """The topics that were removed while a shard was being loaded, for each such shard."""

    def moment(self) -> Moment:
        """Return the time in the form that groups use."""
        clock = self.ports.clock
        return Moment(clock.monotonic_ms(), clock.now_ms())

    def topic_with(self, topic: str, index: int) -> Uuid | None:
        """Return the id of the topic if the partition exists; None otherwise.

        Offsets of a missing partition may not be committed.
        """
        known = self.ports.metadata.image.topics.get(topic)
        return known.topic_id if known is not None and 0 <= index < len(known.partitions) else None

    def find(self, key: str) -> LoadedShard[GroupShard]:
        """Return the shard of a group.

        Raises ApiError while the shard is loading, or if this broker does not lead the shard's
        partition.
        """
        if self._is_stopping:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return super().find(key)

    def told(self, refusal: ErrorCode) -> ErrorCode:
        """Return the error code to send to a client, by the rule of `CoordinatorDriver.told`.

        The rule is applied only to errors about members. Other errors do no harm, even if this
        broker was deposed.
        """
        return super().told(refusal) if refusal in OF_A_MEMBER else refusal

    # Load and drop shards.

    def on_loaded(self, loaded: LoadedShard[GroupShard], shard: GroupShard) -> None:
        """Start the groups of a loaded shard. Their members have one session timeout to send a
        heartbeat.

        A committed offset is stored with the id of its topic. If a topic was removed and created
        again under the same name, this method drops the old offsets, because possibly no
        coordinator had this shard loaded when the topic was removed.
        """
        shard.loaded(self.moment())
        self.perform(loaded)
        topics = self.ports.metadata.image.topics

        def topic_id_of(topic: str) -> Uuid | None:
            known = topics.get(topic)
            return None if known is None else known.topic_id

        # These offsets belong to topics that were removed while this shard was not loaded, or
        # before a crash.
        records = shard.strange(topic_id_of)
        # No offsets have been committed since these topics were removed, so drop their offsets by
        # name. A new topic of the same name must start without offsets.
        records += shard.of_topics(self._removed_unseen.pop(loaded, set()))
        self._forget_removed(loaded, shard, records)

    def on_dropped(self, loaded: LoadedShard[GroupShard]) -> None:
        """Answer the members that wait in a dropped shard with an error, so that they look for
        another coordinator."""
        self._removed_unseen.pop(loaded, None)
        if loaded.shard is not None:
            loaded.shard.members.unload(self.moment())
            self.perform(loaded)

    def stop(self) -> None:
        """Answer all waiting members, and accept no new members, because the broker stops."""
        self._is_stopping = True
        for loaded, _ in self.loaded():
            self.on_dropped(loaded)

    # Effects and deadlines.

    def perform(self, loaded: LoadedShard[GroupShard]) -> None:
        """Perform the effects of a shard's groups.

        The caller does this after every request to a group.
        """
        shard = loaded.shard
        assert shard is not None
        outbox = shard.members.outbox
        while outbox:
            effect = outbox.popleft()
            if isinstance(effect, GroupAnswer):
                reply = effect.reply
                if (code := self.told(reply.error)) is not reply.error:
                    reply = replace(reply, error=code)
                cast(Callable[[Any], None], effect.token)(reply)
            else:
                self._store(loaded, shard, effect)
        deadline_ms = shard.members.timers.next_deadline_ms
        if deadline_ms is not None:
            self._alarm.wake_by(deadline_ms)

    def _store(self, loaded: LoadedShard[GroupShard], shard: GroupShard, store: StoreGroup) -> None:
        def committed() -> None:
            store.group.stored(store, ErrorCode.NONE, self.moment())
            self.perform(loaded)

        def refused(error: ApiError) -> None:
            self._warnings.warn(
                logger,
                "a group's generation could not be stored",
                group=store.group.group_id,
                error=error,
            )
            # The record is too large for a batch, so a retry would not help.
            is_hopeless = error.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            code = (
                ErrorCode.UNKNOWN_SERVER_ERROR
                if is_hopeless
                else ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
            store.group.stored(store, code, self.moment())
            self.perform(loaded)

        try:
            self.submit_own(loaded, ShardOutcome([store.record], None), committed)
        except ApiError as error:
            refused(error)

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the time on the monotonic clock at which the caller must call `on_time`."""
        deadlines = (shard.members.timers.next_deadline_ms for shard in self.shards())
        return min((one for one in deadlines if one is not None), default=None)

    def on_time(self, now_ms: int) -> None:
        """End the sessions and the waits whose deadlines have come."""
        for loaded, shard in self.loaded():
            deadline_ms = shard.members.timers.next_deadline_ms
            if deadline_ms is not None and deadline_ms <= now_ms:
                shard.members.ring(self.moment())
                self.perform(loaded)

    def rights_changed(self) -> None:
        """Remove the members that no longer have the right to be in their group, because the ACLs
        have changed."""
        for loaded, shard in self.loaded():
            shard.members.rights_changed(self.moment())
            self.perform(loaded)

    # Delete offsets and groups.

    def expire(self, now_ms: int) -> None:
        """Write tombstones for the offsets and groups that have expired at this date."""
        self._ages.look(now_ms, self.ports.clock.monotonic_ms())
        for loaded, shard in self.loaded():
            self._expire_some(loaded, shard, deque(shard.expiry.due(now_ms)), now_ms)

    def _expire_some(
        self,
        loaded: LoadedShard[GroupShard],
        shard: GroupShard,
        doomed: deque[ExpiredKey],
        now_ms: int,
    ) -> None:
        """Write tombstones, one batch at a time.

        The next batch is written when the last one is committed.
        """
        if not doomed or not self.serves(loaded):
            return
        count = fitting((len(one.key) for one in doomed), loaded.batch_bytes_max)
        records = shard.expiry.tombstones([doomed.popleft() for _ in range(count)], now_ms)
        # A key that is being committed again has not expired.
        busy = loaded.keys_under_way()

        def committed() -> None:
            self.ports.soon(self._expire_some, loaded, shard, doomed, now_ms)

        outcome = ShardOutcome([one for one in records if one.key not in busy], None)
        try:
            self.submit_own(loaded, outcome, committed)
        except ApiError as error:
            _not_forgotten(error)

    def topics_removed(self, names: Collection[str]) -> None:
        """Write tombstones for the offsets of removed topics, including offsets that are being
        written.
        """
        for loaded in self.by_index.values():
            if loaded.shard is None:
                self._removed_unseen.setdefault(loaded, set()).update(names)
        for loaded, shard in self.loaded():
            coming = [
                CoordinatorRecord(key, None)
                for key in loaded.keys_under_way()
                if (name := decode_offset_key(key)) is not None and name.topic in names
            ]
            self._forget_removed(loaded, shard, shard.of_topics(names) + coming)

    def _forget_removed(
        self, loaded: LoadedShard[GroupShard], shard: GroupShard, records: list[CoordinatorRecord]
    ) -> None:
        """Drop the offsets of removed topics and write their tombstones.

        The offsets are dropped even if the tombstones cannot be written, because a new topic of the
        same name must start without offsets.
        """
        shard.void(records, loaded.replica.log.log_end_offset)
        self._forget(loaded, records)

    def retry(self) -> None:
        """Write the tombstones of removed topics that could not be written to a full disk
        before."""
        for loaded, shard in self.loaded():
            voided = shard.voided()
            if voided:
                busy = loaded.keys_under_way()
                self._forget(loaded, [one for one in voided if one.key not in busy])

    def _forget(self, loaded: LoadedShard[GroupShard], records: list[CoordinatorRecord]) -> None:
        """Write tombstones that no request waits for."""
        try:
            for batch in self._batches(loaded, records):
                self.submit_own(loaded, ShardOutcome(batch, None), lambda: None)
        except ApiError as error:
            _not_forgotten(error)

    def submit_tombstones(
        self,
        loaded: LoadedShard[GroupShard],
        outcome: ShardOutcome[Any],
        reply: Reply,
        refused: Refused,
    ) -> None:
        """Append tombstones in as many batches as needed. `reply` is called when the last one is
        committed.

        Batches after a rejected one are not written.
        """
        *batches, last = self._batches(loaded, outcome.records)
        try:
            for batch in batches:
                self.submit_own(loaded, ShardOutcome(batch, None), lambda: None)
            self.submit(loaded, ShardOutcome(last, outcome.reply), reply, refused)
        except ApiError as error:
            refused(error)

    def _batches(
        self, loaded: LoadedShard[GroupShard], records: Sequence[CoordinatorRecord]
    ) -> Iterator[Sequence[CoordinatorRecord]]:
        """Yield tombstones in as many batches as needed; at least one, possibly empty."""
        while True:
            count = fitting((len(one.key) for one in records), loaded.batch_bytes_max)
            yield records[:count]
            records = records[count:]
            if not records:
                return


def _not_forgotten(error: ApiError) -> None:
    logger.warning(
        "cannot write the tombstones of expired or removed offsets; they are written later",
        extra=fields(error=error),
    )
