"""Decide which files of a data folder belong to a backup, and what a round of copying must do.

This module is pure. A backup is made in rounds. Each round copies what changed since the previous
round, and only the last round runs while the mill is paused. To keep the pause short, the last
round skips unchanged files, and of a log's last segment it copies only the new bytes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from appliance.mill.moved_folder import LEFTOVERS
from appliance.mill.parts import BROKER_PREFIX

LOG = ".log"

SETTLED_NS = 2_000_000_000
"""The age in nanoseconds from which an unchanged time stamp proves that a file is unchanged.

A younger file can change again and keep its time stamp, because time stamps have the resolution of
the kernel's clock ticks or, on some file systems, of seconds.
"""

LEFT_OUT = frozenset(
    {
        # Process ids, sockets and log files of the running processes.
        "logs",
        "run",
        "supervisor.lock",
        "supervisor.pid",
        "supervisor.sock",
        # The database server writes a consistent copy as SQL, so its files are not copied.
        "mysql",
        # SQLite's backup function writes a consistent copy, so the file itself is not copied.
        "monitor/history.db",
        "monitor/history.db-shm",
        "monitor/history.db-wal",
        # Spark's temporary files, which are useless after its process has ended.
        "stream/scratch",
    }
)
"""Paths below the data folder that are left out of a backup, with everything below them."""

REDIS = "redis"
"""The folder of Redis. It is left out if the mill has MySQL, from which Redis is refilled."""

LEFT_OUT_NAMES = frozenset({".lock", ".reserve", "collector.lock", "lock"})
"""The names of files that are left out: lock files, and files that only reserve space."""

CHECKPOINT = "stream/checkpoint"
"""The folder of Spark's checkpoint. A checkpoint that was given up has a longer name."""

HISTORY = "monitor/history.db"
"""The monitor's history. Any part of this file can change, and it can be large."""


class FileStamp(NamedTuple):
    """A file's identity, size and time stamp.

    If they are equal to earlier ones, the file is unchanged.
    """

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int


class WholeBatches(NamedTuple):
    """The whole batches of a copied log: the position after the last one, and the position of the
    last one.

    Written batches do not change unless a follower truncates the log. After a truncation, the batch
    at the position of the last whole batch has another leader epoch.
    """

    end: int
    last: int


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file that has been copied: its stamp before the copy, and when that stamp was read."""

    seen: FileStamp
    looked_at_ns: int
    whole: WholeBatches | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """The step that copies a file from its beginning."""

    path: str
    is_active: bool


@dataclass(frozen=True, slots=True)
class Extend:
    """The step that copies the bytes after the whole batches of a log, if the last whole batch is
    unchanged."""

    path: str
    whole: WholeBatches


@dataclass(frozen=True, slots=True)
class Remove:
    """The step that deletes the copy of a file that no longer exists."""

    path: str


Step = Copy | Extend | Remove


def belongs(path: str, *, with_redis: bool, with_brokers: bool = True) -> bool:
    """Return whether this path below the data folder is part of a backup.

    Without brokers, the stream's checkpoint is left out too. Its ledger says where it continues.
    """
    pieces = path.split("/")
    if not with_brokers and (pieces[0].startswith(BROKER_PREFIX) or path.startswith(CHECKPOINT)):
        return False
    if pieces[-1] in LEFT_OUT_NAMES or (pieces[0] == REDIS and not with_redis):
        return False
    if pieces[0].endswith(LEFTOVERS):
        # A restored mill must not continue the move of a broker's folder, because that could
        # exchange the restored data for those of before.
        return False
    above = {"/".join(pieces[:count]) for count in range(1, len(pieces) + 1)}
    return above.isdisjoint(LEFT_OUT)


def steps(copied: Mapping[str, CopiedFile], seen: Mapping[str, FileStamp]) -> list[Step]:
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
    """Return the last segment of each log, which has the highest name. Only this segment grows."""
    last: dict[str, str] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if name.endswith(LOG) and name > last.get(folder, ""):
            last[folder] = name
    return {f"{folder}/{name}" for folder, name in last.items()}


def _is_unchanged(before: CopiedFile, now: FileStamp) -> bool:
    changed_ns = max(now.mtime_ns, now.ctime_ns)
    return before.seen == now and changed_ns < before.looked_at_ns - SETTLED_NS


def _has_grown(before: CopiedFile, now: FileStamp) -> bool:
    """Return whether this is the same file and at least as long as before."""
    is_same = (before.seen.device, before.seen.inode) == (now.device, now.inode)
    return is_same and before.whole is not None and now.size_bytes >= before.whole.end
