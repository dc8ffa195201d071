"""logrotate itself, as packaged by Debian, with a writer that never pauses.

A line that the writer appends between a copy by copytruncate and the truncation is in no file
afterwards. The collector may have sent such a line, but not twice. All other rotations lose no
line, so every written line must arrive once.
"""

import gzip
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, TopicReader
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

ROTATIONS = 50
GAP_S = 0.3
RATE = 5_000
LINE_BYTES = 100

# A program that appends numbered lines. After SIGHUP it opens the file's path again, as daemons do.
WRITER = """
import os, signal, sys, time
path, rate = sys.argv[1], int(sys.argv[2])
is_due = is_over = False
def reopen(*_):
    global is_due
    is_due = True
def end(*_):
    global is_over
    is_over = True
signal.signal(signal.SIGHUP, reopen)
signal.signal(signal.SIGTERM, end)
out, number, begin = open(path, "ab", buffering=0), 0, time.monotonic()
print("writes", flush=True)
while not is_over:
    if is_due:
        is_due = False
        out.close()
        out = open(path, "ab", buffering=0)
    for _ in range(10):
        out.write(b"%099d\\n" % number)
        number += 1
    ahead = number / rate - (time.monotonic() - begin)
    if ahead > 0:
        time.sleep(ahead)
print(number, flush=True)
"""

VARIANTS = {
    "copytruncate": "copytruncate",
    "copytruncate_compress": "copytruncate compress",
    "copytruncate_delaycompress": "copytruncate compress delaycompress",
    "copytruncate_dateext": "copytruncate dateext dateformat_-%Y%m%d%s",
    "create": "create",
    "create_compress": "create compress",
    "create_delaycompress": "create compress delaycompress",
    "create_dateext": "create compress dateext dateformat_-%Y%m%d%s",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    if shutil.which("logrotate") is None:
        pytest.skip("logrotate is not installed")
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


def configuration(log: Path, directives: str, writer_pid: int) -> str:
    words = "\n    ".join(one.replace("_", " ") for one in directives.split())
    # With copytruncate the writer keeps its file open, so it needs no signal.
    tell = (
        ""
        if "copytruncate" in directives
        else f"""
    postrotate
        kill -HUP {writer_pid}
    endscript"""
    )
    return f"{log} {{\n    rotate 1000\n    missingok\n    {words}{tell}\n}}\n"


def held_lines(folder: Path) -> list[int]:
    """Return the lines in the files, including rotated and compressed ones."""
    found: list[int] = []
    for path in folder.iterdir():
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).split(b"\n")[:-1]
        # The writer opens its file for appending, so a truncation never leaves a hole of NULs.
        found += [int(line) for line in lines if len(line) == LINE_BYTES - 1]
    return found


def rotate(conf: Path, state: Path) -> None:
    done = subprocess.run(
        ["logrotate", "--force", "--state", str(state), str(conf)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def written(log: Path) -> Iterator["subprocess.Popen[str]"]:
    """Yield a process that appends lines to a file until the block ends."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(log), str(RATE)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writes\n"
        yield writer
    finally:
        writer.kill()
        writer.wait()


def end(writer: "subprocess.Popen[str]") -> int:
    """Stop the writer. Return the number of lines that it has written."""
    writer.send_signal(signal.SIGTERM)
    assert writer.stdout is not None
    count = int(writer.stdout.readline())
    assert writer.wait(10) == 0
    return count


def run(broker: BrokerProcess, tmp_path: Path, variant: str, rotations: int) -> None:
    topic = f"t.{variant}.{rotations}"
    section = {"inputs": [{"paths": ["watched/**"], "topic": topic}], "scan_interval": "1s"}
    # Rotated names have the second in them, so two rotations in one second would clash.
    gap_s = 1.05 if "dateext" in variant else GAP_S
    with CollectorProcess(tmp_path, broker.mill_bootstrap, section) as collector:
        reader = TopicReader(broker.bootstrap, topic)
        folder = collector.home / "watched/text"
        folder.chmod(0o755)  # logrotate refuses a folder that other users may write to
        try:
            with written(folder / "app.log") as writer:
                conf = tmp_path / "logrotate.conf"
                conf.write_text(configuration(folder / "app.log", VARIANTS[variant], writer.pid))
                conf.chmod(0o644)
                for _ in range(rotations):
                    pause_until = time.monotonic() + gap_s
                    while time.monotonic() < pause_until:
                        reader.poll()
                    rotate(conf, tmp_path / "state")
                count = end(writer)
            held = held_lines(folder)
            assert len(held) == len(set(held))
            expected = set(held) if "copytruncate" in variant else set(range(count))
            check(reader, collector, count, expected)
        finally:
            reader.close()


def check(reader: TopicReader, collector: CollectorProcess, count: int, expected: set[int]) -> None:
    """Check that every expected line arrives, and that no line arrives twice."""

    def arrived() -> set[int]:
        return {int(value) for _, _, value in reader.poll()}

    wait_until(
        lambda: expected <= arrived(), 60, "every line", progress=lambda: len(reader.records)
    )
    wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 30, "no lag")
    found = Counter(int(value) for _, _, value in reader.poll())
    doubled = sum(found.values()) - len(found)
    print(
        f"written {count}, expected {len(expected)}, arrived {len(found)}, doubled {doubled}",
        collector.details()["counters"],
    )
    assert doubled == 0
    assert set(found) <= set(range(count))


def test_rotations_under_a_writer_that_never_pauses(broker: BrokerProcess, tmp_path: Path) -> None:
    run(broker, tmp_path, "copytruncate_delaycompress", 8)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_fifty_rotations_under_a_writer_that_never_pauses(
    broker: BrokerProcess, tmp_path: Path, variant: str
) -> None:
    run(broker, tmp_path, variant, ROTATIONS)
