"""Find watched folders on network file systems, and say what such a file system does not guarantee.

This module is pure except for the one function that reads `/proc/self/mountinfo`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from appliance.checks.startup import Check, CheckLevel
from appliance.mill.settings import Mill
from collector.identity.discovery import plan

NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre"})
"""The kinds of file systems whose inode numbers, sizes and events come from another machine."""
NETWORK_FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone")

_ESCAPED = re.compile(r"\\([0-7]{3})")


def mounts_of_this_process() -> str:
    """Return the kernel's mount table; empty on a system without one."""
    try:
        return Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return ""


def watched_folders(mill: Mill, mounts: str) -> Iterator[Check]:
    """Return one finding for each folder of the inputs that is on a network file system."""
    patterns = plan(mill.config.collector.inputs, str(mill.home.folder))
    for root in sorted({pattern.root for pattern in patterns}):
        kind = kind_of(str(Path(root).resolve()), mounts)
        if kind is not None and is_network(kind):
            yield Check(
                CheckLevel.WARNING,
                "watched folder",
                f"{root} is on {kind}: files that another machine writes are found by scanning,"
                " once in each scan_interval, and a replaced file can keep its inode number",
                "run the collector on the machine that writes the files",
            )


def is_network(kind: str) -> bool:
    """Return whether this kind of file system is on a network, so that other machines can change
    it."""
    return kind in NETWORK or kind.startswith(NETWORK_FUSE)


def kind_of(path: str, mountinfo: str) -> str | None:
    """Return the kind of file system that contains a path; None if the mount table does not say."""
    found: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5 or not kinds[0]:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
        holds = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts on the same point, the later one hides the earlier one, so prefer it (`>=`).
        if holds and (found is None or len(point) >= found[0]):
            found = len(point), kinds[0]
    return None if found is None else found[1]
