"""The collector and the broker are killed under load. No line is lost or duplicated, and lines
stay in order."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from collector.config.settings import BACKFILL_BYTES, TRANSACTION_TIMEOUT_MS
from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, GroupOfTheStream, TopicReader
from tests.harness.kafka import KafkaProcess
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

SEED = int(os.environ.get("MILLRACE_SEED") or random.SystemRandom().randrange(1 << 32))

# Appends numbered lines to three files in uneven pieces. Now and then it renames the second file,
# or copies and truncates the third one. At the next rotation of a file it compresses the earlier
# rotated one, as `logrotate` does with `delaycompress`. It writes nothing between a copy and its
# truncation, because no collector could read such a line. The ledger lists every line, even after
# the file is gone.
WRITER = """
import gzip, os, random, shutil, sys, time
folder, ledger, count, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(5)
def opened(name):
    return open(os.path.join(folder, name), "ab", buffering=0)
def compress(path):
    with open(path, "rb") as plain, gzip.open(path + ".gz", "wb", 1) as packed:
        shutil.copyfileobj(plain, packed)
    os.unlink(path)
names = ["a.log", "b.log", "c.log"]
files = [opened(name) for name in names]
begin, rotated, waiting = time.monotonic(), 0, {}
written = open(ledger, "ab")
for number in range(0, count, 10):
    index = rng.randrange(3)
    line = b"%c %08d " + b"x" * 80 + b"\\n"
    data = b"".join(line % (97 + index, n) for n in range(number, number + 10))
    cut = rng.randrange(len(data))
    files[index].write(data[:cut])
    files[index].write(data[cut:])
    written.write(data)
    if index and rng.random() < 0.01:
        rotated += 1
        path = os.path.join(folder, names[index])
        if index in waiting:
            compress(waiting[index])
        waiting[index] = path + ".%d" % rotated
        if index == 1:
            os.rename(path, waiting[index])
            files[index] = opened(names[index])
        else:
            shutil.copyfile(path, waiting[index])
            files[index].truncate(0)
    ahead = number / rate - (time.monotonic() - begin)
    if ahead > 0:
        time.sleep(ahead)
