"""The group coordinator's driver: members' requests answered, generations stored, time kept.

Floor: shards. What groups decide comes as effects out of their shard and is done in order: an
answer goes to whoever waits for it, a generation is written and the group told when it is
committed. A waiting request is kept as the function that answers it.
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
from broker.coordinators.expiry import Doomed
from broker.coordinators.group_records import decode_offset_key
from broker.coordinators.group_terms import Answer, GroupLimits, Moment, Store
from broker.coordinators.offsets import GroupShard
from broker.coordinators.outcome import CoordinatorRecord, Outcome, fitting
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
"""What a group says of who is in it. FENCED_INSTANCE_ID and the last two end a consumer; the others
have it give up what it has."""


class GroupCoordinator(CoordinatorDriver[GroupShard]):
    """All groups of this broker."""

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
        """Topics that were removed while a shard was being loaded."""

    def moment(self) -> Moment:
        """The time as groups want it."""
        clock = self._ports.clock
        return Moment(clock.monotonic_ms(), clock.now_ms())

    def topic_with(self, topic: str, index: int) -> Uuid | None:
        """The id of the topic, if offsets of this partition may be committed."""
        known = self._ports.image().topics.get(topic)
        return known.topic_id if known is not None and 0 <= index < len(known.partitions) else None

    def find(self, key: str) -> LoadedShard[GroupShard]:
        """Where a group's facts lie; refuses while that is loading, or is not here."""
        if self._is_stopping:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return super().find(key)

    def told(self, refusal: ErrorCode) -> ErrorCode:
        """The same of what is said of members; the rest is no harm, and none when it is NONE."""
        return super().told(refusal) if refusal in OF_A_MEMBER else refusal

    # Coming and going of shards.

    def on_loaded(self, loaded: LoadedShard[GroupShard], shard: GroupShard) -> None:
        """Members of before have one session time-out to be heard of.

        A committed offset is stored with the id of its topic. Offsets of a topic that was removed
        and created again under the same name are dropped here, because at the removal possibly no
        coordinator had this shard loaded.
        """
        shard.loaded(self.moment())
        self.perform(loaded)
        topics = self._ports.image().topics

        def topic_id_of(topic: str) -> Uuid | None:
            known = topics.get(topic)
            return None if known is None else known.topic_id

        # What a topic left behind that was removed while this was not loaded, or before a crash.
        records = shard.strange(topic_id_of)
        # Nothing has been committed since: who has made the topic again begins without offsets.
        records += shard.of_topics(self._removed_unseen.pop(loaded, set()))
        self._forget_removed(loaded, shard, records)

    def on_dropped(self, loaded: LoadedShard[GroupShard]) -> None:
        """Members that wait in a shard that goes are sent to look elsewhere."""
        self._removed_unseen.pop(loaded, None)
        if loaded.shard is not None:
            loaded.shard.members.unload(self.moment())
            self.perform(loaded)

    def stop(self) -> None:
        """The broker stops: nobody waits here any longer, and nobody new may begin to."""
        self._is_stopping = True
        for loaded, _ in self.loaded():
            self.on_dropped(loaded)

    # Effects and time.

    def perform(self, loaded: LoadedShard[GroupShard]) -> None:
        """Do what the groups of a shard want done; to be called after every request to one."""
        shard = loaded.shard
        assert shard is not None
        outbox = shard.members.outbox
        while outbox:
            effect = outbox.popleft()
            if isinstance(effect, Answer):
                reply = effect.reply
                if (code := self.told(reply.error)) is not reply.error:
                    reply = replace(reply, error=code)
                cast(Callable[[Any], None], effect.token)(reply)
            else:
                self._store(loaded, shard, effect)
        deadline_ms = shard.members.timers.next_deadline_ms
        if deadline_ms is not None:
            self._alarm.wake_by(deadline_ms)

    def _store(self, loaded: LoadedShard[GroupShard], shard: GroupShard, store: Store) -> None:
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
            # Larger than a batch may be: trying again would not help.
            is_hopeless = error.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            code = (
                ErrorCode.UNKNOWN_SERVER_ERROR
                if is_hopeless
                else ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
            store.group.stored(store, code, self.moment())
            self.perform(loaded)

        try:
            self.submit_own(loaded, Outcome([store.record], None), committed)
        except ApiError as error:
            refused(error)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_time` is wanted next, by the monotonic clock."""
        deadlines = (shard.members.timers.next_deadline_ms for shard in self.shards())
        return min((one for one in deadlines if one is not None), default=None)

    def on_time(self, now_ms: int) -> None:
        """End the sessions and the waits whose time is up."""
        for loaded, shard in self.loaded():
            deadline_ms = shard.members.timers.next_deadline_ms
            if deadline_ms is not None and deadline_ms <= now_ms:
                shard.members.ring(self.moment())
                self.perform(loaded)

    # Forgetting.

    def expire(self, now_ms: int) -> None:
        """Write tombstones for the offsets and groups whose time is over at this date."""
        self._ages.look(now_ms, self._ports.clock.monotonic_ms())
        for loaded, shard in self.loaded():
            self._expire_some(loaded, shard, deque(shard.expiry.due(now_ms)), now_ms)

    def _expire_some(
        self, loaded: LoadedShard[GroupShard], shard: GroupShard, doomed: deque[Doomed], now_ms: int
    ) -> None:
        """As many as one batch holds, and when that is committed the next."""
        if not doomed or not self.serves(loaded):
            return
        count = fitting((len(one.key) for one in doomed), loaded.batch_bytes_max)
        records = shard.expiry.tombstones([doomed.popleft() for _ in range(count)], now_ms)
        # What is being committed anew has its time before it.
        busy = loaded.keys_under_way()

        def committed() -> None:
            self._ports.soon(self._expire_some, loaded, shard, doomed, now_ms)

        outcome = Outcome([one for one in records if one.key not in busy], None)
        try:
            self.submit_own(loaded, outcome, committed)
        except ApiError as error:
            _not_forgotten(error)

    def topics_removed(self, names: Collection[str]) -> None:
        """Write tombstones for the offsets of topics that are gone, also those on their way."""
        for loaded in self._shards.values():
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
        """Write tombstones for what removed topics leave behind. It is void at once, whatever
        becomes of them: a new topic of the name must begin without offsets."""
        shard.void(records, loaded.replica.log.log_end_offset)
        self._forget(loaded, records)

    def retry(self) -> None:
        """Try again to write the tombstones of removed topics that a full disk has refused."""
        for loaded, shard in self.loaded():
            voided = shard.voided()
            if voided:
                busy = loaded.keys_under_way()
                self._forget(loaded, [one for one in voided if one.key not in busy])

    def _forget(self, loaded: LoadedShard[GroupShard], records: list[CoordinatorRecord]) -> None:
        """Write tombstones that nobody waits for."""
        try:
            for batch in self._batches(loaded, records):
                self.submit_own(loaded, Outcome(batch, None), lambda: None)
        except ApiError as error:
            _not_forgotten(error)

    def submit_tombstones(
        self,
        loaded: LoadedShard[GroupShard],
        outcome: Outcome[Any],
        reply: Reply,
        refused: Refused,
    ) -> None:
        """Append tombstones in as many batches as they take; `reply` comes when the last one is
        committed. What follows a refused batch is not written."""
        *batches, last = self._batches(loaded, outcome.records)
        try:
            for batch in batches:
                self.submit_own(loaded, Outcome(batch, None), lambda: None)
            self.submit(loaded, Outcome(last, outcome.reply), reply, refused)
        except ApiError as error:
            refused(error)

    def _batches(
        self, loaded: LoadedShard[GroupShard], records: Sequence[CoordinatorRecord]
    ) -> Iterator[Sequence[CoordinatorRecord]]:
        """Tombstones in as many batches as they take; at least one, if an empty one."""
        while True:
            count = fitting((len(one.key) for one in records), loaded.batch_bytes_max)
            yield records[:count]
            records = records[count:]
            if not records:
                return


def _not_forgotten(error: ApiError) -> None:
    logger.warning("offsets could not be removed", extra=fields(error=error))
