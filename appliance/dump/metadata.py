"""Check metadata snapshots, and that the log continues where they end.

This module is pure. A snapshot is only useful as a whole, so only its first fault is reported. No
checksum covers the leader epoch of its batches, so the epoch is compared with the file's name. Only
the file's name contains the end offset. So a snapshot that was renamed to another end offset of the
same epoch is not detected.
"""

from collections.abc import Collection, Iterator

from appliance.dump.scan import Batches, LogFinding
from broker.quorum.snapshot import SnapshotId, check_snapshot
from protocol.errors import WireError


def check(file: str, data: bytes, snapshot_id: SnapshotId) -> tuple[int, list[LogFinding]]:
    """Return the number of batches in a snapshot, and its fault."""
    batches = list(Batches(memoryview(data)))
    epoch = snapshot_id.epoch
    findings = [
        LogFinding(
            file, batch.position, f"the leader epoch is {found}, the file's name says {epoch}"
        )
        for batch in batches
        if (found := batch.header.partition_leader_epoch) != epoch
    ]
    try:
        check_snapshot(data)
    except WireError as error:
        return len(batches), [LogFinding(file, None, str(error) or type(error).__name__)]
    return len(batches), findings[:1]


def check_reach(
    folder: str, log_start_offset: int, snapshots: Collection[SnapshotId]
) -> Iterator[LogFinding]:
    """Check that the log begins at or before the end offset of the newest snapshot."""
    newest = max((one.end_offset for one in snapshots), default=None)
    if log_start_offset > (newest or 0):
        known = "and there is no snapshot"
        if newest is not None:
            known = f"the newest snapshot ends at {newest}"
        yield LogFinding(folder, None, f"the log begins at offset {log_start_offset}, {known}")
