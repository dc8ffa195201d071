"""The loop that reads the mill, assembles a snapshot and publishes it to the pages.

Pages show the latest snapshot and never ask brokers themselves.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from monitor.alerts.core import Alerts, changes_between
from monitor.alerts.kinds import measured
from monitor.alerts.notifier import Notifier
from monitor.assembly.assemble import assemble
from monitor.assembly.readers import Memory
from monitor.config.settings import MonitorSettings
from monitor.history.recorder import Recorder
from monitor.state.progress import ProgressMemory
from monitor.state.reading import Reading
from monitor.state.snapshot import Snapshot
from protocol.log import fields

logger = logging.getLogger(__name__)


class Source(Protocol):
    """An object that returns readings: `Poller`, or a test's script."""

    async def read(self, now_ms: int) -> Reading:
        """Return one cycle's reading. It holds an error for each source that does not answer."""
        ...

    async def close(self) -> None:
        """Close the source; call no method afterwards."""
        ...


class Sampler:
    """Keeps the latest snapshot, and wakes the pages that wait for the next one."""

    def __init__(
        self,
        settings: MonitorSettings,
        source: Source,
        clock_ms: Callable[[], int],
        recorder: Recorder | None = None,
        alerts: Alerts | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self.recorder = recorder
        self.history_problem: str | None = None
        """The reason why no history is recorded although it should be; None if there is no such
        problem."""
        self.notifier = notifier
        self._alerts = alerts or Alerts(())
        self._settings = settings
        self._source = source
        self._clock_ms = clock_ms
        self._memory = Memory()
        self._progress = ProgressMemory()
        self._next = asyncio.Event()
        self.snapshot: Snapshot | None = None

    def resume(self, snapshot: Snapshot | None, memory: Memory, progress: ProgressMemory) -> None:
        """Take over the state of another sampler."""
        self.snapshot, self._memory, self._progress = snapshot, memory, progress

    async def run(self) -> None:
        """Run a cycle every refresh interval until cancelled. A slow cycle delays the next one, so
        cycles never overlap.
        """
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                await self.sample()
                pause_s = self._settings.section.refresh_ms / 1000 - (loop.time() - began)
                await asyncio.sleep(max(0.0, pause_s))
        finally:
            await self._source.close()
            if self.notifier is not None:
                await self.notifier.close()
            if self.recorder is not None:
                self.recorder.store.close()

    async def sample(self) -> Snapshot:
        """Run one cycle; publish and return the new snapshot."""
        reading = await self._source.read(self._clock_ms())
        for error in reading.errors:
            logger.debug(
                "a source does not answer", extra=fields(source=error.source, reason=error.text)
            )
        snapshot = assemble(
            reading,
            self.snapshot,
            self._memory,
            self._progress,
            refresh_ms=self._settings.section.refresh_ms,
            bootstrap_servers=self._settings.bootstrap_servers,
            stream_group=self._settings.stream_group,
        )
        if self.recorder is not None:
            disks = self.recorder.with_fillings(snapshot.disks)
            snapshot = replace(snapshot, disks=disks)
        self.snapshot = snapshot = self._with_alerts(snapshot)
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.take, snapshot, self._alerts.kept())
        self._next.set()
        self._next = asyncio.Event()
        return snapshot

    def _with_alerts(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with its alerts; log the changes and let the notifier send them."""
        now_ms, before = snapshot.taken_at_ms, self._alerts.open()
        standing = self._alerts.look(measured(self._alerts.rules, snapshot), now_ms)
        opened, closed = changes_between(before, standing.open)
        for one in opened:
            logger.warning(
                "alert opened", extra=fields(rule=one.rule, subject=one.subject, why=one.text)
            )
        for one in closed:
            logger.info("alert closed", extra=fields(rule=one.rule, subject=one.subject))
        if self.notifier is not None:
            self.notifier.poke(now_ms, snapshot.cluster_id or self._settings.bootstrap_servers)
        return replace(snapshot, alerts=standing)

    async def wait_next(self) -> Snapshot | None:
        """Wait for the next snapshot and return it."""
        await self._next.wait()
        return self.snapshot
