"""Read from a broker's data folder which brokers its cluster has, without starting any of them.

The voters of the metadata quorum are stored on the disk and not in the configuration. So a command
can compare the two before it starts anything. Each broker repeats this check when it starts.
"""

from pathlib import Path

from appliance.dump.folder import LOG, METADATA
from broker.cluster.snapshots import SnapshotFiles
from broker.storage.disk import OsDisk
from broker.storage.errors import DiskError
from protocol.wire.records import HEADER_BYTES


def brokers_of(folder: Path, node_id: int) -> tuple[int, ...]:
    """Return the ids of all brokers of the cluster that broker `node_id`'s data folder belongs to.

    The ids are in ascending order. The result is empty for a new folder, and for an unreadable one,
    because its broker reports that.
    """
    metadata = folder / METADATA
    try:
        newest = SnapshotFiles(OsDisk(), str(metadata)).newest() if metadata.is_dir() else None
        if newest is not None:
            return tuple(key.node_id for key in newest.voters)
        # Versions without a quorum stored no voters, and had only one broker. A log of zeros has
        # only space that was allocated before any write, so it does not count.
        is_lone = any(any(_beginning(path)) for path in metadata.glob(f"*{LOG}"))
    except (OSError, DiskError):
        return ()
    return (node_id,) if is_lone else ()


def _beginning(path: Path) -> bytes:
    """Read the beginning of a log, up to the end of its first batch header."""
    with path.open("rb") as file:
        return file.read(HEADER_BYTES)
