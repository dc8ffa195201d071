"""Read from a broker's data folder which brokers its cluster has, without starting any of them.

The voters of the metadata quorum are stored on the disk and not in the configuration. So a command
can compare the two before it starts anything. Each broker repeats this check when it starts.
"""

from pathlib import Path

from appliance.dump.folder import METADATA
from broker.cluster.snapshots import SnapshotFiles
from broker.storage.disk import OsDisk
from broker.storage.errors import DiskError


def brokers_of(folder: Path) -> tuple[int, ...]:
    """Return the ids of all brokers of the cluster that a broker's data folder belongs to.

    The ids are in ascending order. The result is empty for a new folder, and for an unreadable one,
    because its broker reports that.
    """
    metadata = folder / METADATA
    try:
        newest = SnapshotFiles(OsDisk(), str(metadata)).newest() if metadata.is_dir() else None
    except (OSError, DiskError):
        return ()
    return () if newest is None else tuple(key.node_id for key in newest.voters)
