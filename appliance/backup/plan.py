"""Decide which files of a data folder belong to a backup, and what a round of copying must do.

Pure. A backup is made in rounds. Each round copies what changed since the one before, and only the
last round runs while the mill is paused. So little must be left for the last round: unchanged files
are skipped, and of a log's last segment only the new bytes are copied.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

LOG = ".log"

SETTLED_NS = 2_000_000_000
"""A file that was modified less than this before it was examined can change again under the same
time stamp: kernels count ticks, and some file systems whole seconds."""

LEFT_OUT = frozenset(
    {
        # Run files and logs of processes.
        "logs",
        "run",
        "supervisor.lock",
        "supervisor.pid",
        "supervisor.sock",
        # Its own server writes a copy of one moment.
        "mysql",
        # SQLite writes a copy of one moment.
        "monitor/history.db",
        "monitor/history.db-shm",
        "monitor/history.db-wal",
        # Spark's temporary files, which end with its process.
        "stream/scratch",
    }
)
"""Paths below the data folder that are left out, with everything below them."""

REDIS = "redis"
"""Left out if the mill has MySQL: Redis then only shows what is in MySQL, and is refilled from it.
"""

LEFT_OUT_NAMES = frozenset({".lock", ".reserve", "collector.lock", "lock"})
"""Lock files, which mean nothing without their process, and files that only reserve space."""

HISTORY = "monitor/history.db"
"""The monitor's history: it can change anywhere inside, and it can be large."""


class FileStamp(NamedTuple):
    """What tells whether a file is unchanged: its identity, size and time stamp."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int


class Whole(NamedTuple):
    """How far a copied log is known to have whole batches, and where the last of them begins.

    Written batches do not change unless a follower truncates them. Then the batch at the last
    batch's place has another leader epoch.
    """

    end: int
    last: int


@dataclass(frozen=True, slots=True)
class Copied:
    """A file that has been copied: what was known of it before the copy, and when it was
    examined."""

    seen: FileStamp
    looked_at_ns: int
    whole: Whole | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy a file from its beginning."""

    path: str
    is_active: bool


@dataclass(frozen=True, slots=True)
class Extend:
    """Copy what follows the whole batches of a log, if the last of them is still the same."""

    path: str
    whole: Whole


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the copy of a file that no longer exists."""

    path: str


Step = Copy | Extend | Remove


def belongs(path: str, *, with_redis: bool) -> bool:
    """Return whether this path below the data folder is part of a backup."""
    pieces = path.split("/")
    if pieces[-1] in LEFT_OUT_NAMES or (pieces[0] == REDIS and not with_redis):
        return False
    above = {"/".join(pieces[:count]) for count in range(1, len(pieces) + 1)}
    return above.isdisjoint(LEFT_OUT)


def steps(copied: Mapping[str, Copied], seen: Mapping[str, FileStamp]) -> list[Step]:
    """Return the steps that make the copies equal to the files, in order of paths."""
    active = active_logs(seen)
    found: list[Step] = []
    for path, now in sorted(seen.items()):
        before = copied.get(path)
        if before is not None and _is_unchanged(before, now):
            continue
        if before is not None and _has_grown(before, now) and before.whole is not None:
            found.append(Extend(path, before.whole))
        else:
            found.append(Copy(path, path in active))
    found += (Remove(path) for path in sorted(copied) if path not in seen)
    return found


def active_logs(paths: Iterable[str]) -> set[str]:
    """Return the last segment of each log. Only this segment grows; its name is the highest."""
    last: dict[str, str] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if name.endswith(LOG) and name > last.get(folder, ""):
            last[folder] = name
    return {f"{folder}/{name}" for folder, name in last.items()}


def _is_unchanged(before: Copied, now: FileStamp) -> bool:
    changed_ns = max(now.mtime_ns, now.ctime_ns)
    return before.seen == now and changed_ns < before.looked_at_ns - SETTLED_NS


def _has_grown(before: Copied, now: FileStamp) -> bool:
    """Return whether this is the same file and at least as long as before."""
    is_same = (before.seen.device, before.seen.inode) == (now.device, now.inode)
    return is_same and before.whole is not None and now.size_bytes >= before.whole.end
