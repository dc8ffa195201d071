"""Which brokers a data folder says its cluster has, read without starting any of them.

Who votes stands on the disk and not in the configuration, so that the two can be held against each
other before anything starts. Each broker does the same again with all that it finds there.
"""

from pathlib import Path

from appliance.dump.folder import LOG, METADATA
from broker.cluster.snapshots import SnapshotFiles
from broker.storage.disk import OsDisk
from broker.storage.errors import DiskError
from protocol.wire.records import HEADER_BYTES


def brokers_of(folder: Path, node_id: int) -> tuple[int, ...]:
    """The ids of all brokers of the cluster to which broker `node_id`'s data folder belongs.

    Rising; empty for a folder that is new, and for one that cannot be read, which its broker tells.
    """
    metadata = folder / METADATA
    try:
        newest = SnapshotFiles(OsDisk(), str(metadata)).newest() if metadata.is_dir() else None
        if newest is not None:
            return tuple(key.node_id for key in newest.voters)
        # Versions without a quorum wrote no voters: their broker was alone. Room that is laid out
        # ahead of the writes is zeros.
        is_lone = any(any(_beginning(path)) for path in metadata.glob(f"*{LOG}"))
    except (OSError, DiskError):
        return ()
    return (node_id,) if is_lone else ()


def _beginning(path: Path) -> bytes:
    """As much of a log as the header of its first batch."""
    with path.open("rb") as file:
        return file.read(HEADER_BYTES)
