"""Notify the agent at once when a file changes.

Notifications are only hints; scans decide. The events arrive in watchdog's threads, which collect
them and wake the loop once for many events. A scan finds what no event reports. `problems` names
the folders that cannot be watched. When the kernel's event queue overflows, a scan is requested.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from errno import EMFILE
from pathlib import Path

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
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.observers.inotify import InotifyEmitter
from watchdog.observers.inotify_c import CallbackId, InotifyFD, Mask, WatchCallback, WatchDescriptor

from collector.text.fingerprint import FileId

_EVENTS: list[type[FileSystemEvent]] = [
    FileModifiedEvent,
    FileCreatedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]

_INSIDE = "/./"
"""The text that separates, in paths for watchdog, a linked folder from the names in it."""
RETRY_MS = 60_000
"""The wait in milliseconds before the kernel is asked again for what it has refused: an inotify
instance, or watches of folders below a watched folder."""

OnChange = Callable[[frozenset[str], bool], None]
"""A function that the loop calls with the changed paths, and whether names changed, so that a scan
is due."""

logger = logging.getLogger(__name__)


class Watch(FileSystemEventHandler):
    """Watches folders as long as their identity is unchanged. `sync` changes the set of folders."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: OnChange):
        self.problems: dict[str, str] = {}
        self.overflows = 0
        self._loop = loop
        self._on_change = on_change
        self._kernel: tuple[_Inotify, BaseObserver] | None = None
        """The inotify instance and its threads; None before the kernel has given one."""
        self._refusal = ""
        """The reason why the kernel has given no instance."""
        self._watches: dict[str, tuple[FileId, ObservedWatch]] = {}
        self._retry_at_ms: int | None = None
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._names_changed = False
        self._is_called = False
        self._ear = _OverflowEar(self)

    def start(self) -> None:
        """Listen to watchdog's messages. Nothing is watched before the first `sync`."""
        logging.getLogger("watchdog.observers").addHandler(self._ear)

    def stop(self) -> None:
        """Stop the threads."""
        logging.getLogger("watchdog.observers").removeHandler(self._ear)
        if self._kernel is not None:
            inotify, observer = self._kernel
            observer.stop()
            observer.join()
            inotify.stop()
            inotify.join()

    def sync(self, folders: Mapping[str, tuple[FileId, bool]], now_ms: int) -> None:
        """Watch these folders: the identity of each, and whether to watch subfolders.

        If the kernel refused subfolders of a watched folder, the whole folder is tried again every
        RETRY_MS. If it refuses an inotify instance, nothing is watched until it gives one.
        """
        kernel = self._instance(now_ms)
        if kernel is None:
            self.problems = dict.fromkeys(folders, self._refusal)
            return
        inotify, observer = kernel
        refused = inotify.refused()
        is_retried = self._retry_at_ms is not None and now_ms >= self._retry_at_ms
        for path, (file, watch) in list(self._watches.items()):
            is_short = is_retried and bool(_at_or_below(path, refused))
            if path not in folders or folders[path][0] != file or is_short:
                observer.unschedule(watch)
                del self._watches[path]
        for path, (file, recursive) in folders.items():
            if path in self._watches:
                continue
            inotify.forget_below(path)
            try:
                watch = observer.schedule(
                    self, _entered(path), recursive=recursive, event_filter=_EVENTS
                )
            except OSError:
                # `_Inotify.refused` reports this folder and the reason.
                continue
            self._watches[path] = (file, watch)
        refused = inotify.refused()
        if not refused:
            self._retry_at_ms = None
        elif self._retry_at_ms is None or is_retried:
            self._retry_at_ms = now_ms + RETRY_MS
        found = {path: _problem(path, refused) for path in folders}
        self.problems = {path: text for path, text in found.items() if text is not None}

    def _instance(self, now_ms: int) -> "tuple[_Inotify, BaseObserver] | None":
        """Return the inotify instance, and start its threads if it is new; None if the kernel
        refuses one. It is asked again every RETRY_MS."""
        is_asked = self._retry_at_ms is None or now_ms >= self._retry_at_ms
        if self._kernel is None and is_asked:
            try:
                inotify = _Inotify()
            except OSError as error:
                self._retry_at_ms = now_ms + RETRY_MS
                self._refusal = _instance_text(error)
                return None
            self._retry_at_ms = None
            self._kernel = inotify, BaseObserver(InotifyEmitter, inotify_fd=inotify)
            for thread in self._kernel:
                thread.start()
        return self._kernel

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Collect the paths of an event, and wake the loop unless that was done already.

        watchdog calls this in one of its threads.
        """
        paths = [
            os.fsdecode(path).replace(_INSIDE, "/")
            for path in (event.src_path, event.dest_path)
            if path
        ]
        self._note(paths, event.event_type != FileModifiedEvent.event_type)

    def overflowed(self) -> None:
        """Request a scan, because events were lost and only a scan can find the changes."""
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
            logger.debug("file event dropped, because the event loop is closed")

    def _tell(self) -> None:
        with self._lock:
            paths, names_changed = frozenset(self._paths), self._names_changed
            self._paths.clear()
            self._names_changed = self._is_called = False
        self._on_change(paths, names_changed)


class _Inotify(InotifyFD):
    """Watches folders, and remembers those that the kernel refuses; watchdog reports no refusal.

    Its threads add watches when folders appear.
    """

    def __init__(self) -> None:
        super().__init__()
        self._refused: dict[str, str] = {}
        self._refused_lock = threading.Lock()

    def add_callback(
        self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId
    ) -> WatchDescriptor:
        """Watch a folder. Raises OSError."""
        name = os.fsdecode(path)
        try:
            found = super().add_callback(path, mask, callback, id_)
        except OSError as error:
            with self._refused_lock:
                self._refused[name] = error.strerror or str(error)
            raise
        with self._refused_lock:
            self._refused.pop(name, None)
        return found

    def refused(self) -> dict[str, str]:
        """Return the folders that could not be watched, each with the reason."""
        with self._refused_lock:
            return dict(self._refused)

    def forget_below(self, root: str) -> None:
        """Forget which folders at or below `root` were refused, so that they are tried again."""
        with self._refused_lock:
            for path in _at_or_below(root, self._refused):
                del self._refused[path]


def _instance_text(error: OSError) -> str:
    """Return why the kernel gives no inotify instance, and what helps."""
    reason = error.strerror or str(error)
    return f"{reason}: raise fs.inotify.max_user_instances" if error.errno == EMFILE else reason


def _entered(path: str) -> str:
    """Return a folder's path for watchdog, which does not follow a link at the end of a path."""
    return f"{path}{_INSIDE.rstrip('/')}" if Path(path).is_symlink() else path


def _at_or_below(root: str, paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path == root or path.startswith(f"{root}/")]


def _problem(root: str, refused: Mapping[str, str]) -> str | None:
    """Return which folders at or below `root` are not watched, and why; None if all are watched."""
    if root in refused:
        return refused[root]
    below = _at_or_below(root, refused)
    if not below:
        return None
    return (
        f"{len(below)} folders below are not watched, for example {below[0]}: {refused[below[0]]}"
    )


class _OverflowEar(logging.Handler):
    """A log handler that catches watchdog's message about a lost event queue.

    watchdog reports the loss in no other way.
    """

    def __init__(self, watch: Watch):
        super().__init__(logging.WARNING)
        self._watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in record.getMessage().lower():
            self._watch.overflowed()