"""


def ledger_of(folder: Path) -> Path:
    """Return the unwatched file in which the writer lists all lines that it has written."""
    return folder.parent.parent / "written"


def write_load(folder: Path, count: int, rate: int) -> "subprocess.Popen[bytes]":
    arguments = [str(folder), str(ledger_of(folder)), str(count), str(rate)]
    return subprocess.Popen([sys.executable, "-c", WRITER, *arguments])


def written_lines(folder: Path) -> list[bytes]:
    return ledger_of(folder).read_bytes().split(b"\n")[:-1]


def section(topic: str) -> dict[str, object]:
    return {"inputs": [{"paths": ["watched/**"], "topic": topic}], "scan_interval": "1s"}


def check_order(reader: TopicReader) -> None:
    """Check that the lines of each source are in increasing order."""
    last: dict[int, bytes] = defaultdict(bytes)
    for _, _, value in reader.records:
        source = value[0]
        # The sources b and c are rotated. The lines of a rotated file and of its successor can mix,
        # so only the source a must be in order.
        if source not in b"bc":
            assert value > last[source], f"order broken, MILLRACE_SEED={SEED}"
        last[source] = value


def check_arrival(reader: TopicReader, expected: list[bytes], collector: CollectorProcess) -> None:
    """Wait until every line has arrived and the collector has no lag. Then check that each line is
    in the topic once and in order."""

    def arrived() -> int:
        return len(reader.poll())

    wait_until(
        lambda: arrived() >= len(expected),
        60,
        f"every line, MILLRACE_SEED={SEED}",
        progress=arrived,
    )
    wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 20, "no lag")
    reader.poll()
    found = Counter(value for _, _, value in reader.records)
    doubled = sum(found.values()) - len(found)
    assert doubled == 0, f"{doubled} doubled, MILLRACE_SEED={SEED}"
    assert set(found) == set(expected), f"MILLRACE_SEED={SEED}"
    check_order(reader)


def run_kills(tmp_path: Path, kills: int, count: int, rate: int, pause_s: float) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        keep_killing(tmp_path, broker.mill_bootstrap, kills, count, rate, pause_s)


def keep_killing(
    tmp_path: Path, bootstrap: str, kills: int, count: int, rate: int, pause_s: float
) -> None:
    """Kill a collector repeatedly under load, and check the topic. Its brokers keep running."""
    rng = random.Random(SEED)
    reader = TopicReader(bootstrap, "t.kill")
    collector = CollectorProcess(tmp_path, bootstrap, section("t.kill")).start()
    folder = collector.home / "watched/text"
    load = write_load(folder, count, rate)
    try:
        for _ in range(kills):
            pause_until = time.monotonic() + rng.uniform(0, pause_s)
            while time.monotonic() < pause_until:
                reader.poll()
            collector.kill9()
            collector.start()
        assert load.wait(120) == 0
        expected = written_lines(folder)
        assert len(expected) == count
        check_arrival(reader, expected, collector)
        assert collector.stop() == 0
    finally:
        load.kill()
        load.wait()
        if collector.process is not None:
            collector.kill9()
        reader.close()


def test_a_collector_killed_while_an_old_file_waits_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    """A backfill of an old file is limited by the stream's progress, so the file waits when the
    collector is killed. All lines go to one partition."""
    rng = random.Random(SEED)
    topic = "t.waits"
    with BrokerProcess(tmp_path / "broker") as broker:
        collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section(topic))
        collector.topics = [{"name": topic, "partitions": 1}]
        collector.start()
        reader = TopicReader(broker.bootstrap, topic, (0,))
        folder = collector.home / "watched/text"
        load = write_load(folder, 12_000, 2_000)
        old = folder / ".old"
        waiting = [b"d %0*d" % (97, n) for n in range(2 * BACKFILL_BYTES // 100)]
        old.write_bytes(b"".join(b"%b\n" % line for line in waiting))
        try:
            with GroupOfTheStream(broker.bootstrap, topic, 1) as stream, stream.reading():
                wait_until(lambda: len(reader.poll()) > 1_000, 30, "live lines")
                old.rename(folder / "d.log")
                for _ in range(4):
                    time.sleep(rng.uniform(0.2, 1))
                    collector.kill9()
                    collector.start()
                assert load.wait(120) == 0
                check_arrival(reader, written_lines(folder) + waiting, collector)
            assert collector.stop() == 0
        finally:
            load.kill()
            load.wait()
            if collector.process is not None:
                collector.kill9()
            reader.close()


def test_a_killed_collector_loses_and_doubles_nothing(tmp_path: Path) -> None:
    run_kills(tmp_path, kills=20, count=60_000, rate=5_000, pause_s=0.5)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_collector_killed_three_hundred_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    run_kills(tmp_path, kills=300, count=1_500_000, rate=5_000, pause_s=1)


@pytest.mark.slow
def test_a_collector_of_apache_kafka_killed_twenty_times_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    with KafkaProcess(tmp_path / "kafka") as kafka:
        keep_killing(tmp_path, kafka.bootstrap, 20, count=60_000, rate=5_000, pause_s=0.5)


@pytest.mark.slow
def test_a_killed_and_a_restarted_kafka_loses_and_doubles_nothing(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with (
        KafkaProcess(tmp_path / "kafka") as kafka,
        CollectorProcess(tmp_path, kafka.bootstrap, section("t.away")) as collector,
    ):
        reader = TopicReader(kafka.bootstrap, "t.away")
        folder = collector.home / "watched/text"
        load = write_load(folder, 150_000, 5_000)
        try:
            for end in (kafka.kill9, kafka.stop):
                time.sleep(rng.uniform(0, 2))
                end()
                kafka.start()
            assert load.wait(120) == 0
        finally:
            load.kill()
            load.wait()
        check_arrival(reader, written_lines(folder), collector)
        reader.close()


def test_40_of_two_collectors_of_one_instance_one_ends_and_every_line_is_there_once(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        reader = TopicReader(broker.bootstrap, "t.two")
        keys = section("t.two") | {"instance": "shared"}
        first = CollectorProcess(tmp_path, broker.mill_bootstrap, keys).start()
        second = CollectorProcess(tmp_path, broker.mill_bootstrap, keys)
        second.data_dir = tmp_path / "other"
        second.log_file = tmp_path / "second.log"
        pair, written = [first, second], list[bytes]()
        try:
            second.spawn()
            with (first.home / "watched/text/a.log").open("ab", buffering=0) as log:

                def ended() -> list[CollectorProcess]:
                    # A collector notices that it is fenced only when it commits, so write more
                    # lines.
                    written.append(b"a %08d" % len(written))
                    log.write(written[-1] + b"\n")
                    return [one for one in pair if one.process and one.process.poll() is not None]

                (loser,) = wait_until(ended, 60, "one of them ends")
            (winner,) = [one for one in pair if one is not loser]
            assert loser.process is not None
            assert loser.process.returncode == 75
            assert "another collector uses the same instance name" in loser.log_text()
            loser.process = None
            check_arrival(reader, written, winner)
            assert winner.details()["counters"]["started_over"] >= 1
            assert winner.stop() == 0
        finally:
            for one in pair:
                if one.process is not None:
                    one.kill9()
            reader.close()


@pytest.mark.slow
@pytest.mark.parametrize("who", ["collector", "broker"])
def test_40_a_sleep_past_the_time_of_the_transaction_loses_and_doubles_nothing(
    tmp_path: Path, who: str
) -> None:
    """Stop the collector or the broker until the coordinator has aborted the open transaction at
    its timeout. The collector must then start over."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    with BrokerProcess(tmp_path / "broker", settings) as broker:
        reader = TopicReader(broker.bootstrap, "t.sleep")
        collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section("t.sleep")).start()
        folder = collector.home / "watched/text"
        load = write_load(folder, 150_000, 5_000)
        try:
            assert collector.process is not None
            pid = broker.pid if who == "broker" else collector.process.pid
            begun = 0
            while begun < 3 and load.poll() is None:
                # A transaction may or may not be open at the moment of the stop, so stop three
                # times.
                wait_until(lambda: collector.details()["lines_total"] > 0, 20, "lines")
                os.kill(pid, signal.SIGSTOP)
                time.sleep(TRANSACTION_TIMEOUT_MS / 1000 + 2)
                os.kill(pid, signal.SIGCONT)
                begun += 1
            assert load.wait(120) == 0
            check_arrival(reader, written_lines(folder), collector)
            assert collector.stop() == 0
        finally:
            load.kill()
            load.wait()
            if collector.process is not None:
                collector.kill9()
            reader.close()


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
        reader = TopicReader(broker.bootstrap, "t.away")
        check_arrival(reader, written_lines(folder), collector)
        reader.close()


def test_a_collector_started_before_its_broker_waits_for_it(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section("t.wait"))
    (collector.home / "watched/text/a.log").write_bytes(b"early\n")
    collector.spawn()
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
        collector.kill9()
