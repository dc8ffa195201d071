"""Replaces small files atomically, and locks files. A file has its mode before its first byte is
written."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

PRIVATE = 0o600
PUBLIC = 0o644


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Put the name of the final file into the system errors of the block.

    `write` names no file in its errors, and `open` names the temporary file, which the user does
    not know.
    """
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def write_atomically(path: Path, data: bytes, *, mode: int = PUBLIC) -> None:
    """Write a file atomically: readers, and a start after a power cut, see either the old content
    or the new content."""
    with _named(path):
        partial = _new_file(path, data, mode)
        try:
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def create_once(path: Path, data: bytes, *, mode: int = PRIVATE) -> bool:
    """Create a complete file. Return False without a change if the file exists already."""
    if path.exists():
        return False
    with _named(path):
        partial = _new_file(path, data, mode)
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(path.parent)
    return True


def _new_file(path: Path, data: bytes, mode: int) -> Path:
    """Write a temporary file beside `path`, fsync it, and return it.

    Its name is random, because two containers can have the same process id, and another account can
    write into the folder of a join file.
    """
    descriptor, name = mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    partial = Path(name)
    try:
        os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return partial


def sync_folder(folder: Path) -> None:
    """Fsync a folder, so that renames in it survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Yield True while this process has the lock of a file, which is made if it is missing. Yield
    False if another process has the lock. The kernel frees it when the process ends. Raises
    OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def restoring(target: Path) -> Path:
    """Return the folder in which a restore prepares the files before they are renamed to
    `target`."""
    return target.with_name(f"{target.name}.restoring")
