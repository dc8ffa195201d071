"""All logs of a node: one folder, one lock, one set of checkpoints.

Floor: storage. Synchronous, over the `Disk` passed in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from broker.config import BrokerConfig, LogConfig
from broker.storage.disk import Disk
from broker.storage.log import DroppedFiles, Log
from protocol.types import TopicPartition


@dataclass(slots=True)
class OpenReport:
    """What opening found, for the log and for `/status`."""

    was_clean: bool
    dropped: DroppedFiles | None = None
    """Left-overs of deletions, to be unlinked in a thread."""
    truncated: list[tuple[TopicPartition, int, str]] = field(default_factory=list)
    """Torn tails that were cut: partition, bytes, what was wrong with the first of them."""
    offline: dict[TopicPartition, str] = field(default_factory=dict)
    """Partitions whose data is damaged below the durable floor, with the reason."""


class Checkpoint:
    """The node's three checkpoint files, ready to be written and synced in a thread."""

    def perform(self) -> None: ...


class LogManager:
    """The logs under `config.log_dir`.

    The constructor takes the folder's lock and checks (or writes) meta.properties; it raises
    FolderError for a folder that is in use or that belongs to another cluster or node.
    """

    logs: dict[TopicPartition, Log]
    offline: dict[TopicPartition, str]

    def __init__(self, disk: Disk, config: BrokerConfig) -> None:
        raise NotImplementedError

    def open_all(self, now_ms: int) -> OpenReport:
        """Open every partition folder, recovering from the recovery point after an unclean stop.

        The logs have the node's default settings; once the metadata is known, give each its own
        by assigning `log.config`.
        """
        raise NotImplementedError

    def create(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, now_ms: int
    ) -> Log:
        """Make an empty log, durably; one that exists under the same id is returned as it is."""
        raise NotImplementedError

    def get(self, topic_partition: TopicPartition) -> Log | None:
        raise NotImplementedError

    def delete(self, topic_partition: TopicPartition) -> DroppedFiles | None:
        """Take a log out of service by renaming its folder, durably."""
        raise NotImplementedError

    def checkpoint(self) -> Checkpoint:
        """The recovery points, log start offsets and high watermarks as they are, to be written.

        `perform()` of it belongs into a thread; one at a time.
        """
        raise NotImplementedError

    def close_clean(self) -> None:
        """Flush everything, write the checkpoints and the clean-shutdown marker, unlock."""
        raise NotImplementedError
