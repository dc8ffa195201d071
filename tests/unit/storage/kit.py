"""Helpers of the storage tests: hand-made batches, and a broker's logs on a simulated disk."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence

from broker.config import BrokerConfig, LogConfig
from broker.storage.disk import Disk
from broker.storage.dropped import DroppedFiles
from broker.storage.errors import RecordsUnseen
from broker.storage.log import Log
from broker.storage.log_cleaning import adopt_cleaned, plan_cleaning
from broker.storage.log_manager import LogManager
from broker.storage.open_report import OpenReport
from broker.storage.outcomes import AppendResult, CheckedRecords
from broker.storage.retention import drop_below, expire
from broker.storage.validation import look_at_records
from protocol.types import TopicPartition
from protocol.wire.record import NewRecord, Record
from protocol.wire.records import build_batch, iterate_batches, iterate_records, read_header
from tests.sim.disk import SimDisk

NOW = 1_800_000_000_000
FOLDER = "/data"
TP = TopicPartition("logs.access", 0)
DIRECTORY_ID = uuid.UUID("0d1bf0a2-4b54-4c8e-9d5a-3c1c5c1f4f01")
TOPIC_ID = uuid.UUID("5f0c2e0e-9d3e-4f60-9b3a-0a8f0e6a7c11")
EVERYTHING = 2**62
MANY = 1_000
MAP_BYTES = 1 << 20


def broker_config(
    settings: Mapping[str, object] | None = None, *, log_dir: str = FOLDER, **changes: object
) -> BrokerConfig:
    raw: dict[str, object] = {
        "part": "broker-1",
        "node_id": 1,
        "cluster_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "log_dir": log_dir,
        "listeners": {},
        "settings": settings or {},
    }
    return BrokerConfig.from_json(raw | changes)


def batch(
    *values: bytes | None,
    timestamp_ms: int = NOW,
    timestamps: Sequence[int] | None = None,
    key: bytes | None = None,
    keys: Sequence[bytes] | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: int = 0,
    is_transactional: bool = False,
) -> memoryview:
    """Return a batch as a client sends it. `producer` is its producer id, epoch and base
    sequence."""
    stamps = timestamps or [timestamp_ms] * len(values)
    names: Sequence[bytes | None] = keys or [key] * len(values)
    rows = zip(names, values, stamps, strict=True)
    records = [NewRecord(name, value, at) for name, value, at in rows]
    return memoryview(
        build_batch(
            records,
            codec=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            is_transactional=is_transactional,
        )
    )


def append(log: Log, view: memoryview, leader_epoch: int, now_ms: int) -> AppendResult:
    """Append one batch. Check its records first if the log requires that."""
    header = read_header(view)
    try:
        return log.append(view, header, leader_epoch, now_ms)
    except RecordsUnseen:
        return log.append(view, header, leader_epoch, now_ms, look(view, log.config, now_ms))


def look(view: memoryview, config: LogConfig, now_ms: int) -> CheckedRecords:
    """Check all records of a batch in one step."""
    steps = look_at_records(view, config, now_ms)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            seen: CheckedRecords = done.value
            return seen


class Node:
    """The log of one partition on a broker's simulated disk.

    `reopen` opens the log again. `crash` cuts the power and then opens the log again.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        topic: Mapping[str, str] | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.sim = SimDisk()
        self.sim.now_ms = NOW
        self.disk: Disk = disk or self.sim
        self.config = broker_config(settings)
        self.topic = dict(topic or {})
        self.manager = LogManager(self.disk, self.config, DIRECTORY_ID)
        self.manager.open_all(NOW)
        self.log = self.manager.create(TP, TOPIC_ID, self.log_config, NOW)

    @property
    def log_config(self) -> LogConfig:
        return self.config.log_config(self.topic)

    def reopen(self, now_ms: int = NOW) -> OpenReport:
        """Open the logs again with the data on the disk, without a clean stop."""
        self.manager.release()
        self.manager = LogManager(self.disk, self.config, DIRECTORY_ID)
        report = self.manager.open_all(now_ms)
        found = self.manager.get(TP)
        if found is not None:
            self.log = found
            self.log.use(self.log_config)
        return report

    def restart(self, now_ms: int = NOW) -> OpenReport:
        """Stop cleanly and open the logs again."""
        self.manager.close_clean()
        return self.reopen(now_ms)

    def crash(self, chance: random.Random, now_ms: int = NOW) -> OpenReport:
        """Cut the power and open the logs again."""
        self.sim.crash(chance)
        return self.reopen(now_ms)

    def path(self, name: str) -> str:
        return f"{FOLDER}/{TP}/{name}"

    def segment_path(self, base_offset: int = 0, suffix: str = ".log") -> str:
        return self.path(f"{base_offset:020d}{suffix}")

    def names(self) -> list[str]:
        return self.disk.list_folder(f"{FOLDER}/{TP}")

    def put(
        self, *batches: memoryview, leader_epoch: int = 0, now_ms: int = NOW
    ) -> list[AppendResult]:
        """Append batches and write them together."""
        done = [append(self.log, one, leader_epoch, now_ms) for one in batches]
        self.log.write_staged(now_ms)
        return done

    def truncate(self, offset: int) -> None:
        """Truncate the log to an offset."""
        truncation = self.manager.begin_truncation(self.log, offset, NOW)
        if truncation is not None:
            self.log.truncated(truncation.perform())

    def reset(self, offset: int) -> None:
        """Drop all records and continue at an offset."""
        self.log.truncated(self.manager.begin_reset(self.log, offset, NOW).perform())

    def flush(self) -> int:
        target = self.log.flush_target()
        if target is not None:
            target.perform()
            self.log.flushed(target)
        self.log.advance_high_watermark(self.log.recovery_point)
        return self.log.recovery_point


def retain(node: Node, now_ms: int) -> DroppedFiles | None:
    """Apply retention as the broker does: the new log start is durable before segments are
    deleted."""
    if not expire(node.log, now_ms):
        return None
    start_offset = node.log.log_start_offset
    node.manager.checkpoint(frees_room=True).perform()
    return drop_below(node.log, start_offset, now_ms)


def compact(node: Node) -> None:
    """Compact as the broker does. The checkpoints that recovery needs are durable before the
    cleaned segments."""
    job = plan_cleaning(node.log, NOW, MAP_BYTES)
    assert job is not None, "nothing to clean"
    while not node.manager.clean(node.log, job):
        pass
    adopt_cleaned(node.log, job, NOW).perform()


def batches_of(log: Log, offset: int | None = None, max_bytes: int = EVERYTHING) -> list[bytes]:
    """Return every whole batch from an offset on, as a consumer reads them."""
    at = log.log_start_offset if offset is None else offset
    found: list[bytes] = []
    while True:
        region = log.read(at, max_bytes, EVERYTHING).region
        if region is None:
            return found
        for header, view in iterate_batches(region.read()):
            found.append(bytes(view))
            at = header.last_offset + 1


def records_of(log: Log, offset: int | None = None) -> list[Record]:
    return [record for one in batches_of(log, offset) for record in iterate_records(one)]


def values_of(log: Log, offset: int | None = None) -> list[bytes | None]:
    return [record.value for record in records_of(log, offset)]
