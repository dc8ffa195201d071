"""Copy a data folder in rounds: compare the folder with the copy, then copy what differs.

This is the only module that reads the data of a running mill for a backup. `plan` decides what a
round must do. The module opens no file of the mill for writing.
"""

import os
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from appliance.backup import plan
from appliance.backup.plan import CopiedFile, Copy, Extend, FileStamp, Remove, Step, WholeBatches
from broker.storage.disk import OsDisk
from broker.storage.errors import DiskError
from broker.storage.walk import BatchWalk
from protocol.wire.records import HEADER_BYTES

PIECE_BYTES = 1 << 20


class TooSlow(Exception):
    """Raised when a round of copying is not finished at its deadline.

    Its text says how much was copied.
    """


Progress = Callable[[int, int], None]
"""A function that is called with the number of bytes copied so far, and the total as far as
known."""


def no_progress(done: int, of: int) -> None:
    """Ignore the progress: the default callback of `Copier.round`."""


class Copier:
    """Copies one data folder into another in several rounds."""

    def __init__(
        self, source: Path, target: Path, *, with_redis: bool, with_brokers: bool = True
    ) -> None:
        self._source = source
        self._target = target
        self._belongs = partial(plan.belongs, with_redis=with_redis, with_brokers=with_brokers)
        self._copied: dict[str, CopiedFile] = {}
        self.folders: dict[str, int] = {}
        """The mode of every folder that existed in the last round, by path."""

    def round(self, progress: Progress = no_progress, deadline: float | None = None) -> int:
        """Copy what has changed since the last round and return how many bytes were read.

        `deadline` is a time of the monotonic clock, in seconds. At the deadline TooSlow is raised,
        and the next round continues from what was copied. Raises OSError when the target cannot be
        written.
        """
        looked_at_ns = time.time_ns()
        made = self.folders
        seen = self._look()
        for path, mode in self.folders.items():
            if path not in made:
                (self._target / path).mkdir(mode=mode, exist_ok=True)
        todo = plan.steps(self._copied, seen)
        of = sum(_size(step, seen) for step in todo)
        done = 0
        for step in todo:
            # A copy that was interrupted starts again from the beginning of the file.
            self._copied.pop(step.path, None)
            try:
                if isinstance(step, Remove):
                    raise FileNotFoundError(step.path)
                read, whole = self._copy(step, deadline)
            except (FileNotFoundError, TooSlow) as error:
                (self._target / step.path).unlink(missing_ok=True)
                if isinstance(error, TooSlow):
                    raise
                continue
            self._copied[step.path] = CopiedFile(seen[step.path], looked_at_ns, whole)
            done += read
            progress(done, of)
        return done

    def prune(self) -> None:
        """Remove empty folders that did not exist any more in the last round."""
        for folder, _, _ in os.walk(self._target, topdown=False):
            path = Path(folder).relative_to(self._target)
            if path != Path() and str(path) not in self.folders:
                Path(folder).rmdir()

    def _look(self) -> dict[str, FileStamp]:
        seen: dict[str, FileStamp] = {}
        folders: dict[str, int] = {}
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                entries = list(os.scandir(self._source / folder))
            except (FileNotFoundError, NotADirectoryError):
                # The file was deleted after its folder was listed, so it is not part of this round.
                continue
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if not self._belongs(path):
                    continue
                try:
                    # A part's data folder can be a symbolic link to another disk, so follow links
                    # to folders.
                    found = entry.stat(follow_symlinks=not folder)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(found.st_mode):
                    folders[path] = stat.S_IMODE(found.st_mode)
                    waiting.append(path)
                elif stat.S_ISREG(found.st_mode):
                    seen[path] = FileStamp(
                        found.st_dev,
                        found.st_ino,
                        found.st_size,
                        found.st_mtime_ns,
                        found.st_ctime_ns,
                    )
        self.folders = dict(sorted(folders.items()))
        return seen

    def _copy(self, step: Copy | Extend, deadline: float | None) -> tuple[int, WholeBatches | None]:
        """Copy one file. Return the number of bytes read, and the whole batches in the copy."""
        source, target = self._source / step.path, self._target / step.path
        known = WholeBatches(0, 0)
        if isinstance(step, Extend) and is_same_batch(source, target, step.whole):
            known = step.whole
        read = copy_file(source, target, known.end, deadline) - known.end
        if isinstance(step, Copy) and not step.is_active:
            return read, None
        # The round with a deadline runs while the mill is paused. It verifies no checksums, because
        # that would make the pause longer.
        return read, known if deadline is not None else whole_batches(target, known)


def _size(step: Step, seen: dict[str, FileStamp]) -> int:
    if isinstance(step, Remove):
        return 0
    size = seen[step.path].size_bytes
    return size - step.whole.end if isinstance(step, Extend) else size


def copy_file(source: Path, target: Path, begin: int, deadline: float | None = None) -> int:
    """Copy a file from byte `begin` on and return the length of the file.

    The copy has the file's mode from its first byte on. Raises TooSlow and OSError.
    """
    with source.open("rb", buffering=0) as reading:
        mode = stat.S_IMODE(os.fstat(reading.fileno()).st_mode)
        flags = os.O_WRONLY | os.O_CREAT
        with os.fdopen(os.open(target, flags, mode), "wb", buffering=0) as writing:
            os.fchmod(writing.fileno(), mode)
            position = begin
            while True:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TooSlow(
                        f"{source} was not copied in time: its first {position:,} bytes are copied"
                    )
                piece = memoryview(os.pread(reading.fileno(), PIECE_BYTES, position))
                if not piece:
                    break
                while piece:
                    written = os.pwrite(writing.fileno(), piece, position)
                    position += written
                    piece = piece[written:]
            writing.truncate(position)
    return position


def whole_batches(log: Path, known: WholeBatches) -> WholeBatches:
    """Return the batches of a copied log that are whole and have a valid checksum.

    The check continues after the batches in `known`.
    """
    try:
        file = OsDisk().open(str(log))
        walk = BatchWalk(file, known.end, file.size_bytes(), checked_from=0)
        last = known.last
        for _ in walk:
            last = walk.position
    except DiskError as error:
        raise OSError(error.number, os.strerror(error.number), error.path) from error
    return WholeBatches(walk.position, last)


def is_same_batch(source: Path, target: Path, whole: WholeBatches) -> bool:
    """Return whether the file still has, at the same position, the last whole batch of its copy."""
    return _header(source, whole) == _header(target, whole)


def _header(log: Path, whole: WholeBatches) -> bytes:
    """Return the header of the last batch, which contains its offset, leader epoch and checksum."""
    with log.open("rb") as file:
        file.seek(whole.last)
        return file.read(min(HEADER_BYTES, whole.end - whole.last))
