"""Scans the folders of the inputs; inotify events only make the next scan come sooner.

A scan runs in a thread. If a folder cannot be watched, files that were read recently are examined
between scans.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from collector.config.settings import RESCAN_GAP_MS, CollectorSettings
from collector.identity.discovery import is_matched, plan
from collector.identity.files import FolderScan, Walker
from collector.identity.generation import Generation
from collector.identity.holding import HeldFiles
from collector.identity.unmatched import unmatched_files
from collector.identity.watch import Watch
from collector.read.reader import Reader
from protocol.log import fields

HOT_MS = 10_000  # without a watch, files read within this time are examined between scans
HOT_TICK_MS = 200
UNMATCHED_MS = 10_000  # interval of the search for files that no input matches

logger = logging.getLogger(__name__)

Wakes = Callable[[Iterable[Generation]], None]


class Lookout:
    """Scans the files of the inputs.

    It calls `wakes` with the files that may have unread lines, and `on_event` when the agent must
    act at once. `last` is the last scan.
    """

    def __init__(
        self,
        reader: Reader,
        settings: CollectorSettings,
        clock: Callable[[], int],
        wakes: Wakes,
        on_event: Callable[[], None],
    ):
        self.last = FolderScan((), (), True)
        self._reader = reader
        self._registry = reader.registry
        self._clock = clock
        self._wakes = wakes
        self._on_event = on_event
        self._held = HeldFiles(reader.handles)
        self._holding: asyncio.Task[None] | None = None
        self._is_known = asyncio.Event()
        """Set when the positions are known, which ends the holding."""
        self._watch: Watch | None = None
        self._scan_at_ms = 0
        self._hot_at_ms = 0
        self._last_scan_ms = 0
        self.unmatched: tuple[str, ...] = ()
        """The files in the watched folder that no input matches."""
        self._unmatched_at_ms = 0
        self.change(settings)

    def start(self) -> None:
        """Start to watch folders for changes."""
        self._watch = Watch(asyncio.get_running_loop(), self._changed)
        self._watch.start()

    def hold(self) -> None:
        """Hold files open until the next `scan`, because the positions are not known."""
        if self._holding is None:
            self._holding = asyncio.create_task(self._hold())

    def stop(self) -> None:
        """Stop watching and holding."""
        if self._holding is not None:
            self._holding.cancel()
        if self._watch is not None:
            self._watch.stop()

    @property
    def watch_problems(self) -> dict[str, str]:
        """The folders that cannot be watched, each with the reason."""
        return {} if self._watch is None else self._watch.problems

    @property
    def deadline_ms(self) -> int:
        """The time when the next scan or check is due without any event."""
        return min(self._scan_at_ms, self._hot_at_ms) if self.watch_problems else self._scan_at_ms

    def change(self, settings: CollectorSettings) -> None:
        """Use the inputs of these settings from the next scan on, and make that scan due at
        once."""
        patterns = plan(self._registry.inputs, settings.home)
        self._interval_ms = settings.section.scan_interval
        self._is_matched = partial(is_matched, patterns)
        self._walker = Walker(patterns)
        self._look_unmatched = partial(unmatched_files, settings.home, patterns)
        self._scan_at_ms = self._unmatched_at_ms = 0

    def leave_unmatched(self) -> int:
        """Close the files that no input reads any more, and return their number."""
        left = self._registry.leave_unmatched(self._is_matched, self._clock())
        for generation in left:
            self._reader.close(generation)
        return len(left)

    def is_scan_due(self, now_ms: int) -> bool:
        """Tell whether a scan is due."""
        return now_ms >= self._scan_at_ms

    def heed_reader(self, now_ms: int) -> None:
        """Make a scan due if the reader needs one to find out what happened to a file."""
        if self._reader.wants_scan:
            self._scan_soon(now_ms + RESCAN_GAP_MS)

    def look_between(self, now_ms: int) -> None:
        """Wake recently read files if a folder cannot be watched."""
        if self.watch_problems and now_ms >= self._hot_at_ms:
            self._hot_at_ms = now_ms + HOT_TICK_MS
            self._wakes(self._hot(now_ms))

    async def scan(self) -> None:
        """Scan all folders, and decide what happened to each file."""
        await self._end_holding()
        started_ms = self._clock()
        overflows = 0 if self._watch is None else self._watch.overflows
        self.last = await asyncio.to_thread(self._walker.scan)
        if overflows != self._registry.counters["rescans_forced"]:
            self._registry.counters["rescans_forced"] = overflows
        self._wakes(self._reader.judge(self.last, self._clock()))
        if self._watch is not None:
            await self._follow_folders(self._watch)
        self._last_scan_ms = self._clock()
        self._scan_at_ms = self._last_scan_ms + self._wait_ms(self._last_scan_ms - started_ms)
        await self._name_unmatched()

    def _wait_ms(self, took_ms: int) -> int:
        """Return the wait after a scan. Slow scans are made rarer, so that scanning takes at most a
        tenth of the time."""
        return max(self._interval_ms, 10 * took_ms)

    async def _hold(self) -> None:
        while not self._is_known.is_set():
            started_ms = self._clock()
            self._held.note(await asyncio.to_thread(self._walker.scan))
            wait_ms = self._wait_ms(self._clock() - started_ms)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_known.wait(), wait_ms / 1000)

    async def _end_holding(self) -> None:
        holding, self._holding = self._holding, None
        if holding is not None:
            # Only one thread may use the walker, so wait for the end of the scan under way.
            self._is_known.set()
            await holding
            self._is_known.clear()
            self._held.replay(self._registry, lambda scan: self._reader.judge(scan, self._clock()))

    async def _name_unmatched(self) -> None:
        now_ms = self._clock()
        if now_ms >= self._unmatched_at_ms:
            self._unmatched_at_ms = now_ms + UNMATCHED_MS
            found = await asyncio.to_thread(self._look_unmatched)
            at_path = self._registry.at_path
            self.unmatched = tuple(path for path in found if at_path(path) is None)

    async def _follow_folders(self, watch: Watch) -> None:
        folders = await asyncio.to_thread(self._walker.roots)
        before = set(watch.problems)
        await asyncio.to_thread(watch.sync, folders, self._clock())
        for path in set(watch.problems) - before:
            logger.warning(
                "folder cannot be watched, so its changes are found only by scans",
                extra=fields(path=path, reason=watch.problems[path]),
            )

    def _changed(self, paths: frozenset[str], names_changed: bool) -> None:
        known = [self._registry.at_path(path) for path in paths]
        self._wakes(generation for generation in known if generation is not None)
        if names_changed or None in known:
            self._scan_soon(max(self._clock(), self._last_scan_ms + RESCAN_GAP_MS))
        self._on_event()

    def _scan_soon(self, at_ms: int) -> None:
        self._scan_at_ms = min(self._scan_at_ms, at_ms)

    def _hot(self, now_ms: int) -> list[Generation]:
        return [
            generation
            for name, _ in self._reader.handles
            if (generation := self._registry.generations.get(name)) is not None
            and generation.read_at_ms + HOT_MS > now_ms
        ]
