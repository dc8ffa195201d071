"""The collector's main loop: scan the folders, read files, send their lines and commit them.

Only `process` is above this module. The agent passes the time to all other parts. It starts in this
order: find the cluster, create missing topics, take over the instance with its stored positions,
and scan once to match files with positions. Only then does it read the first byte. A fenced agent
repeats these steps and keeps its open files, unless another collector uses the same instance.
"""

import asyncio
import logging
import random
import socket
import uuid
from collections.abc import Coroutine
from typing import Any

from collector.committer import Committer, commit_bytes
from collector.config.input_section import LINE_BYTES_MIN
from collector.config.reloading import Reloading
from collector.config.settings import STOP_DEADLINE_MS, CollectorSettings, CollectorUpdate
from collector.descriptors import room_for
from collector.feeder import Feeder
from collector.identity.generation import Generation
from collector.identity.handles import Handles
from collector.identity.registry import Registry
from collector.ingested import Ingested
from collector.lookout import Lookout
from collector.read.reader import Reader
from collector.reporting import Reporting
from collector.send.addresses import Addresses
from collector.send.lag_watch import LagWatch
from collector.send.outbox import SendQueues
from collector.send.positions import Positions
from collector.send.producer import Brokers
from collector.send.rights import NotAllowed, transactional_id_of
from collector.send.tenure import Tenure, first_wait_ms, start_wait
from collector.send.topic_maker import TopicMaker
from collector.timing.clock import ForwardClock
from collector.timing.rate import Rate
from collector.timing.rhythm import Rhythm
from protocol.client.errors import ClientError
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.status import PartState, Problem
from protocol.units import format_moment_ms

RATE_TICK_MS = 250
IDLE_MS = 1_000
CLOSE_DEADLINE_MS = 1_000
GENERATION_DIGITS = 16  # 64 bits, so that the names of one instance's files are unique
BATCH_HEADER_BYTES = 61

logger = logging.getLogger(__name__)


