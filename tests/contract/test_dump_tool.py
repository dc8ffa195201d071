"""Apache Kafka's own dump tool finds no fault in our log files.

The files have batches with each codec, compacted batches, committed, aborted and open transactions
with their indexes, and producer snapshots. The test reads all of them again after a start with
recovery. The tool's exit code is not enough, so the test searches its output for every word that
means a fault.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from broker.storage import producer_snapshot, txn_index
from broker.storage.disk import OsDisk
from broker.storage.log import Log
from broker.storage.log_cleaning import adopt_cleaned, plan_cleaning
from broker.storage.log_manager import LogManager
from protocol.types import TopicPartition
from protocol.wire.records import Codec, read_header
from tests.harness.kafka import kafka_jars
from tests.harness.seed import seeded
from tests.unit.storage.kit import DIRECTORY_ID, NOW, TOPIC_ID, TP, append, batch, broker_config

pytestmark = pytest.mark.slow

DUMP = "org.apache.kafka.tools.DumpLogSegments"
DUMP_DEADLINE_S = 120
COMPLAINTS = re.compile(
    r"isvalid: false|invalid bytes|Non-consecutive|Mismatches|mismatch|out of order|Exception"
)


# If a file does not begin at offset 0, the tool reports a gap between offset -1 and the file's
# first offset. This is a false alarm.
FALSE_ALARM = re.compile(
    r"Non-consecutive offsets in \S*/0*([1-9]\d*)\.log\n  -1 is followed by \1\n"
)


def dump(*arguments: str) -> str:
    """Run the tool. Return its output on both streams, and its exit code."""
    command = ["java", "-Xmx256M", "-cp", f"{kafka_jars()}/*", DUMP, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=DUMP_DEADLINE_S
    )
    return f"{done.stdout}\n{done.stderr}\nexit code {done.returncode}\n"


def complaints(printed: str) -> list[str]:
    return COMPLAINTS.findall(FALSE_ALARM.sub("", printed))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Write a partition with every kind of batch that a log can contain. Return its folder and its
    number of records."""
    chance = seeded("dump tool")
    home = tmp_path_factory.mktemp("kafka")
    config = broker_config(
        {"log.segment.bytes": 60_000, "log.index.interval.bytes": 1024}, log_dir=str(home / "data")
    )
    disk = OsDisk()
    manager = LogManager(disk, config, DIRECTORY_ID)
    manager.open_all(NOW)
    log = manager.create(TP, TOPIC_ID, config.log_config(), NOW)
    sequences = {1: 0, 2: 0}
    for number in range(1200):
        count = chance.randint(1, 8)
        producer = chance.choice([1, 2, -1])
        ids = (producer, 0, sequences[producer]) if producer > 0 else (-1, -1, -1)
        if producer > 0:
            sequences[producer] += count
        view = batch(
            *[b"%d" % number * chance.randint(1, 60) for _ in range(count)],
            # The timestamps are not in ascending order, and some batches have none.
            timestamps=[NOW + number * 10 + chance.randint(-500, 500) for _ in range(count)]
            if number % 50
            else [-1] * count,
            key=b"key" if number % 2 else None,
            producer=ids,
            codec=chance.choice(list(Codec)),
        )
        log.append(view, read_header(view), number // 300, NOW + number * 10)
        if chance.random() < 0.3:
            log.write_staged(NOW + number * 10)
        if number == 700:
            # Reopen the log without a clean stop. The batches that follow must continue it without
            # a gap.
            log.write_staged(NOW)
            manager.release()
            manager = LogManager(disk, config, DIRECTORY_ID)
            manager.open_all(NOW)
            log = manager.logs[TP]
    log.write_staged(NOW)
    assert len(log.segments) > 5
    record_count = log.log_end_offset
    manager.close_clean()
    return home / "data" / str(TP), record_count


def files(folder: Path, suffix: str, count_min: int = 6) -> str:
    found = sorted(str(path) for path in folder.iterdir() if path.name.endswith(suffix))
    assert len(found) >= count_min
    return ",".join(found)


def test_the_tool_notices_what_is_wrong(tmp_path: Path, written: tuple[Path, int]) -> None:
    folder, _ = written
    source = folder / f"{0:020d}.log"
    damaged = tmp_path / source.name
    data = bytearray(source.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    assert complaints(dump("--files", str(damaged)))


def test_every_batch_and_record_is_read(written: tuple[Path, int]) -> None:
    folder, record_count = written
    printed = dump("--files", files(folder, ".log"), "--deep-iteration", "--print-data-log")
    assert complaints(printed) == []
    assert "exit code 0" in printed
    assert printed.count("| offset:") == record_count
    assert len(set(re.findall(r"compresscodec: (\w+)", printed))) == 5


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("check", ["--verify-index-only", "--index-sanity-check"])
def test_every_index_agrees_with_its_log(
    written: tuple[Path, int], suffix: str, check: str
) -> None:
    folder, _ = written
    names = files(folder, suffix)
    printed = dump("--files", names, check)
    assert complaints(printed) == [], printed
    assert "exit code 0" in printed
    if check == "--index-sanity-check":
        assert len(re.findall(r"passed sanity check|is empty", printed)) == names.count(",") + 1


CLEANED = TopicPartition("cleaned", 2)
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
    "delete.retention.ms": "1000",
}
PRODUCERS = {5: True, 6: False}
"""Producer id -> True if its transactions are committed, False if they are aborted."""


class Writer:
    """Fills a compacted log with keys, tombstones, batches of each codec, and transactions."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.chance = seeded("dump tool, transactions")
        self.sequences = dict.fromkeys((1, *PRODUCERS), 0)

    def fill(self, count: int) -> None:
        for number in range(count):
            producer = self.chance.choice(list(self.sequences))
            size = self.chance.randint(1, 6)
            values = [b"%d" % number * self.chance.randint(1, 40) for _ in range(size)]
            view = batch(
                *[None if self.chance.random() < 0.1 else value for value in values],
                keys=[b"key %d" % self.chance.randint(0, 40) for _ in range(size)],
                timestamp_ms=NOW + number,
                producer=(producer, 0, self.sequences[producer]),
                is_transactional=producer in PRODUCERS,
                codec=self.chance.choice(list(Codec)),
            )
            self.sequences[producer] += size
            append(self.log, view, 0, NOW + number)
            if number % 7 == 6:
                for ended, is_commit in PRODUCERS.items():
                    self.log.append_marker(ended, 0, is_commit, 3, 0, NOW + number)
            self.log.write_staged(NOW + number)
        self.flush()

    def flush(self) -> None:
        target = self.log.flush_target()
        assert target is not None
        target.perform()
        self.log.flushed(target)
        self.log.advance_high_watermark(self.log.recovery_point)


def clean(manager: LogManager, log: Log, now_ms: int) -> int:
    job = plan_cleaning(log, now_ms, 1 << 22)
    assert job is not None
    while not manager.clean(log, job):
        pass
    adopt_cleaned(log, job, now_ms).perform()
    manager.checkpoint().perform()
    return len(job.done)


@pytest.fixture(scope="module", params=["stopped", "recovered"])
def cleaned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a partition, compact it twice and append more records. Then stop the broker cleanly, or
    kill it and recover."""
    home = tmp_path_factory.mktemp("cleaned")
    config = broker_config({"log.index.interval.bytes": 1024}, log_dir=str(home / "data"))
    disk = OsDisk()
    manager = LogManager(disk, config, DIRECTORY_ID)
    manager.open_all(NOW)
    settings = config.log_config(COMPACT)
    log = manager.create(CLEANED, TOPIC_ID, settings, NOW)
    writer = Writer(log)
    # The compaction will remove all records of this producer's only batch. The empty batch must
    # stay, because it keeps the producer's sequence.
    view = batch(b"silent", key=b"key 0", producer=(9, 0, 0))
    append(log, view, 0, NOW)
    for round_number in range(2):
        writer.fill(400)
        assert clean(manager, log, NOW + round_number * 2000) > 0
    writer.fill(150)
    folder = home / "data" / str(CLEANED)
    if request.param == "recovered":
        manager.release()
        with (folder / f"{log.segments.last_base_offset:020d}.log").open("ab") as torn:
            torn.write(b"torn" * 25)
        manager = LogManager(disk, config, DIRECTORY_ID)
        assert manager.open_all(NOW).truncated
        manager.logs[CLEANED].use(settings)
    manager.close_clean()
    return folder


def test_cleaned_segments_are_read(cleaned: Path) -> None:
    printed = dump("--files", files(cleaned, ".log", 3), "--deep-iteration", "--print-data-log")
    # The tool does not know compacted logs, so it reports every gap as non-consecutive.
    assert set(complaints(printed)) <= {"Non-consecutive"}
    assert "exit code 0" in printed
    assert "isTransactional: true isControl: true" in printed
    assert "endTxnMarker: COMMIT coordinatorEpoch: 3" in printed
    assert "endTxnMarker: ABORT coordinatorEpoch: 3" in printed
    assert "deleteHorizonMs: OptionalLong[" in printed
    assert re.search(r"baseOffset: \d+ lastOffset: \d+ count: 0 ", printed)
    assert len(set(re.findall(r"compresscodec: (\w+)", printed))) == 5


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("check", ["--verify-index-only", "--index-sanity-check"])
def test_indexes_of_cleaned_segments_agree(cleaned: Path, suffix: str, check: str) -> None:
    printed = dump("--files", files(cleaned, suffix, 3), check)
    assert complaints(printed) == [], printed
    assert "exit code 0" in printed


def test_transaction_indexes_are_read(cleaned: Path) -> None:
    found = files(cleaned, ".txnindex", 1)
    printed = dump("--files", found)
    assert complaints(printed) == [], printed
    assert "exit code 0" in printed
    pattern = r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) "
    rows = re.findall(pattern + r"lastStableOffset: (\d+)", printed)
    ours = [
        entry
        for name in found.split(",")
        for entry in txn_index.decode(Path(name).read_bytes(), 0, 2**62)
    ]
    assert [tuple(int(one) for one in row) for row in rows] == [tuple(one) for one in ours]
    assert {entry.producer_id for entry in ours} == {6}


def test_snapshots_are_read(cleaned: Path) -> None:
    found = files(cleaned, ".snapshot", 1)
    printed = dump("--files", found)
    assert complaints(printed) == [], printed
    assert "exit code 0" in printed
    pattern = r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) "
    rows = re.findall(pattern + r"currentTxnFirstOffset: (\S+) lastTimestamp: (\d+)", printed)
    ours = [
        entry
        for name in found.split(",")
        for entry in producer_snapshot.decode(Path(name).read_bytes())
    ]
    assert {int(row[0]) for row in rows} == {entry.producer_id for entry in ours} == {1, 5, 6, 9}
    assert {int(row[2]) for row in rows} == {-1, 3}
