"""Measures a monitor of a large cluster:
`python -m tests.interop.monitor_load GROUPS PARTITIONS [SECONDS]`.

It starts a broker and a monitor. Every group has committed in every partition of one topic, and
commits further during the measurement. The module prints the monitor's processor time and memory,
as the kernel counts them: first for the time until every group has a status, and then for the time
after that.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer

from protocol.client.admin import Admin
from protocol.client.admin_types import TopicSpec
from protocol.client.cluster import Cluster
from protocol.client.group import OffsetAndMetadata, commit_offsets
from protocol.types import TopicPartition
from tests.harness.broker import BrokerProcess
from tests.harness.monitor import MonitorProcess

TOPIC = "load"
RECORDS = 200
UNTIL_JUDGED_S = 180.0
DEFAULT_S = 120.0
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used so far, in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS_A_SECOND


def memory(pid: int) -> str:
    """Return the current memory of a process, and its peak, as text."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) // 1024 for line in lines if "VmRSS" in line
             or "VmHWM" in line}  # fmt: skip
    return f"{sizes['VmRSS:']} MiB, at most {sizes['VmHWM:']} MiB"


def produce(bootstrap: str, partitions: int) -> None:
    """Write `RECORDS` records into every partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for number in range(RECORDS):
        for partition in range(partitions):
            producer.produce(TOPIC, str(number).encode(), partition=partition)
        producer.poll(0)
    assert producer.flush(120) == 0


async def commit(bootstrap: str, groups: int, partitions: int, until_s: float) -> None:
    """Commit for all groups in turn, a larger offset each time. Repeat this until the deadline,
    but do it at least once."""
    cluster = Cluster(bootstrap, client_id="load")
    await cluster.start()
    offset = 1
    while True:
        for number in range(groups):
            commits = {
                TopicPartition(TOPIC, partition): OffsetAndMetadata(offset, "")
                for partition in range(partitions)
            }
            await commit_offsets(cluster, f"group-{number:03}", commits)
            if offset > 1 and time.monotonic() > until_s:
                break
        offset += 1
        if time.monotonic() > until_s:
            await cluster.close()
            return


async def create(bootstrap: str, partitions: int) -> None:
    """Create the topic of the measurement."""
    cluster = Cluster(bootstrap, client_id="load")
    await cluster.start()
    await Admin(cluster).create_topics([TopicSpec(TOPIC, partitions, 1)])
    await cluster.close()


def main(groups: int, partitions: int, seconds: float) -> None:
    """Make one measurement and print its result."""
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder)) as broker:
        asyncio.run(create(broker.bootstrap, partitions))
        produce(broker.bootstrap, partitions)
        asyncio.run(commit(broker.bootstrap, groups, partitions, 0.0))
        monitor = MonitorProcess([broker], Path(folder), None, refresh="2s")
        pid = monitor.process.pid
        try:
            for name, span_s in (("until judged", UNTIL_JUDGED_S), ("then", seconds)):
                began, used = time.monotonic(), cpu_s(pid)
                asyncio.run(commit(broker.bootstrap, groups, partitions, began + span_s))
                elapsed = time.monotonic() - began
                share = (cpu_s(pid) - used) / elapsed
                print(f"{groups} groups x {partitions}, {name}: {share:.1%} of a core over "
                      f"{elapsed:.0f} s; {memory(pid)}", flush=True)  # fmt: skip
            statuses = Counter(row["status"] for row in monitor.rows("groups"))
            print(f"groups by status: {dict(statuses)}")
        finally:
            monitor.process.kill()
            monitor.process.wait()


if __name__ == "__main__":
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else DEFAULT_S
    main(int(sys.argv[1]), int(sys.argv[2]), seconds)
