"""The real disk and its simulated double hold the same files after the same history of a broker's
logs."""

from __future__ import annotations

import time
from pathlib import Path

from broker.storage.disk import Disk, OsDisk
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.retention import drop_below, expire
from protocol.types import TopicPartition
from protocol.wire.records import read_header
from tests.sim.disk import SimDisk
from tests.unit.storage.kit import DIRECTORY_ID, EVERYTHING, TOPIC_ID, batch, broker_config

SETTINGS = {"log.segment.bytes": 900, "log.index.interval.bytes": 200, "log.retention.bytes": 3000}
# Use the real time. The real disk stamps files with it, and the log would expire producers whose
# batches are much older.
NOW = int(time.time() * 1000)
KEPT = TopicPartition("kept", 0)
GONE = TopicPartition("gone", 3)


def live(disk: Disk, log_dir: str) -> list[bytes]:
    """Write, roll, flush, crash, recover, drop, delete and stop. Return the records that consumers
    saw."""
    config = broker_config(SETTINGS, log_dir=log_dir)
    seen: list[bytes] = []

    def write(log: Log, first: int, count: int) -> None:
        for number in range(first, first + count):
            view = batch(b"%04d" % number * 9, timestamp_ms=NOW + number, producer=(1, 0, number))
            log.append(view, read_header(view), number // 20, NOW)
            if number % 3:
                log.write_staged(NOW)
        log.write_staged(NOW)
        target = log.flush_target()
        assert target is not None
        target.perform()
        log.advance_high_watermark(log.flushed(target))

    def look(log: Log) -> None:
        offset = log.log_start_offset
        while (region := log.read(offset, 500, EVERYTHING).region) is not None:
            seen.append(region.read())
            offset += len(region.read()) // len(batch(b"%04d" % 0 * 9))
        seen.append(repr(log.max_timestamp_record(EVERYTHING)).encode())

    manager = LogManager(disk, config, DIRECTORY_ID)
    manager.open_all(NOW)
    log = manager.create(KEPT, TOPIC_ID, config.log_config(), NOW)
    write(manager.create(GONE, TOPIC_ID, config.log_config(), NOW), 0, 5)
    write(log, 0, 60)
    look(log)
    manager.release()

    manager = LogManager(disk, config, DIRECTORY_ID)
    assert not manager.open_all(NOW).was_clean
    log = manager.logs[KEPT]
    log.advance_high_watermark(log.log_end_offset)
    write(log, 60, 10)
    assert expire(log, NOW)
    manager.checkpoint().perform()
    dropped = drop_below(log, log.log_start_offset, NOW)
    assert dropped is not None
    dropped.perform()
    dropped = manager.delete(GONE)
    assert dropped is not None
    dropped.perform()
    look(log)
    manager.close_clean()

    manager = LogManager(disk, config, DIRECTORY_ID)
    assert manager.open_all(NOW).was_clean
    look(manager.logs[KEPT])
    manager.close_clean()
    return seen


def everything(disk: Disk, folder: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.list_folder(folder):
        path = f"{folder}/{name}"
        if disk.is_folder(path):
            inside = everything(disk, path)
            found.update({f"{name}/{below}": data for below, data in inside.items()})
        else:
            found[name] = disk.read_all(path)
    return found


def test_both_disks_end_with_the_same_files(tmp_path: Path) -> None:
    real, double = OsDisk(), SimDisk()
    double.now_ms = NOW
    seen = live(real, str(tmp_path / "data"))
    assert live(double, "/data") == seen
    files = everything(real, str(tmp_path / "data"))
    assert everything(double, "/data") == files
    assert len(files) > 10
    assert sum(name.endswith(".log") for name in files) > 3
