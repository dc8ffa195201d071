"""Small files replaced in one step, with the rights they need from their first byte on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE = 0o600


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file that is meant in what the system refuses.

    A write names none by itself, and an opening the partial file, which nobody knows.
    """
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that a reader, or a power cut, sees the old content or the whole new one."""
    with _named(path):
        _write_atomically(path, data, mode)


def _write_atomically(path: Path, data: bytes, mode: int) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def create_once(path: Path, data: bytes, *, mode: int = PRIVATE) -> bool:
    """Make a file whole or not at all; False, and nothing changed, when it exists already."""
    if path.exists():
        return False
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with _named(path):
        _write_atomically(partial, data, mode)
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Make renames in a folder outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def restoring(target: Path) -> Path:
    """Where a restore makes what takes the name of `target` when all of it is there."""
    return target.with_name(f"{target.name}.restoring")
