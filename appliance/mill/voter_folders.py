"""Reads the voters of a cluster from the data folders of its brokers, without starting any broker.

The voters of the metadata quorum are stored on the disk and not in the configuration. So a command
can compare the stored voters with the configuration before it starts anything. Each broker repeats
this check when it starts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from appliance.config.model import MillConfig
from appliance.dump.folder import METADATA
from appliance.machine.files import PRIVATE, write_atomically
from appliance.mill.home import Home
from appliance.mill.parts import BROKER_PREFIX, broker_ids, first_voters
from broker.cluster.snapshots import SnapshotFiles
from broker.config import BROKER_LISTENER
from broker.quorum.snapshot import SnapshotId
from broker.storage.disk import OsDisk
from broker.storage.errors import DiskError

NEWCOMER_MARK = "joins"
"""The file in a broker's data folder that says: while this disk is empty, its broker joins the
cluster that exists."""


@dataclass(frozen=True, slots=True)
class StoredVoters:
    """The ids of the voters in the newest snapshot of a folder, in ascending order."""

    snapshot_id: SnapshotId
    ids: tuple[int, ...]
    hosts: Mapping[int, str] = field(default_factory=dict)
    """The hosts at which the voters reach each other, by id."""


def stored_voters(folder: Path) -> StoredVoters | None:
    """Return the voters of the cluster to which a broker's data folder belongs.

    Return None for a new folder, and for the folder of a broker that has just joined. Return None
    for an unreadable folder too, because the broker reports that itself.
    """
    metadata = folder / METADATA
    try:
        newest = SnapshotFiles(OsDisk(), str(metadata)).newest() if metadata.is_dir() else None
    except (OSError, DiskError):
        return None
    if newest is None:
        return None
    ids = tuple(sorted(key.node_id for key in newest.voters))
    hosts = {
        voter.key.node_id: one.host
        for voter in newest.voters.voters
        for one in voter.endpoints
        if one.name == BROKER_LISTENER
    }
    return StoredVoters(newest.snapshot_id, ids, hosts) if ids else None


def newest_voters(home: Home, ids: Iterable[int]) -> StoredVoters | None:
    """Return the voters in the newest snapshot in the folders of these brokers.

    A broker that was stopped can have an older snapshot. Each change of the voters is in a
    snapshot.
    """
    found = (stored_voters(home.part_data(f"{BROKER_PREFIX}{number}")) for number in ids)
    return max(
        (one for one in found if one is not None), key=lambda one: one.snapshot_id, default=None
    )


def joins_cluster(home: Home, config: MillConfig, number: int) -> bool:
    """Return whether a broker with an empty folder joins the others (decision 0151).

    It joins if the other brokers have a cluster in which it is not a voter. If there is no cluster
    yet, the first brokers form one, and all others join it. The setting has no effect on a folder
    that is not empty. A host has no folders of brokers on other hosts, so there a mark says that
    the cluster exists.
    """
    known = newest_voters(home, broker_ids(config))
    if known is None:
        return number not in first_voters(config) or _newcomer_mark(home, number).exists()
    return number not in known.ids


def mark_newcomer(home: Home, number: int) -> None:
    """Let a broker with an empty data folder join the cluster that exists.

    The mark is in the data folder, so it is lost with the disk. A disk that is emptied later counts
    as a lost voter again, and its broker does not start. The mark has no effect on other disks.
    """
    mark = _newcomer_mark(home, number)
    mark.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(mark, b"", mode=PRIVATE)


def is_empty_folder(home: Home, number: int) -> bool:
    """Return True if a broker's data folder has nothing but the mark, or does not exist."""
    mark = _newcomer_mark(home, number)
    return not mark.parent.is_dir() or all(one == mark for one in mark.parent.iterdir())


def _newcomer_mark(home: Home, number: int) -> Path:
    return home.part_data(f"{BROKER_PREFIX}{number}") / NEWCOMER_MARK
