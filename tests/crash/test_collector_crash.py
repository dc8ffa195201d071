"""The collector and the broker killed under load: nothing is lost, order per file is kept."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, TopicReader
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

SEED = int(os.environ.get("MILLRACE_SEED") or random.SystemRandom().randrange(1 << 32))

# Appends numbered lines to three files, in uneven pieces, and renames the second one now and then.
WRITER = """
import os, random, sys, time
folder, count, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(5)
def opened(name):
    return open(os.path.join(folder, name), "ab", buffering=0)
files = [opened("a.log"), opened("b.log"), opened("c.log")]
begin, rotations = time.monotonic(), 0
for number in range(0, count, 10):
    index = rng.randrange(3)
    line = b"%c %08d " + b"x" * 80 + b"\\n"
    data = b"".join(line % (97 + index, n) for n in range(number, number + 10))
    cut = rng.randrange(len(data))
    files[index].write(data[:cut])
    files[index].write(data[cut:])
    if index == 1 and rng.random() < 0.01:
        rotations += 1
        os.rename(os.path.join(folder, "b.log"), os.path.join(folder, "b.log.%d" % rotations))
        files[1] = opened("b.log")
    ahead = number / rate - (time.monotonic() - begin)
    if ahead > 0:
        time.sleep(ahead)
"""


def write_load(folder: Path, count: int, rate: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(count), str(rate)])


def written_lines(folder: Path) -> list[bytes]:
    return [line for path in folder.iterdir() for line in path.read_bytes().split(b"\n")[:-1]]


def section(topic: str) -> dict[str, object]:
    return {"inputs": [{"paths": ["watched/**"], "topic": topic}], "scan_interval": "1s"}


def check_order(reader: TopicReader) -> int:
    """First sightings of lines rise per source; returns how many records were doubles."""
    seen: set[bytes] = set()
    last: dict[int, bytes] = defaultdict(bytes)
    doubles = 0
    for _, _, value in reader.records:
        if value in seen:
            doubles += 1
            continue
        seen.add(value)
        source = value[0]
        # The second file is renamed: its old and new lives may arrive side by side.
        if source != ord("b"):
            assert value > last[source], f"order broken, MILLRACE_SEED={SEED}"
        last[source] = value
    return doubles


def run_kills(tmp_path: Path, kills: int, count: int, rate: int) -> None:
    rng = random.Random(SEED)
    with BrokerProcess(tmp_path / "broker") as broker:
        reader = TopicReader(broker.bootstrap, "t.kill")
        collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section("t.kill")).start()
        folder = collector.home / "watched/text"
        load = write_load(folder, count, rate)
        try:
            for _ in range(kills):
                pause_until = time.monotonic() + rng.uniform(0, 3)
                while time.monotonic() < pause_until:
                    reader.poll()
                collector.kill9()
                collector.start()
            assert load.wait(120) == 0
            expected = written_lines(folder)
            assert len(expected) == count

            def arrived() -> bool:
                return len({value for _, _, value in reader.poll()}) >= len(expected)

            wait_until(arrived, 60, f"every line, MILLRACE_SEED={SEED}")
            wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 20, "no lag")
            reader.poll()
            assert {value for _, _, value in reader.records} == set(expected)
            doubles = check_order(reader)
            # One stretch of about a second and some batches on their way for each kill.
            assert doubles <= kills * rate * 2, f"{doubles} doubles, MILLRACE_SEED={SEED}"
            assert collector.stop() == 0
        finally:
            load.kill()
            load.wait()
            if collector.process is not None:
                collector.kill9()
            reader.close()


def test_a_killed_collector_loses_nothing(tmp_path: Path) -> None:
    run_kills(tmp_path, kills=2, count=30_000, rate=5_000)


@pytest.mark.slow
def test_a_collector_killed_twenty_times_loses_nothing(tmp_path: Path) -> None:
    run_kills(tmp_path, kills=20, count=300_000, rate=5_000)


def test_a_killed_and_a_restarted_broker_lose_and_double_nothing(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with (
        BrokerProcess(tmp_path / "broker") as broker,
        CollectorProcess(tmp_path, broker.mill_bootstrap, section("t.away")) as collector,
    ):
        folder = collector.home / "watched/text"
        load = write_load(folder, 30_000, 5_000)
        try:
            for end in (broker.kill9, broker.stop):
                time.sleep(rng.uniform(0, 2))
                end()
                time.sleep(rng.uniform(0, 1))
                broker.start()
            assert load.wait(60) == 0
        finally:
            load.kill()
            load.wait()
        expected = written_lines(folder)
        reader = TopicReader(broker.bootstrap, "t.away")
        values = reader.values(len(expected), 60)
        wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 20, "no lag")
        reader.poll()
        values = [value for _, _, value in reader.records]
        assert sorted(values) == sorted(expected), f"MILLRACE_SEED={SEED}"
        assert check_order(reader) == 0
        reader.close()


def test_a_collector_started_before_its_broker_waits_for_it(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section("t.wait"))
    (collector.home / "watched/text/a.log").write_bytes(b"early\n")
    collector.process = collector.spawn()
    try:
        wait_until(
            lambda: [p.code for p in collector.status().problems] == ["broker"], 20, "the problem"
        )
        assert not collector.status().ready
        with broker:
            reader = TopicReader(broker.bootstrap, "t.wait")
            assert reader.values(1) == [b"early"]
            wait_until(lambda: collector.status().problems == (), 10, "no problem")
            reader.close()
            assert collector.stop() == 0
    finally:
        if collector.process is not None:
            collector.process.send_signal(signal.SIGKILL)
            collector.process.wait()
