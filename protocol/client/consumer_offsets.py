"""A consumer's positions, start offsets and committed offsets.

Each partition has three offsets:

    position        the offset of the record that is returned next
    worked off      the position before the last call that returned records. The caller has finished
                    the records below it, because it asked for more or committed.
    committed       the group's committed offset, as far as this consumer has read or written it

A partition *begins* when it is assigned: its committed offset is fetched, and if there is none, the
setting `offset_reset` decides. A `seek` before that overrides both.

Commits of one consumer run one after another. A commit that is retried could otherwise reach the
coordinator after a later one and move the group back. The offsets to commit are read only when no
other commit is under way.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from protocol.client.admin_types import OffsetAt
from protocol.client.cluster import Cluster
from protocol.client.consumer_settings import ConsumerSettings, OffsetReset
from protocol.client.errors import ClientClosed, ClientError, NoCommittedOffset, is_transient
from protocol.client.fetch_core import IsolationLevel
from protocol.client.fetcher import Fetcher
from protocol.client.group import (
    NO_MEMBERSHIP,
    OffsetAndMetadata,
    commit_offsets,
    fetch_offsets,
)
from protocol.client.group_core import GroupCore
from protocol.client.offsets_by_time import list_offsets
from protocol.client.record_buffer import RecordBuffer
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

_RESET_TO = {OffsetReset.EARLIEST: EARLIEST_TIMESTAMP, OffsetReset.LATEST: LATEST_TIMESTAMP}

logger = logging.getLogger(__name__)

_Beginnings = dict[TopicPartition, OffsetAndMetadata | None]


class ConsumerOffsets:
    """The positions of one consumer. `core` is its membership; None without a group."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        fetcher: Fetcher,
        buffer: RecordBuffer,
        core: GroupCore | None,
        wake_member: Callable[[], None],
    ) -> None:
        self.core = core
        self.is_subscribed = False
        """True if the group assigns the partitions. Then only members may commit."""
        self._cluster = cluster
        self._settings = settings
        self._fetcher = fetcher
        self._buffer = buffer
        self._wake_member = wake_member
        self._committing = asyncio.Lock()
        """A lock for commits. A repeated commit could otherwise arrive after a later commit."""
        self._beginning: set[TopicPartition] = set()
        self._asking: asyncio.Task[_Beginnings] | None = None
        self._asked: set[TopicPartition] = set()
        """The partitions whose committed offset is still being requested."""
        self._is_closed = False
        self._before: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}

    # --- which partitions ---------------------------------------------------------------------

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer reads, including those whose start offset is not known
        yet."""
        return frozenset(self._fetcher.assignment) | self._beginning

    def begin(self, tps: Iterable[TopicPartition]) -> None:
        """Read these partitions as soon as their start offset is known.

        The start offset is the group's committed offset. If there is none, `offset_reset` decides.
        """
        self._beginning.update(tps)
        self._fetcher.wake()

    def forget(self, tps: Collection[TopicPartition]) -> None:
        """Stop reading these partitions, and drop their fetched records."""
        self._fetcher.remove(tps)
        self._buffer.drop(tps)
        self._beginning.difference_update(tps)
        # When the partitions come back, other members can have committed in the meantime, so their
        # offsets must be queried again.
        self._asked.difference_update(tps)
        for tp in tps:
            self._before.pop(tp, None)
            self._committed.pop(tp, None)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue at another offset, or at an end of the log."""
        self._beginning.discard(tp)
        self._buffer.drop((tp,))
        self._before.pop(tp, None)
        self._fetcher.add({tp: offset})

    async def close(self) -> None:
        """Close the object. Calls that wait for a start offset raise ClientClosed."""
        self._is_closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    # --- start offsets ------------------------------------------------------------------------

    async def find_beginnings(
        self, except_for: Collection[TopicPartition], timeout_ms: int
    ) -> None:
        """Find the start offsets of partitions, as far as possible within `timeout_ms`.

        The query continues after that time. Raises NoCommittedOffset if a partition has no
        committed offset and `offset_reset` is none, permanent errors, and ClientClosed.
        """
        self._check_open()
        wanted = self._beginning.difference(except_for)
        if not wanted:
            return
        if self._asking is None:
            if self._settings.group_id is None:
                self._settle(dict.fromkeys(wanted))
                return
            self._asked = set(wanted)
            self._asking = asyncio.create_task(self.committed(wanted))
            self._asking.add_done_callback(lambda _: self._fetcher.wake())
        asking = self._asking
        await asyncio.wait((asking,), timeout=timeout_ms / 1000)
        # `close` cancels the query. Raise the reason, so that the caller does not get a
        # CancelledError.
        self._check_open()
        if not asking.done() or asking is not self._asking:
            # There is no answer yet, or another waiting call has taken the answer.
            return
        self._asking = None
        try:
            found = asking.result()
        except (ApiError, ClientError) as error:
            if not is_transient(error):
                raise
            return
        self._settle({tp: at for tp, at in found.items() if tp in self._asked})

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer was closed")

    def _settle(self, found: _Beginnings) -> None:
        policy = OffsetReset(self._settings.offset_reset)
        for tp, committed in found.items():
            if tp not in self._beginning:
                continue
            if committed is not None:
                self._committed[tp] = committed.offset
                offset = committed.offset
            elif policy is OffsetReset.NONE:
                raise NoCommittedOffset(tp)
            else:
                offset = _RESET_TO[policy]
            self._beginning.discard(tp)
            self._fetcher.add({tp: offset})

    async def committed(self, tps: Collection[TopicPartition]) -> _Beginnings:
        """Return the group's committed offsets."""
        if self._settings.group_id is None:
            raise ValueError("this consumer has no group_id, so it has no committed offsets")
        return await fetch_offsets(
            self._cluster,
            self._settings.group_id,
            tps,
            require_stable=self._settings.isolation_level == IsolationLevel.READ_COMMITTED,
        )

    # --- positions ----------------------------------------------------------------------------

    def handed_out(self, tp: TopicPartition, offset: int) -> None:
        """Remember that the caller now processes the records from this offset on."""
        self._before.setdefault(tp, offset)

    def all_worked_off(self) -> None:
        """Remember that the caller has finished all earlier records, because it asks for more."""
        self._before.clear()

    def position_now(self, tp: TopicPartition) -> int | None:
        """Return the offset of the next record to be returned; None if it is not known."""
        if tp in self._beginning:
            return None
        offset = self._buffer.next_offset(tp)
        if offset is None:
            offset = self._fetcher.position(tp)
        return offset if offset >= 0 else None

    async def position(self, tp: TopicPartition) -> int:
        """Return the offset of the next record to be returned. Look it up until it is known.

        Raises the error that stopped the partition, and ValueError for a partition that is not
        assigned.
        """
        backoff = self._cluster.new_backoff()
        while True:
            if tp not in self.assigned:
                raise ValueError(f"{tp} is not assigned to this consumer")
            if (offset := self.position_now(tp)) is not None:
                return offset
            if (failure := self._fetcher.failure(tp)) is not None:
                raise failure
            if backoff.failures > 1:
                await asyncio.sleep(backoff.next_ms() / 1000)
            backoff.next_ms()
            await self.find_beginnings(self._beginning - {tp}, self._cluster.request_timeout_ms)
            if tp not in self._beginning:
                await self._fetcher.look_up_offsets()

    def positions_known(self) -> dict[TopicPartition, int]:
        """Return all known positions."""
        known = {tp: self.position_now(tp) for tp in self._fetcher.assignment}
        return {tp: offset for tp, offset in known.items() if offset is not None}

    def worked_off(self) -> dict[TopicPartition, int]:
        """Return all known positions, without records that are still being processed."""
        return self.positions_known() | {
            tp: offset for tp, offset in self._before.items() if tp not in self._beginning
        }

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAt | None]:
        """Return for each partition the first offset at or after a time, or an end of the log.

        The offset is None if no record is that recent. Raises the first partition's ApiError.
        """
        found = await list_offsets(
            self._cluster, timestamps, isolation_level=self._settings.isolation_level
        )
        for tp, at in found.items():
            if at.error:
                why = at.error.description
                raise ApiError(at.error, f"{tp}: its offset cannot be looked up by time: {why}")
        return {tp: at if at.offset >= 0 else None for tp, at in found.items()}

    async def ends(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets of the starts or ends of logs."""
        found = await self.offsets_for_times(timestamps)
        return {tp: at.offset for tp, at in found.items() if at is not None}

    # --- commits ------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Commit offsets as a member, or for a group without members.

        A member commits only partitions that it reads. The coordinator would accept other
        partitions too, but their present owner can have committed more. Later commits wait for a
        commit that is repeated.
        """
        async with self._committing:
            await self._commit(offsets)

    async def _commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        if self._settings.group_id is None:
            raise ValueError("this consumer has no group_id, so it cannot commit offsets")
        if not offsets:
            return
        membership = self.core.membership if self.core is not None else None
        if membership is None:
            if self.is_subscribed:
                # A commit without membership would be accepted if the group has no members left.
                raise ApiError(
                    ErrorCode.ILLEGAL_GENERATION,
                    "nothing was committed, because this consumer is not a member of its group at"
                    " present; poll again to rejoin it, and expect uncommitted records once more",
                )
            membership = NO_MEMBERSHIP
        elif self.is_subscribed and (others := offsets.keys() - self.assigned):
            names = ", ".join(sorted(map(str, others)))
            raise ApiError(
                ErrorCode.ILLEGAL_GENERATION,
                "nothing was committed, because these partitions are not assigned to this member:"
                f" {names}",
            )
        whole = {
            tp: at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(at)
            for tp, at in offsets.items()
        }
        try:
            await commit_offsets(
                self._cluster, self._settings.group_id, whole, membership=membership
            )
        except ApiError as error:
            if self.core is not None:
                self.core.on_commit_refused(membership, error.code)
                # A member that was removed sends no heartbeats, so only this error shows the
                # removal.
                self._wake_member()
            raise
        for tp, at in whole.items():
            self._committed[tp] = at.offset
            # A caller that commits has finished these records, even before it asks for more.
            if tp in self._before:
                self._before[tp] = max(self._before[tp], at.offset)

    async def commit_quietly(self, offsets: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Commit changed offsets. A failure is only logged; after it, records can be read again.

        `offsets` is called when no other commit is under way, so its result includes what an
        earlier commit has changed.
        """
        try:
            async with self._committing:
                committed = self._committed
                await self._commit(
                    {tp: at for tp, at in offsets().items() if committed.get(tp) != at}
                )
        except (ApiError, ClientError) as error:
            logger.warning(
                "offsets were not committed, so records can be read again after a restart",
                extra=fields(group=self._settings.group_id, error=error),
            )

    async def commit_now_and_then(self) -> None:
        """Commit at regular intervals, for `auto_commit`."""
        while True:
            await asyncio.sleep(self._settings.auto_commit_interval_ms / 1000)
            await self.commit_quietly(self.worked_off)
