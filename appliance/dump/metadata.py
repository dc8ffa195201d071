"""Snapshots of the metadata: what cannot be so in one, and how their log goes on. Pure.

A snapshot is of use only as a whole, so the first thing that is wrong with it is told and no more.
The leader epoch of its batches, which no checksum covers, is held against the file's name. Its end
offset stands in the name alone: another one of the same epoch under its name is not found out.
"""

from collections.abc import Collection, Iterator

from appliance.dump.scan import Batches, Finding
from broker.quorum.snapshot import SnapshotId, check_snapshot
from protocol.errors import WireError


def check(file: str, data: bytes, snapshot_id: SnapshotId) -> tuple[int, list[Finding]]:
    """How many batches a snapshot has, and what is wrong with it."""
    batches = list(Batches(memoryview(data)))
    epoch = snapshot_id.epoch
    findings = [
        Finding(file, batch.position, f"the leader epoch is {found}, the file's name says {epoch}")
        for batch in batches
        if (found := batch.header.partition_leader_epoch) != epoch
    ]
    try:
        check_snapshot(data)
    except WireError as error:
        return len(batches), [Finding(file, None, str(error) or type(error).__name__)]
    return len(batches), findings[:1]


def check_reach(
    folder: str, log_start_offset: int, snapshots: Collection[SnapshotId]
) -> Iterator[Finding]:
    """What the newest snapshot leaves out the log must have: it begins there, or before it."""
    newest = max((one.end_offset for one in snapshots), default=None)
    if log_start_offset > (newest or 0):
        known = "and there is no snapshot"
        if newest is not None:
            known = f"the newest snapshot ends at {newest}"
        yield Finding(folder, None, f"the log begins at offset {log_start_offset}, {known}")
