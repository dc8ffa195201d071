"""Files are written in place and trimmed while the collector is killed. Each line arrives exactly
once."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.collector import CollectorProcess, TopicReader
from tests.harness.wait import wait_until
from tests.unit.collector.blocks import seed

pytestmark = pytest.mark.live

# The first file is mapped region by region, as by log4j2's MemoryMappedFile, and truncated to its
# text at the end. In the second file each last line is first written without a line end, and then
# replaced by a shorter line. The third file is trimmed to its last lines, in turns in place and
# with `mv`.
WRITER = """
import mmap, os, sys, time
folder, count, pause_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
REGION, end = 1 << 16, 0
path, trimmed = os.path.join(folder, "mapped.log"), os.path.join(folder, "trimmed.log")
mapped = open(path, "w+b", buffering=0)
opened = open(os.path.join(folder, "opened.log"), "w+b", buffering=0)
def region(at):
    mapped.truncate(at + REGION)
    return mmap.mmap(mapped.fileno(), REGION, offset=at)
at, memory = 0, region(0)
for number in range(count):
    line = b"m %08d %s\\n" % (number, b"x" * 80)
    while line:
        part = line[: at + REGION - end]
        memory[end - at : end - at + len(part)] = part
        end, line = end + len(part), line[len(part) :]
        if end == at + REGION:
            at, memory = end, region(end)
    begin = opened.seek(0, 2)
    opened.write(b"progress " + b"." * (number % 300))
    time.sleep(pause_s)
    opened.truncate(begin)
    opened.seek(begin)
    opened.write(b"o %08d\\n" % number)
    with open(trimmed, "ab", buffering=0) as out:
        out.write(b"t %08d %s\\n" % (number, b"y" * 80))
    if number % 400 == 399:
        time.sleep(1)
        kept = b"".join(open(trimmed, "rb").readlines()[-100:])
        if number % 800 == 399:
            open(trimmed, "wb", buffering=0).write(kept)
        else:
            open(trimmed + ".tmp", "wb").write(kept)
            os.rename(trimmed + ".tmp", trimmed)
mapped.truncate(end)
"""


def test_files_that_are_written_in_place_and_kills(tmp_path: Path) -> None:
    number, count = seed(), 2_000
    rng = random.Random(number)
    expected = [b"m %08d %s" % (n, b"x" * 80) for n in range(count)]
    expected += [b"o %08d" % n for n in range(count)]
    expected += [b"t %08d %s" % (n, b"y" * 80) for n in range(count)]
    section = {"inputs": [{"paths": ["watched/**"], "topic": "t.place"}], "scan_interval": "1s"}
    with BrokerProcess(tmp_path / "broker") as broker:
        reader = TopicReader(broker.mill_bootstrap, "t.place")
        collector = CollectorProcess(tmp_path, broker.mill_bootstrap, section).start()
        folder = collector.home / "watched/text"
        arguments = [str(folder), str(count), "0.004"]
        load = subprocess.Popen([sys.executable, "-c", WRITER, *arguments])
        try:
            while load.poll() is None:
                pause_until = time.monotonic() + rng.uniform(0.5, 3)
                while time.monotonic() < pause_until and load.poll() is None:
                    reader.poll()
                collector.kill9()
                collector.start()
            assert load.returncode == 0
            wait_until(
                lambda: len(reader.poll()) >= len(expected),
                60,
                f"every line, MILLRACE_SEED={number}",
                progress=lambda: len(reader.records),
            )
            wait_until(lambda: collector.details()["lag_bytes_total"] == 0, 20, "no lag")
            reader.poll()
            found = Counter(value for _, _, value in reader.records)
            assert found == Counter(expected), f"MILLRACE_SEED={number}"
            assert collector.details()["lost_possible"] == [], f"MILLRACE_SEED={number}"
        finally:
            load.kill()
            load.wait()
            collector.kill9()
            reader.close()