class Agent:
    """Connects the files of one collector with its cluster."""

    def __init__(
        self,
        settings: CollectorSettings,
        instance: str,
        clock: ForwardClock,
        patience_ms: int | None = None,
    ):
        section = settings.section
        self._wake = asyncio.Event()
        self.settings = settings
        self.instance = instance
        self.clock = clock
        self.state = PartState.STARTING
        self.is_ready = False
        self.brokers = Brokers(settings, transactional_id_of(instance))
        self.registry = Registry(
            section.inputs, settings.home, lambda: uuid.uuid4().hex[:GENERATION_DIGITS]
        )
        self.handles = Handles(room_for(section.open_files))
        self.host = socket.gethostname()
        self._addresses = Addresses(self.host, None if section.group is None else instance)
        self.reader = Reader(
            self.registry, self.handles, self._line_limit, self._addresses.fields_of
        )
        self.ingested = Ingested(self.registry, self.handles, settings.home)
        self.positions = Positions(self.registry, instance, section.forget_after)
        self.lookout = Lookout(
            self.reader,
            settings,
            clock,
            lambda generations: self.feeder.wake(generations),
            self._wake.set,
        )
        self.rate = Rate()
        self.work = Rate()
        """The processor time of the process, in milliseconds."""
        self.patience_ms = patience_ms
        """The longest wait for brokers that do not answer; None for no limit."""
        self.gave_up: str | None = None
        self.is_fenced = False
        """True if another collector has taken over the instance, so that this agent must end."""
        self.reporting = Reporting(self.brokers.reports)
        self._tenure = Tenure(self.brokers, instance, self.host, clock)
        self._stopping = False
        self.start_problem: Problem | None = None
        """The reason why the instance is not taken over yet; None if it is."""
        self._wanted_settings: CollectorSettings | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._rate_at_ms = 0
        self.reloading: Reloading | None = None
        if settings.reload is not None:
            self.reloading = Reloading(
                settings.reload,
                CollectorUpdate(section=section, topics=settings.topics),
                self.take_inputs,
            )
        self._prepare_to_send()

    # --- for the process ----------------------------------------------------------------------

    def stop(self) -> None:
        """Ask the agent to stop cleanly."""
        self._stopping = True
        self._wake.set()

    async def start(self) -> bool:
        """Take over the instance and match files with positions.

        Return False if the agent was stopped.
        """
        if not await self._take_over():
            return False
        self.lookout.start()
        await self._scan()
        self.is_ready = True
        self.state = PartState.RUNNING
        logger.info(
            "collector runs",
            extra=fields(instance=self.instance, files=len(self.registry.generations)),
        )
        return True

    async def take_inputs(self, wanted: CollectorUpdate) -> None:
        """Apply new inputs in the next round. Raises ClientError or ApiError."""
        update = {"section": wanted.section, "topics": wanted.topics}
        settings = self.settings.model_copy(update=update)
        await self.brokers.change_topics(settings)
        self._wanted_settings = settings
        self._wake.set()

    async def run(self) -> None:
        """Read and send until `stop` is called."""
        following = None
        if self.reloading is not None:
            following = asyncio.create_task(self.reloading.run())
        try:
            while not self._stopping:
                await self.step()
                if following is not None and following.done():
                    following.result()
                if self.feeder.is_busy:
                    await asyncio.sleep(0)
                else:
                    await self._sleep()
        finally:
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def step(self, *, flush: bool = False) -> None:
        """Scan, read and send whatever is due. With `flush`, commit all lines that were read."""
        if self.committer.lost is not None:
            await self._start_over(self.committer.lost)
            return
        now_ms = self.clock()
        if self._wanted_settings is not None:
            self._change_inputs(self._wanted_settings)
        if self.lookout.is_scan_due(now_ms) and not self._stopping:
            await self._scan()
        self.lookout.look_between(now_ms)
        self.feeder.step(self.clock())
        self.topic_maker.step(self.clock())
        self._lag_watch.step(self.clock())
        await self.committer.step(self.clock(), flush=flush)
        self.lookout.heed_reader(now_ms)
        if now_ms >= self._rate_at_ms:
            self._rate_at_ms = now_ms + RATE_TICK_MS
            self.rate.note(now_ms, self.registry.counters["lines_total"])
            self.work.note(now_ms, self.clock.worked_ms())
            self.positions.tick(now_ms)

    async def finish(self) -> None:
        """Commit the lines that were read, within STOP_DEADLINE_MS. Then call `close`."""
        self._stopping = True
        self.state = PartState.STOPPING
        self.is_ready = False
        self.lookout.stop()
        deadline_ms = self.clock() + STOP_DEADLINE_MS
        if self._tenure.is_held and not self.is_fenced:
            await self.drain(deadline_ms)
        if self._refreshing is not None:
            self._refreshing.cancel()
        self.topic_maker.stop()
        self._lag_watch.stop()
        await self.committer.stop(max(1, deadline_ms - self.clock()))

    async def close(self) -> None:
        """Close all files and connections."""
        await self.brokers.close(CLOSE_DEADLINE_MS)
        self.handles.close_all()

    def lose_patience(
        self, since_ms: int | None, waited_for: str = "answer from the brokers"
    ) -> None:
        """Stop the agent if it has waited since `since_ms` for longer than `patience_ms`.

        `since_ms` is None if the agent is not waiting.
        """
        if self.patience_ms is None or since_ms is None:
            return
        away_ms = self.clock() - since_ms
        if away_ms >= self.patience_ms:
            self.gave_up = f"no {waited_for} for {away_ms // 1000} s"
            self.stop()

    @property
    def is_stopping(self) -> bool:
        """True if the agent was asked to stop."""
        return self._stopping

    async def drain(self, deadline_ms: int | None) -> bool:
        """Commit all lines that were read.

        Return False if that took too long, or if the transaction was lost. Without a deadline, wait
        until the agent is asked to stop.
        """
        while not self.committer.is_idle:
            if self.committer.lost is not None:
                return False
            self.lose_patience(self.committer.waiting_since_ms)
            is_over = self._stopping if deadline_ms is None else self.clock() >= deadline_ms
            if is_over:
                return False
            await self.committer.step(self.clock(), flush=True)
            await self._pause(20)
        return True

    # --- starting -----------------------------------------------------------------------------

    def _prepare_to_send(self) -> None:
        """Create an empty outbox, the feeder that fills it, and the committer that empties it."""
        section = self.settings.section
        held_bytes_max = section.in_flight_bytes
        self.outbox = SendQueues(self.brokers.batch_limit, held_bytes_max)
        self.feeder = Feeder(
            self.reader,
            self.outbox,
            Rhythm(commit_bytes(held_bytes_max), section.commit_interval),
            self.brokers.partition_of,
            self._addresses,
        )
        self.committer = Committer(
            self.brokers,
            self.feeder,
            self.positions,
            self.clock,
            self._wake.set,
            self._on_refusal,
        )
        self.topic_maker = TopicMaker(self.brokers, self.feeder, self.clock, self._wake.set)
        self._lag_watch = LagWatch(self.brokers, self.feeder.windows, self.clock, self._wake.set)

    async def _take_over(self) -> bool:
        """Become the instance's only collector. Return False if the agent was stopped."""
        section, rng = self.settings.section, random.Random()
        backoff = start_wait(section, rng)
        self.lookout.hold()
        # Do not use `_pause`, because each changed file would end the wait.
        await self._stoppable(asyncio.sleep(first_wait_ms(section, rng) / 1000))
        since_ms = self.clock()
        while not self._stopping:
            try:
                await self._stoppable(self._connect())
                break
            except (ClientError, ApiError) as error:
                servers, since = self.settings.bootstrap_servers, format_moment_ms(since_ms)
                away = Problem("broker", f"no broker of {servers} answers since {since}: {error}")
                is_denied = isinstance(error, NotAllowed)
                self.start_problem = Problem("rights", str(error)) if is_denied else away
                logger.warning("the cluster cannot be reached", extra=fields(reason=str(error)))
                self.lose_patience(since_ms)
                await self._stoppable(asyncio.sleep(backoff.next_ms() / 1000))
        self.start_problem = None
        return not self._stopping

    async def _connect(self) -> None:
        stored = await self._tenure.take_over()
        self.registry.start_over(self.positions.decoded(stored.values))
        self.lookout.leave_unmatched()
        self.handles.keep(self.registry.files())

    async def _start_over(self, reason: Exception) -> None:
        """Load the stored positions and continue there, after the transaction was lost.

        This fences the process that caused the loss. If that process is a rival (another collector
        with the same instance), this agent fences it only once and then ends. Otherwise the two
        would fence each other forever.
        """
        logger.warning(
            "a transaction was lost, so the collector reads its stored positions again",
            extra=fields(reason=str(reason)),
        )
        self.registry.counters["started_over"] += 1
        self.is_ready = False
        self.topic_maker.stop()
        self._lag_watch.stop()
        await self.committer.stop(STOP_DEADLINE_MS)
        if await self._tenure.has_rival(self._pause, lambda: self._stopping):
            logger.error(
                "another collector uses the same instance name, so this collector ends",
                extra=fields(instance=self.instance),
            )
            self.is_fenced = True
            self.stop()
        elif await self._take_over():
            self._prepare_to_send()
            await self._scan()
            self.is_ready = True

    async def _stoppable(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a slow operation, and cancel it if the agent is asked to stop."""
        task = asyncio.create_task(work)
        try:
            while not task.done() and not self._stopping:
                await asyncio.wait([task], timeout=0.1)
            if task.done():
                task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _line_limit(self, generation: Generation) -> int:
        """Return the length of the longest line of a file that fits in a batch without other
        lines.
        """
        limit = self.brokers.batch_limit(generation.topic) - BATCH_HEADER_BYTES
        return max(LINE_BYTES_MIN, limit - self._addresses.overhead_max(generation))

    # --- waking up ----------------------------------------------------------------------------

    def _change_inputs(self, settings: CollectorSettings) -> None:
        self.settings, self._wanted_settings = settings, None
        inputs = settings.section.inputs
        self.registry.change_inputs(inputs)
        self.lookout.change(settings)
        left = self.lookout.leave_unmatched()
        logger.info("inputs changed", extra=fields(inputs=len(inputs), files_left=left))

    async def _scan(self) -> None:
        await self.lookout.scan()
        if self.is_ready and self.ingested.step(self.clock()):
            self.reader.wants_scan = True

    async def _sleep(self) -> None:
        now_ms = self.clock()
        times = [self.lookout.deadline_ms, self._rate_at_ms, now_ms + IDLE_MS]
        for deadline_ms in (
            self.feeder.deadline_ms,
            self.committer.deadline_ms,
            self.topic_maker.deadline_ms,
            self._lag_watch.deadline_ms(now_ms),
        ):
            if deadline_ms is not None:
                times.append(deadline_ms)
        await self._pause(max(1, min(times) - now_ms))

    async def _pause(self, wait_ms: int) -> None:
        """Wait until the agent is woken, for at most `wait_ms`."""
        if not self._wake.is_set():
            handle = asyncio.get_running_loop().call_later(wait_ms / 1000, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                handle.cancel()
        self._wake.clear()

    def _on_refusal(self, error: Exception) -> None:
        """Start to refresh limits and topics after a refusal, before the lines are sent again."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(error))

    async def _refresh(self, error: BaseException) -> None:
        """Read the brokers' limits again, and create topics that are missing."""
        try:
            if isinstance(error, ApiError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                await self.brokers.ensure_topics()
            await self.brokers.learn_limits()
        except (ClientError, ApiError) as problem:
            logger.warning("could not read topic limits", extra=fields(reason=str(problem)))
