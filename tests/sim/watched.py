"""A node's disk and logs, which report what the invariants of a simulation check."""

from __future__ import annotations

from collections.abc import Callable

from broker.config import BrokerConfig
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.truncation import Truncation
from protocol.types import Uuid
from tests.sim.disk import SimDisk


class WatchedDisk(SimDisk):
    """A disk that reports each renamed folder before the rename."""

    def __init__(self, renames: Callable[[str, str], None]) -> None:
        super().__init__()
        self._renames = renames

    def rename(self, path: str, target: str) -> None:
        self._renames(path, target)
        super().rename(path, target)


class WatchedLogs(LogManager):
    """Logs that remember how much of a log was durable before a truncation.

    A truncation first lowers the recovery point. If the disk rejects the rest, the recovery point
    stays low although the records are still durable.
    """

    def __init__(self, disk: SimDisk, config: BrokerConfig, new_directory_id: Uuid) -> None:
        super().__init__(disk, config, new_directory_id)
        self._kept: dict[Log, int] = {}

    def begin_truncation(self, log: Log, offset: int, now_ms: int) -> Truncation | None:
        self._kept[log] = min(self.durable_end(log), offset)
        return super().begin_truncation(log, offset, now_ms)

    def durable_end(self, log: Log) -> int:
        """Return the offset below which all records of a log are durable."""
        kept = self._kept.get(log, 0) if log._is_out_of_service else 0
        return max(log.recovery_point, kept)
