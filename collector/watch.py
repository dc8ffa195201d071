"""The wake-up: tells the agent at once that a file changed. Never the truth, only a hint.

Floor: beside `files`. The events arrive in watchdog's threads; they are collected there and handed
to the loop in one call however many they are. What no event tells, the scan finds: folders that
cannot be watched are named in `problems`, and a lost event queue asks for a scan.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from collector.fingerprint import FileId

_EVENTS: list[type[FileSystemEvent]] = [
    FileModifiedEvent,
    FileCreatedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]

OnChange = Callable[[frozenset[str], bool], None]
"""Called in the loop with the changed paths, and whether names changed, so that a scan is due."""

logger = logging.getLogger(__name__)


class Watch(FileSystemEventHandler):
    """Watches folders as long as they are the same folders; `sync` follows what there is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: OnChange):
        self.problems: dict[str, str] = {}
        self.overflows = 0
        self._loop = loop
        self._on_change = on_change
        self._observer: BaseObserver = Observer()
        self._watches: dict[str, tuple[FileId, ObservedWatch]] = {}
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._names_changed = False
        self._is_called = False
        self._ear = _OverflowEar(self)

    def start(self) -> None:
        """Begin to listen; nothing is watched before the first `sync`."""
        logging.getLogger("watchdog.observers").addHandler(self._ear)
        self._observer.start()

    def stop(self) -> None:
        """End the threads."""
        logging.getLogger("watchdog.observers").removeHandler(self._ear)
        self._observer.stop()
        self._observer.join()

    def sync(self, folders: Mapping[str, tuple[FileId, bool]]) -> None:
        """Watch these folders: which one each is, and whether with all below it."""
        for path, (file, watch) in list(self._watches.items()):
            if path not in folders or folders[path][0] != file:
                self._observer.unschedule(watch)
                del self._watches[path]
        self.problems = {path: text for path, text in self.problems.items() if path in folders}
        for path, (file, recursive) in folders.items():
            if path in self._watches:
                continue
            try:
                watch = self._observer.schedule(
                    self, path, recursive=recursive, event_filter=_EVENTS
                )
            except OSError as error:
                self.problems[path] = error.strerror or str(error)
                continue
            self.problems.pop(path, None)
            self._watches[path] = (file, watch)

    def on_any_event(self, event: FileSystemEvent) -> None:
        """In a thread of watchdog's: note the paths and wake the loop if nobody has."""
        paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
        self._note(paths, event.event_type != FileModifiedEvent.event_type)

    def overflowed(self) -> None:
        """Events were lost: only a scan can tell what happened."""
        self.overflows += 1
        self._note((), True)

    def _note(self, paths: "list[str] | tuple[()]", names_changed: bool) -> None:
        with self._lock:
            self._paths.update(paths)
            self._names_changed |= names_changed
            if self._is_called:
                return
            self._is_called = True
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            logger.debug("event after the loop was closed")

    def _tell(self) -> None:
        with self._lock:
            paths, names_changed = frozenset(self._paths), self._names_changed
            self._paths.clear()
            self._names_changed = self._is_called = False
        self._on_change(paths, names_changed)


class _OverflowEar(logging.Handler):
    """watchdog reports a lost event queue by a log line only."""

    def __init__(self, watch: Watch):
        super().__init__(logging.WARNING)
        self._watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in record.getMessage().lower():
            self._watch.overflowed()
