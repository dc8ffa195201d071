"""The identity of a data folder: meta.properties names the cluster, the node and the folder.

A broker must not touch the data if the file names another cluster or node. The folder has its own
id (KIP-858), which is stored only on the disk that it names. A disk that was wiped gets a new id,
so its broker neither votes nor is in sync for data that it has lost. In a partition's folder,
`partition.metadata` says which topic the data belongs to, because topic names are reused.
"""

from __future__ import annotations

from uuid import UUID

from broker.config import BrokerConfig
from broker.storage import checkpoint
from broker.storage.disk import Disk
from broker.storage.errors import CorruptionError, FolderError
from broker.storage.folder import parse_folder_name
from protocol.types import Uuid, uuid_from_base64, uuid_to_base64

FORMAT_VERSION = "1"


def take_identity(disk: Disk, folder: str, config: BrokerConfig, new_id: Uuid) -> Uuid:
    """Return the folder's id. An empty folder gets `new_id`, and the id is written durably.

    Raises FolderError for a folder of another cluster or node, and for a folder with partitions but
    without meta.properties.
    """
    path = f"{folder}/{checkpoint.META_PROPERTIES}"
    ours = {
        "version": FORMAT_VERSION,
        "cluster.id": config.cluster_id,
        "node.id": str(config.node_id),
    }
    if not disk.exists(path):
        if any(parse_folder_name(name) for name in disk.list_folder(folder)):
            raise FolderError(
                folder,
                (
                    "there are partitions, but the file meta.properties is missing: restore the "
                    "file, or use an empty folder"
                ),
            )
        noted = ours | {"directory.id": uuid_to_base64(new_id)}
        disk.replace(path, checkpoint.encode_properties(noted), is_durable=True)
        return new_id
    try:
        theirs = checkpoint.decode_properties(disk.read_all(path))
        directory_id = uuid_from_base64(theirs.get("directory.id", ""))
    except ValueError as error:
        raise FolderError(folder, f"meta.properties cannot be read: {error}") from error
    for key, value in ours.items():
        if theirs.get(key) != value:
            raise FolderError(
                folder,
                f"this data folder has {key} {theirs.get(key)}, but the configuration has "
                f"{value}: use the folder of this broker, or an empty folder",
            )
    return directory_id


def read_topic_id(disk: Disk, path: str) -> UUID | None:
    """Return the id of the topic in a partition's folder; None if the folder was not completed and
    has no data."""
    file = f"{path}/{checkpoint.PARTITION_METADATA}"
    if disk.exists(file):
        try:
            return checkpoint.decode_partition_metadata(disk.read_all(file))
        except ValueError as error:
            if _has_data(disk, path):
                raise CorruptionError(file, 0, str(error)) from error
            return None
    if _has_data(disk, path):
        raise CorruptionError(
            file, 0, "the folder has segments, but this file with the topic id is missing"
        )
    return None


def _has_data(disk: Disk, path: str) -> bool:
    names = [name for name in disk.list_folder(path) if name.endswith(".log")]
    return any(disk.size_bytes(f"{path}/{name}") for name in names)
