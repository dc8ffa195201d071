"""Whose data folder this is, and what the folders in it are called.

Floor: storage. meta.properties names the cluster, the node and the folder itself; a broker that
finds another name there must not touch the data.
"""

from __future__ import annotations

from broker.config import BrokerConfig
from broker.storage import checkpoint
from broker.storage.disk import Disk
from broker.storage.errors import FolderError
from protocol.types import TopicPartition

FORMAT_VERSION = "1"
TOPIC_NAME_MAX = 249
"""Characters of a topic's name; with the partition's number the folder's name stays below 255."""

_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def folder_name(topic_partition: TopicPartition) -> str:
    """The folder of a partition; ValueError for a topic that must not become a path."""
    topic, partition = topic_partition
    if (
        not 0 < len(topic) <= TOPIC_NAME_MAX
        or topic in (".", "..")
        or not _CHARACTERS.issuperset(topic)
        or partition < 0
    ):
        raise ValueError(f"not a partition: {topic_partition!r}")
    return f"{topic}-{partition}"


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition whose folder has this name; None for anything else that lies about."""
    topic, dash, number = name.rpartition("-")
    if not dash or not number.isdecimal() or not number.isascii():
        return None
    topic_partition = TopicPartition(topic, int(number))
    try:
        return topic_partition if folder_name(topic_partition) == name else None
    except ValueError:
        return None


def check_identity(disk: Disk, folder: str, config: BrokerConfig) -> None:
    """Refuse a folder of another cluster, node or id; write the identity into an empty one."""
    path = f"{folder}/{checkpoint.META_PROPERTIES}"
    ours = {
        "cluster.id": config.cluster_id,
        "directory.id": config.directory_id,
        "node.id": str(config.node_id),
        "version": FORMAT_VERSION,
    }
    if not disk.exists(path):
        if any(parse_folder_name(name) for name in disk.list_folder(folder)):
            raise FolderError(folder, "there are partitions but no meta.properties")
        disk.replace(path, checkpoint.encode_properties(ours), is_durable=True)
        return
    try:
        theirs = checkpoint.decode_properties(disk.read_all(path))
    except ValueError as error:
        raise FolderError(folder, f"meta.properties cannot be read: {error}") from error
    for key in ("version", "cluster.id", "node.id", "directory.id"):
        if theirs.get(key) != ours[key]:
            raise FolderError(
                folder,
                f"this data folder has {key} {theirs.get(key)}, the configuration {ours[key]}; "
                "use the folder it was made for, or an empty one",
            )
