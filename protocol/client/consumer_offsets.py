"""Where a consumer is in each of its partitions, where it begins, and what is committed.

Floor: client. Three offsets of one partition are told apart:

    position        what is handed out next
    worked off      the position before the last call that handed something out: whoever asks for
                    more is done with what it got before, and whoever commits with what that says
    committed       what the group knows, as far as this consumer has read or written it

A partition *begins* when it is assigned: its committed offset is fetched, and where there is none
the policy says. A `seek` before that is settled overrules it.

Commits of one consumer run one after another. A commit that is retried could otherwise reach the
coordinator after a later one and move the group back. So the offsets to commit are read only when
it is the commit's turn.
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
    """The positions of one consumer. `core` is its group's, if it has one."""

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
        """The group says what is read, so that only its members may commit."""
        self._cluster = cluster
        self._settings = settings
        self._fetcher = fetcher
        self._buffer = buffer
        self._wake_member = wake_member
        self._committing = asyncio.Lock()
        """One commit at a time: what is tried again would else arrive behind a later one."""
        self._beginning: set[TopicPartition] = set()
        self._asking: asyncio.Task[_Beginnings] | None = None
        self._asked: set[TopicPartition] = set()
        """Those of which the answer to come is of use."""
        self._is_closed = False
        self._before: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}

    # --- which partitions ---------------------------------------------------------------------

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """All partitions, whether or not it is known where they begin."""
        return frozenset(self._fetcher.assignment) | self._beginning

    def begin(self, tps: Iterable[TopicPartition]) -> None:
        """Read these from where the group or the policy says, as soon as that is known."""
        self._beginning.update(tps)
        self._fetcher.wake()

    def forget(self, tps: Collection[TopicPartition]) -> None:
        """Read these no longer, and drop what was fetched of them."""
        self._fetcher.remove(tps)
        self._buffer.drop(tps)
        self._beginning.difference_update(tps)
        # When they come back, others may have read on and committed meanwhile.
        self._asked.difference_update(tps)
        for tp in tps:
            self._before.pop(tp, None)
            self._committed.pop(tp, None)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on from another offset, or from an end of the log."""
        self._beginning.discard(tp)
        self._buffer.drop((tp,))
        self._before.pop(tp, None)
        self._fetcher.add({tp: offset})

    async def close(self) -> None:
        """Stop asking; whoever waits for a beginning gets ClientClosed."""
        self._is_closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    # --- beginnings ---------------------------------------------------------------------------

    async def find_beginnings(
        self, except_for: Collection[TopicPartition], timeout_ms: int
    ) -> None:
        """Settle where partitions begin, as far as that can be known within the time.

        The question itself goes on beyond it. Raises NoCommittedOffset without a policy, what no
        repetition would change, and ClientClosed.
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
        # `close` cancels the question, which must not look as if whoever waits were cancelled.
        self._check_open()
        if not asking.done() or asking is not self._asking:
            # Not answered yet, or somebody else who waited has taken the answer already.
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
        """What the group has committed of these."""
        if self._settings.group_id is None:
            raise ValueError("a consumer without a group_id has nothing committed")
        return await fetch_offsets(
            self._cluster,
            self._settings.group_id,
            tps,
            require_stable=self._settings.isolation_level == IsolationLevel.READ_COMMITTED,
        )

    # --- positions ----------------------------------------------------------------------------

    def handed_out(self, tp: TopicPartition, offset: int) -> None:
        """Records from this offset on are now being worked on."""
        self._before.setdefault(tp, offset)

    def all_worked_off(self) -> None:
        """Whoever reads asks for more."""
        self._before.clear()

    def position_now(self, tp: TopicPartition) -> int | None:
        """What is handed out next, as far as it is known."""
        if tp in self._beginning:
            return None
        offset = self._buffer.next_offset(tp)
        if offset is None:
            offset = self._fetcher.position(tp)
        return offset if offset >= 0 else None

    async def position(self, tp: TopicPartition) -> int:
        """What is handed out next, looked up until it is known; raises what has stopped that.

        Raises ValueError for a partition that is not, or no longer, the consumer's.
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
        """The positions of all partitions of which one is known."""
        known = {tp: self.position_now(tp) for tp in self._fetcher.assignment}
        return {tp: offset for tp, offset in known.items() if offset is not None}

    def worked_off(self) -> dict[TopicPartition, int]:
        """The same, without what is still being worked on."""
        return self.positions_known() | {
            tp: offset for tp, offset in self._before.items() if tp not in self._beginning
        }

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAt | None]:
        """The first offset at or after each time, or an end of the log; None where there is none.

        Raises the first partition's ApiError.
        """
        found = await list_offsets(
            self._cluster, timestamps, isolation_level=self._settings.isolation_level
        )
        for tp, at in found.items():
            if at.error:
                raise ApiError(at.error, f"offset of {tp} by time: {at.error.description}")
        return {tp: at if at.offset >= 0 else None for tp, at in found.items()}

    async def ends(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets of the logs' ends."""
        found = await self.offsets_for_times(timestamps)
        return {tp: at.offset for tp, at in found.items() if at is not None}

    # --- commits ------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Commit as what this consumer is: a member, or somebody beside the group.

        A member commits nothing of a partition that it does not read: its generation would let it,
        though whoever reads the partition by now may have committed more. A commit that is tried
        again keeps those behind it waiting.
        """
        async with self._committing:
            await self._commit(offsets)

    async def _commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        if self._settings.group_id is None:
            raise ValueError("a consumer without a group_id cannot commit")
        if not offsets:
            return
        membership = self.core.membership if self.core is not None else None
        if membership is None:
            if self.is_subscribed:
                # Committing beside the group would be taken if all its members are gone.
                raise ApiError(ErrorCode.ILLEGAL_GENERATION, "not a member of the group just now")
            membership = NO_MEMBERSHIP
        elif self.is_subscribed and (others := offsets.keys() - self.assigned):
            names = ", ".join(sorted(map(str, others)))
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"not assigned to this member: {names}")
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
                # A member that was thrown out sends no heartbeat that would tell it.
                self._wake_member()
            raise
        for tp, at in whole.items():
            self._committed[tp] = at.offset
            # Whoever commits is done with it before asking for more.
            if tp in self._before:
                self._before[tp] = max(self._before[tp], at.offset)

    async def commit_quietly(self, offsets: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Commit what is not committed yet; a failure is logged, and what it cost is read again.

        `offsets` is asked when no other commit is under way, which may have committed more.
        """
        try:
            async with self._committing:
                committed = self._committed
                await self._commit(
                    {tp: at for tp, at in offsets().items() if committed.get(tp) != at}
                )
        except (ApiError, ClientError) as error:
            logger.warning(
                "offsets not committed", extra=fields(group=self._settings.group_id, error=error)
            )

    async def commit_now_and_then(self) -> None:
        """The background of `auto_commit`."""
        while True:
            await asyncio.sleep(self._settings.auto_commit_interval_ms / 1000)
            await self.commit_quietly(self.worked_off)
