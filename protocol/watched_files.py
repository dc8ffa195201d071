"""Files that are read again after they have changed, such as a certificate and its key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

Value = TypeVar("Value")

Stamp = tuple[tuple[int, ...], ...]
"""The device, inode, size and times of each file, by which versions of the files are distinguished.

A missing file has an empty tuple.
"""


class WatchedFiles(Generic[Value]):
    """A value that is read from files, and read again after one of them has changed.

    If the new files cannot be used, the earlier value stays, and `fault` says why.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        read: Callable[[], Value],
        wrong: type[Exception],
        tell: Callable[[Exception | None], None],
    ) -> None:
        """Read the files. Raises what `read` raises.

        `read` raises `wrong` for files that cannot be used. `tell` is called once for each new
        version of the files: with the error if they cannot be used, and with None if they are used
        from now on.
        """
        self.fault: Exception | None = None
        self._paths = paths
        self._read = read
        self._wrong = wrong
        self._tell = tell
        self._stamp = _stamp(paths)
        self._value = read()

    def current(self) -> Value:
        """Return the value for now. Read the files again if they have changed."""
        stamp = _stamp(self._paths)
        if stamp != self._stamp:
            # Keep the stamp even if the files are wrong, so that each version is read and reported
            # once.
            self._stamp = stamp
            try:
                self._value = self._read()
            except self._wrong as error:
                self.fault = error
            else:
                self.fault = None
            self._tell(self.fault)
        return self._value


def _stamp(paths: Sequence[str | Path]) -> Stamp:
    return tuple(map(_version, paths))


def _version(path: str | Path) -> tuple[int, ...]:
    try:
        one = Path(path).stat()
    except OSError:
        return ()
    # The time of the last change also rises when the mode or the owner changes.
    return (one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns)
