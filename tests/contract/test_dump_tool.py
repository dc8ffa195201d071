"""Apache Kafka's own dump tool reads what we write, without a complaint.

Its exit code says little, so its text is searched for every word it has for a fault.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from broker.storage.disk import OsDisk
from broker.storage.log_manager import LogManager
from protocol.wire.records import Codec, read_header
from tests.harness.kafka import kafka_jars
from tests.harness.seed import seeded
from tests.unit.storage.kit import NOW, TOPIC_ID, TP, batch, broker_config

pytestmark = pytest.mark.slow

DUMP = "org.apache.kafka.tools.DumpLogSegments"
DUMP_DEADLINE_S = 120
COMPLAINTS = re.compile(
    r"isvalid: false|invalid bytes|Non-consecutive|Mismatches|mismatch|out of order|Exception"
)


# The tool takes any file that does not begin at offset 0 for a gap behind "-1".
FALSE_ALARM = re.compile(
    r"Non-consecutive offsets in \S*/0*([1-9]\d*)\.log\n  -1 is followed by \1\n"
)


def dump(*arguments: str) -> str:
    """What the tool printed on both streams, and its exit code."""
    command = ["java", "-Xmx256M", "-cp", f"{kafka_jars()}/*", DUMP, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=DUMP_DEADLINE_S
    )
    return f"{done.stdout}\n{done.stderr}\nexit code {done.returncode}\n"


def complaints(printed: str) -> list[str]:
    return COMPLAINTS.findall(FALSE_ALARM.sub("", printed))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A partition with all that a log can hold: the folder and the number of records."""
    chance = seeded("dump tool")
    home = tmp_path_factory.mktemp("kafka")
    config = broker_config(
        {"log.segment.bytes": 60_000, "log.index.interval.bytes": 1024}, log_dir=str(home / "data")
    )
    disk = OsDisk()
    manager = LogManager(disk, config)
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
            # Not in the order of time, and some without any.
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
            # A restart without a clean stop in the middle: what is written after it must fit.
            log.write_staged(NOW)
            manager.release()
            manager = LogManager(disk, config)
            manager.open_all(NOW)
            log = manager.logs[TP]
    log.write_staged(NOW)
    assert len(log.segments) > 5
    record_count = log.log_end_offset
    manager.close_clean()
    return home / "data" / str(TP), record_count


def files(folder: Path, suffix: str) -> str:
    found = sorted(str(path) for path in folder.iterdir() if path.name.endswith(suffix))
    assert len(found) > 5
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
