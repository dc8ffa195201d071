"""Read the stat of a file with its time of birth, which Python's `os.stat` does not return.

The module uses the system call statx.
"""

import ctypes
import os
import stat
import struct
import sys
from pathlib import Path

from collector.identity.sightings import Seen
from collector.text.fingerprint import FileId

_STATX_BTIME = 0x800
_STATX_BASIC = 0x7FF
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
# The fields of struct statx: mask, mode, inode, size; birth, change of content; device major and
# minor.
_STATX_HEAD = struct.Struct("<28xH2xQQ")
_STATX_TIME = struct.Struct("<qI")


class Statx:
    """Calls statx through ctypes. No other system call returns the time of birth."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._call = libc.statx if sys.platform == "linux" and hasattr(libc, "statx") else None
        self._buffer = ctypes.create_string_buffer(256)

    def birth_ns(self, descriptor: int) -> int | None:
        """Return the time of birth of an open file; None if unknown."""
        if self._call is None:
            return None
        if self._call(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, self._buffer) != 0:
            return None
        return self._birth_ns()

    def _birth_ns(self) -> int | None:
        (given,) = struct.unpack_from("<I", self._buffer, 0)
        birth_s, birth_ns = _STATX_TIME.unpack_from(self._buffer, 80)
        return birth_s * 10**9 + birth_ns if given & _STATX_BTIME else None

    def seen(self, path: str, input_index: int) -> Seen | None:
        """Return the file with this path, following symbolic links; None if it is not a regular
        file."""
        if self._call is None:
            return self._plain(path, input_index)
        mask = _STATX_BASIC | _STATX_BTIME
        if self._call(_AT_FDCWD, os.fsencode(path), 0, mask, self._buffer) != 0:
            # The file is missing, access is denied, or the kernel has no statx: `stat` finds out
            # which.
            return self._plain(path, input_index)
        raw = self._buffer.raw
        mode, inode, size = _STATX_HEAD.unpack_from(raw, 0)
        if not stat.S_ISREG(mode):
            return None
        changed_s, changed_ns = _STATX_TIME.unpack_from(raw, 112)
        major, minor = struct.unpack_from("<II", raw, 136)
        file = FileId(os.makedev(major, minor), inode)
        changed = changed_s * 10**9 + changed_ns
        return Seen(path, file, size, changed, self._birth_ns(), input_index)

    @staticmethod
    def _plain(path: str, input_index: int) -> Seen | None:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            return None
        file = FileId(found.st_dev, found.st_ino)
        return Seen(path, file, found.st_size, found.st_mtime_ns, None, input_index)


def owner_of(path: str) -> str:
    """Return a file's owner and mode, as the end of a message that it cannot be read."""
    try:
        found = Path(path).stat()
    except OSError:
        return ""
    mode = stat.filemode(found.st_mode)
    return f" (owner uid {found.st_uid}, mode {mode}; the collector is uid {os.geteuid()})"
