"""On what kind of file system watched folders lie, and what that does not promise.

Pure but for the one reader of `/proc/self/mountinfo`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from appliance.checks.startup import Check, Level
from appliance.mill.settings import Mill
from collector.identity.discovery import plan

NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre"})
"""Kinds whose inode numbers, sizes and events are another machine's word."""
NETWORK_FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone")

_ESCAPED = re.compile(r"\\([0-7]{3})")


def mounts_of_this_process() -> str:
    """The kernel's table of what is mounted; empty where it has none."""
    try:
        return Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return ""


def watched_folders(mill: Mill, mounts: str) -> Iterator[Check]:
    """One finding for each folder of the inputs that lies on a network's file system."""
    patterns = plan(mill.config.collector.inputs, str(mill.home.folder))
    for root in sorted({pattern.root for pattern in patterns}):
        kind = kind_of(str(Path(root).resolve()), mounts)
        if kind is not None and is_network(kind):
            yield Check(
                Level.WARNING,
                "watched folder",
                f"{root} is on {kind}: files written elsewhere are found by looking, each"
                " scan_interval, and one that is replaced may keep its inode number",
                "let the collector run where the files are written",
            )


def is_network(kind: str) -> bool:
    """Whether files of this kind may change without this machine's doing."""
    return kind in NETWORK or kind.startswith(NETWORK_FUSE)


def kind_of(path: str, mountinfo: str) -> str | None:
    """The kind of the file system that holds a path, by the kernel's table; None: not in it."""
    found: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5 or not kinds[0]:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
        holds = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two on the same point the later one hides the other.
        if holds and (found is None or len(point) >= found[0]):
            found = len(point), kinds[0]
    return None if found is None else found[1]
