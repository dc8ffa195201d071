"""Which files of a data folder belong to a backup, and what a round of copying has to do.

Pure. A backup is made in rounds: each copies what the one before could not know, and only the last
one runs while the mill stands still. So what counts is how little is left for that one: a file that
has not changed is left alone, and of a log's last segment only what is new is copied.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

LOG = ".log"

SETTLED_NS = 2_000_000_000
"""A file that was changed within this time before it was looked at may be changed again under the
same time stamp: kernels count ticks, and some file systems whole seconds."""

LEFT_OUT = frozenset(
    {
        # Of processes: who runs, what they said.
        "logs",
        "run",
        "supervisor.lock",
        "supervisor.pid",
        "supervisor.sock",
        # Copied by its own server, at one moment.
        "mysql",
        # Copied by SQLite, at a moment of its own.
        "monitor/history.db",
        "monitor/history.db-shm",
        "monitor/history.db-wal",
        # Spark's room for what does not outlive its process.
        "stream/scratch",
    }
)
"""By path below the data folder; what lies below one of them is left out as well."""

REDIS = "redis"
"""Left out where MySQL is: then it shows what stands there, and is filled from it."""

LEFT_OUT_NAMES = frozenset({".lock", ".reserve", "collector.lock", "lock"})
"""Locks, which processes hold and not files, and room set aside."""

HISTORY = "monitor/history.db"
"""The monitor's history, which changes anywhere inside and may be large."""


class Seen(NamedTuple):
    """What tells whether a file is as it was: the same one, untouched."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int


class Whole(NamedTuple):
    """How far a copied log is known to hold whole batches, and where the last of them begins.

    Written batches stay as they are, unless a follower cuts them off; then a batch of another
    leader epoch stands where the last one stood.
    """

    end: int
    last: int


@dataclass(frozen=True, slots=True)
class Copied:
    """A file that has been copied: how it was looked at before that, and when."""

    seen: Seen
    looked_at_ns: int
    whole: Whole | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy a file from its beginning."""

    path: str
    is_active: bool


@dataclass(frozen=True, slots=True)
class Extend:
    """Copy what a log holds behind its whole batches, if the last of them is still the same."""

    path: str
    whole: Whole


@dataclass(frozen=True, slots=True)
class Remove:
    """Forget the copy of a file that is gone."""

    path: str


Step = Copy | Extend | Remove


def belongs(path: str, *, with_redis: bool) -> bool:
    """Whether what lies at this path below the data folder is part of a backup."""
    pieces = path.split("/")
    if pieces[-1] in LEFT_OUT_NAMES or (pieces[0] == REDIS and not with_redis):
        return False
    above = {"/".join(pieces[:count]) for count in range(1, len(pieces) + 1)}
    return above.isdisjoint(LEFT_OUT)


def steps(copied: Mapping[str, Copied], seen: Mapping[str, Seen]) -> list[Step]:
    """What makes the copies what the files are, in order of paths."""
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
    """The last segment of each log: the only one that grows. Its name is the highest."""
    last: dict[str, str] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if name.endswith(LOG) and name > last.get(folder, ""):
            last[folder] = name
    return {f"{folder}/{name}" for folder, name in last.items()}


def _is_unchanged(before: Copied, now: Seen) -> bool:
    changed_ns = max(now.mtime_ns, now.ctime_ns)
    return before.seen == now and changed_ns < before.looked_at_ns - SETTLED_NS


def _has_grown(before: Copied, now: Seen) -> bool:
    """Whether the file is the one it was, and as long as what is known of it."""
    is_same = (before.seen.device, before.seen.inode) == (now.device, now.inode)
    return is_same and before.whole is not None and now.size_bytes >= before.whole.end
