"""Runs one transaction after another: send lines, then their positions, then commit.

Full batches are sent in the open transaction at any time, unless the collector gathers (`rhythm`).
When the transaction is due, all other lines are sent too, with the positions of their files. Then a
task ends the transaction. In the meantime files are read for the next transaction. The lines of a
failed transaction are sent again, which is possible because they stay in memory until their commit.
If the result of a commit is unknown, the commit is repeated until the result is known.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from collector.config.settings import COMMIT_SHARE, RETRY_MS, STUCK_MS, TRANSACTION_TIMEOUT_MS
from collector.feeder import Feeder
from collector.send.outbox import SendBatch
from collector.send.positions import Positions, Records
from collector.send.producer import Brokers
from collector.timing.schedule import DoublingWait
from protocol.background import report_failure
from protocol.client.errors import (
    ClientClosed,
    ClientError,
    TransactionFailed,
    is_transient,
)
from protocol.client.producer import BatchMetadata
from protocol.errors import ApiError
from protocol.log import fields
from protocol.types import TopicPartition

# The first limit of the wait for one suspect queue. It is short, because all others wait for it.
TRIAL_MS = 1_000
# The limit is shorter than the coordinator's time-out for the transaction.
PATIENCE_MAX_MS = 2 * TRANSACTION_TIMEOUT_MS // 3

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Sent:
    """A batch that was sent in the open transaction."""

    batch: SendBatch
    future: "asyncio.Future[BatchMetadata]"
    is_acknowledged: bool = False


class Committer:
    """Runs the transactions of one collector, from one takeover of the instance to the next.

    `lost` is set when another producer with the same transactional id, or a time-out, has ended the
    transaction. Then the stored positions must be read again. `on_progress` is called when `step`
    can have more to do. `on_refusal` is called with the reason when a broker has refused a batch.
    """

    def __init__(
        self,
        brokers: Brokers,
        feeder: Feeder,
        positions: Positions,
        clock: Callable[[], int],
        on_progress: Callable[[], None],
        on_refusal: Callable[[Exception], None],
    ):
        self.lost: Exception | None = None
        self.refused: dict[TopicPartition, Exception] = {}
        """The outbox queues that brokers refused, by partition, each with the reason."""
        self.unclear: str | None = None
        """The reason why the result of the open transaction is unknown; None if it is known."""
        self.waiting_since_ms: int | None = None
        """The time since when a batch waits for its acknowledgement, or a commit for its answer."""
        self.unsettled_since_ms: int | None = None
        """The time since when lines wait for a commit, including the time of aborted
        transactions.
        """
        self.committed_at_ms: int | None = None
        """The time of the last commit; None before the first one."""
        self._brokers = brokers
        self._feeder = feeder
        self._outbox = feeder.outbox
        self._rhythm = feeder.rhythm
        self._positions = positions
        self._counters: Counter[str] = feeder.counters
        self._clock = clock
        self._on_progress = on_progress
        self._on_refusal = on_refusal
        self._sent: list[_Sent] = []
        self._position_futures: list[asyncio.Future[BatchMetadata]] = []
        self._is_open = False
        self._ending: asyncio.Task[None] | None = None
        self._backoff = DoublingWait(*RETRY_MS)
        self._resume_at_ms = 0
        self._failures = 0
        """The number of transactions aborted since the last commit."""

    @property
    def is_ending(self) -> bool:
        """True if a transaction is being ended, so that the next transaction must wait."""
        return self._ending is not None

    @property
    def is_idle(self) -> bool:
        """True if all lines that were read and all changed positions are committed."""
        return not self._is_open and self._outbox.is_empty and not self._positions.has_changes

    @property
    def deadline_ms(self) -> int | None:
        """The time at which `step` must be called again; None if it waits for an event."""
        if self.is_ending:
            return None
        times = (self._rhythm.deadline_ms, self._outbox.retry_at_ms)
        deadline_ms = min((time for time in times if time is not None), default=None)
        return None if deadline_ms is None else max(deadline_ms, self._resume_at_ms)

    async def step(self, now_ms: int, *, flush: bool = False) -> None:
        """Send full batches, and end the transaction if it is due or `flush` is set."""
        if self.is_ending or self.lost is not None or now_ms < self._resume_at_ms:
            return
        if self._positions.has_changes:
            self._rhythm.changed(now_ms)
        if not self._is_open:
            self._outbox.begin(now_ms)
        is_due = flush or self._rhythm.is_due(now_ms)
        is_due |= self._outbox.is_trial or self._outbox.has_given_back
        if self._rhythm.gathers:
            is_due = is_due or self._outbox.is_full
            if not is_due:
                return
        batches = self._outbox.take(everything=is_due)
        records: Records = {}
        if is_due:
            self._rhythm.cut(now_ms)
            records = self._positions.cut(now_ms, self._feeder.covers)
        if batches or records:
            await self._send(batches, now_ms)
        if is_due and self._is_open:
            await self._send_positions(records)
            self._ending = asyncio.create_task(self._end())
            self._ending.add_done_callback(self._ended)

    async def stop(self, timeout_ms: int) -> None:
        """Wait for the end of a transaction that is being ended."""
        if self._ending is not None:
            await asyncio.wait([self._ending], timeout=timeout_ms / 1000)

    # --- one transaction ----------------------------------------------------------------------

    async def _send(self, batches: list[SendBatch], now_ms: int) -> None:
        if not self._is_open:
            self._brokers.begin()
            self._is_open = True
        if self.waiting_since_ms is None:
            self.waiting_since_ms = now_ms
        if self.unsettled_since_ms is None:
            self.unsettled_since_ms = now_ms
        for batch in batches:
            try:
                future = await self._brokers.send(batch)
            except (ClientError, ApiError) as error:
                future = asyncio.get_running_loop().create_future()
                future.set_exception(error)
            sent = _Sent(batch, future)
            self._sent.append(sent)
            future.add_done_callback(partial(self._answered, sent))

    def _answered(self, sent: _Sent, done: "asyncio.Future[BatchMetadata]") -> None:
        if done.cancelled() or done.exception() is not None:
            return
        sent.is_acknowledged = True
        self._outbox.acknowledged(sent.batch)
        self._feeder.release()
        self._on_progress()

    async def _send_positions(self, records: Records) -> None:
        try:
            self._position_futures = await self._brokers.send_positions(records)
        except (ClientError, ApiError) as error:
            failed: asyncio.Future[BatchMetadata] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            self._position_futures = [failed]

    async def _end(self) -> None:
        futures = [sent.future for sent in self._sent] + self._position_futures
        patience_ms = (TRIAL_MS if self._outbox.is_trial else STUCK_MS) << min(self._failures, 4)
        if futures:
            # Stop waiting at the first failure, because it fails the whole transaction.
            await asyncio.wait(
                futures,
                timeout=min(patience_ms, PATIENCE_MAX_MS) / 1000,
                return_when=asyncio.FIRST_EXCEPTION,
            )
        if all(_is_good(future) for future in futures):
            try:
                if await self._until_clear(self._brokers.commit):
                    self._committed()
                return
            except TransactionFailed as error:
                logger.debug("transaction failed at its commit", extra=fields(reason=str(error)))
        await self._give_up(futures)

    async def _until_clear(self, ask: Callable[[int], Coroutine[Any, Any, None]]) -> bool:
        """Repeat a commit or abort until its result is known.

        Return False if the transaction was lost.
        """
        backoff = DoublingWait(*RETRY_MS)
        while True:
            try:
                await ask(STUCK_MS)
            except TransactionFailed:
                raise
            except (ClientError, ApiError) as error:
                if isinstance(error, ClientClosed) or not is_transient(error):
                    self.lost = error
                    return False
                self.unclear = f"the brokers have not ended the transaction yet: {error}"
                await asyncio.sleep(backoff.next_ms() / 1000)
            else:
                return True

    async def _give_up(self, futures: "list[asyncio.Future[BatchMetadata]]") -> None:
        """Abort the transaction, so that its lines are sent again.

        Queues that have caused the failure wait before they are sent again.
        """
        faults = self._faults()
        try:
            if not await self._until_clear(self._brokers.abort):
                return
        except TransactionFailed as error:
            self.lost = error
            return
        now_ms = self._clock()
        self._failures += 1
        self._counters["transactions_aborted"] += 1
        for sent in self._sent:
            self._outbox.given_back(sent.batch, was_acknowledged=sent.is_acknowledged)
        self._positions.given_up()
        for place, reason in faults.items():
            self._outbox.suspect(place, now_ms)
            self._counters["batches_refused"] += 1
            self.refused[place] = reason
            self._on_refusal(reason)
        if not faults:
            self._resume_at_ms = now_ms + self._backoff.next_ms()
        errors = [error for error in map(_error_of, futures) if error is not None]
        first = next((e for e in errors if not isinstance(e, TransactionFailed)), None)
        reason_text = str(first or (errors[0] if errors else "no acknowledgement in time"))
        logger.warning(
            "a transaction was aborted; its lines are sent again",
            extra=fields(reason=reason_text, suspects=len(faults)),
        )

    def _faults(self) -> dict[TopicPartition, Exception]:
        """Return the outbox queues that made the transaction fail, each with the reason.

        If no batch was refused and none acknowledged, the cause is unknown. Then all queues are
        sent again unchanged once. If that fails too, each queue is tried alone.
        """
        faults: dict[TopicPartition, Exception] = {}
        for sent in self._sent:
            error = _error_of(sent.future)
            if isinstance(error, Exception) and not isinstance(error, TransactionFailed):
                faults.setdefault(sent.batch.place, error)
        if faults:
            return faults
        silent = {sent.batch.place for sent in self._sent if not sent.is_acknowledged}
        is_one_of_many = silent != {sent.batch.place for sent in self._sent}
        if is_one_of_many or self._failures or self._outbox.is_trial:
            why = next(filter(None, map(_cause_of, self._sent)), None)
            why = why or TimeoutError("no acknowledgement in time")
            faults = dict.fromkeys(silent, why)
        return faults

    def _committed(self) -> None:
        self._counters["transactions_committed"] += 1
        self._failures = 0
        self._backoff.reset()
        self.unclear = self.unsettled_since_ms = None
        self.committed_at_ms = self._clock()
        for sent in self._sent:
            self._feeder.committed(sent.batch)
            self.refused.pop(sent.batch.place, None)
        self._positions.committed()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._sent.clear()
        self._position_futures = []
        self._is_open = False
        self._ending = None
        self.waiting_since_ms = None
        self._feeder.release()
        self._on_progress()
        report_failure(task, "ending a transaction failed")


def commit_bytes(held_bytes_max: int) -> int:
    """Return the most bytes of lines in one transaction.

    It is a part of the memory for lines, so that reading can continue during the commit.
    """
    return held_bytes_max // COMMIT_SHARE


def _cause_of(sent: _Sent) -> Exception | None:
    """Return why the transaction of this batch failed; None if that is unknown."""
    error = _error_of(sent.future)
    cause = None if error is None else error.__cause__
    return cause if isinstance(cause, Exception) else None


def _is_good(future: "asyncio.Future[BatchMetadata]") -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _error_of(future: "asyncio.Future[BatchMetadata]") -> BaseException | None:
    if not future.done() or future.cancelled():
        return None
    return future.exception()
