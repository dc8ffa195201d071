"""A real collector reads the largest allowed number of files, and is killed in between.

The test prints the time that the collector needs after a kill, but does not check this time,
because machines differ.
"""

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, TopicReader
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1_800)]

TOPIC = "t.many"
LINES_A_FILE = 3
FOLDERS = 100
APPENDED_EVERY = 1_000
READ_S = 600
"""The time without a new line after which the test fails, not the time for all lines."""


def line_of(number: int, turn: int) -> bytes:
    return b"%d of %d" % (turn, number)


def write_files(folder: Path, count: int) -> list[bytes]:
    """Write `count` small files into some folders. Return all their lines."""
    written: list[bytes] = []
    for number in range(count):
        place = folder / f"d{number % FOLDERS}"
        place.mkdir(exist_ok=True)
        lines = [line_of(number, turn) for turn in range(LINES_A_FILE)]
        (place / f"{number}.log").write_bytes(b"".join(line + b"\n" for line in lines))
        written += lines
    return written


def await_lines(reader: TopicReader, count: int) -> None:
    def arrived() -> int:
        return len(reader.poll())

    wait_until(lambda: arrived() >= count, READ_S, f"{count} lines", progress=arrived)


@pytest.mark.parametrize("count", [10_000, 100_000])
def test_a_collector_of_so_many_files_is_killed_and_reads_each_line_once(
    tmp_path: Path, count: int
) -> None:
    section = {"inputs": [{"paths": ["watched/**"], "topic": TOPIC}], "scan_interval": "5s"}
    with BrokerProcess(tmp_path / "broker") as broker:
        reader = TopicReader(broker.bootstrap, TOPIC)
        collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section)
        folder = collector.home / "watched/text"
        written = write_files(folder, count)
        try:
            collector.start(READ_S)
            await_lines(reader, len(written) // 2)
            collector.kill9()
            began_s = time.monotonic()
            collector.start(READ_S)
            in_the_middle_s = time.monotonic() - began_s
            await_lines(reader, len(written))
            wait_until(lambda: collector.details()["lag_bytes_total"] == 0, READ_S, "no lag")
            collector.kill9()
            began_s = time.monotonic()
            collector.start(READ_S)
            of_all_s = time.monotonic() - began_s
            for number in range(0, count, APPENDED_EVERY):
                with (folder / f"d{number % FOLDERS}" / f"{number}.log").open("ab") as file:
                    file.write(line_of(number, LINES_A_FILE) + b"\n")
                written.append(line_of(number, LINES_A_FILE))
            await_lines(reader, len(written))
            assert collector.stop() == 0
            reader.poll()
        finally:
            if collector.process is not None:
                collector.kill9()
            reader.close()
    found = Counter(value for _, _, value in reader.records)
    assert found == Counter(written)
    tell(
        f"{count} files, {len(written)} lines exactly once; at work again after a kill in the"
        f" middle in {in_the_middle_s:.1f} s, with all of them known in {of_all_s:.1f} s"
    )
