"""Measure the acknowledgement times of a producer while a restarted broker copies the bytes that it
lacks.

Three brokers run, and every partition has three replicas. One broker is stopped, and `--size` bytes
are written to one topic. A producer with acks=all writes 2,000 lines a second to another topic:
once before the stop, with all brokers in sync, and once while the restarted broker copies. The
second figure uses only lines that were sent while the producer's topic was in sync and the copy was
running.
"""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from bench import librdkafka
from bench.broker_cases import new_topic
from bench.figures import percentile
from bench.librdkafka import OF_THREE, Lost
from bench.measurement import Figures, Goal, Measurement
from bench.paced import PacedRecords
from bench.report import note
from bench.servers import Server, server
from bench.session import Bench
from tests.harness.cluster import ClusterProcesses
from tests.harness.wait import wait_until

PART = "catch-up"
PARTITIONS = 6
LINES_PER_S = 2_000
LINE = b"x" * 200
RECORD_BYTES = 10_000
"""The size of a record of the topic that is copied."""
RECORDS = 64
"""The number of different records. They are repeated until `--size` bytes are written."""
RETURNING = 3
COPIED_DEADLINE_S = 3_600.0
IN_SYNC_DEADLINE_S = 120.0
METADATA_TIMEOUT_S = 10.0
LINES_MIN = 100
"""The least number of lines from which a 99th percentile is taken."""

GOALS = (Goal("p99_ratio", at_most=1.2),)


@dataclass(frozen=True, slots=True)
class Line:
    """One acknowledged line: when it was sent and when it was acknowledged, in seconds of
    `time.perf_counter`."""

    sent_s: float
    took_s: float


def between(lines: Sequence[Line], began_s: float, ended_s: float) -> list[Line]:
    """Return the lines that were sent in this span."""
    return [one for one in lines if began_s <= one.sent_s <= ended_s]


class PacedLines(PacedRecords):
    """A thread that writes lines at a fixed rate, over all partitions in turn."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        lines_per_s: int,
        settings: Mapping[str, int | str] | None = None,
    ) -> None:
        """Write to `topic`. `settings` are more settings of the producer."""
        self.acknowledged: list[Line] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "log_level": 0,
                **(settings or {}),
            }
        )
        super().__init__(producer, topic, PARTITIONS, 1 / lines_per_s)

    def finish(self) -> list[Line]:
        """End the thread and return all lines. Raises Lost unless all were acknowledged."""
        self.finish_writing()
        return self.acknowledged

    def _value(self, number: int) -> bytes:
        return LINE

    def _on_acknowledged(self, sent_s: float, message: Message) -> None:
        self.acknowledged.append(Line(sent_s, time.perf_counter() - sent_s))


def figures(
    alone: Sequence[Line], beside: Sequence[Line], size_bytes: int, copied_s: float
) -> Figures:
    """Return the figures of one run. Raises Lost if too few lines were sent during the copy."""
    if len(beside) < LINES_MIN:
        raise Lost(
            f"only {len(beside)} lines were sent during the copy, which took {copied_s:.2f} s: "
            "use a larger --size"
        )
    found: dict[str, float] = {}
    for name, lines in (("alone", alone), ("beside", beside)):
        took_s = sorted(one.took_s for one in lines)
        found[f"{name}_p50_ms"] = percentile(took_s, 0.5) * 1e3
        found[f"{name}_p99_ms"] = percentile(took_s, 0.99) * 1e3
        found[f"{name}_max_ms"] = took_s[-1] * 1e3
    found["p99_ratio"] = found["beside_p99_ms"] / found["alone_p99_ms"]
    found["copied_mb_per_s"] = size_bytes / copied_s / 1e6
    return found


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure with a new cluster in each run."""
    gigabytes = bench.options.size_bytes / 1e9
    case = f"acks=all at {LINES_PER_S:,} lines/s beside a copy of {gigabytes:g} GB"
    yield Measurement(PART, case, bench.repeat(case, partial(_run, bench)), goals=GOALS)


def _run(bench: Bench) -> Figures:
    folder = bench.new_folder("catch-up")
    try:
        with ClusterProcesses(folder, {"log.flush.interval.messages": 1}) as processes:
            ours = server("millrace", processes.bootstrap, processes.pids, OF_THREE)
            with new_topic(ours, {}, PARTITIONS) as copied, new_topic(ours, {}, PARTITIONS) as live:
                return _beside(bench, processes, ours, copied, live)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _beside(
    bench: Bench, processes: ClusterProcesses, ours: Server, copied: str, live: str
) -> Figures:
    admin = AdminClient({"bootstrap.servers": ours.bootstrap, "log_level": 0})
    seconds = bench.options.sized(20, 5)
    for topic in (copied, live):
        wait_until(partial(_is_in_sync, admin, topic), IN_SYNC_DEADLINE_S, f"{topic} in sync")
    with PacedLines(ours.bootstrap, live, LINES_PER_S) as lines:
        time.sleep(seconds)
        alone = lines.finish()
    processes.stop(RETURNING)
    size_bytes = bench.options.size_bytes
    fill(bench, ours, copied)
    with PacedLines(ours.bootstrap, live, LINES_PER_S) as lines:
        processes.spawn()
        wait_until(partial(_is_in_sync, admin, live), IN_SYNC_DEADLINE_S, "the lines in sync")
        began_s = time.perf_counter()
        wait_until(partial(_is_in_sync, admin, copied), COPIED_DEADLINE_S, "all copied")
        ended_s = time.perf_counter()
        written = lines.finish()
    beside = between(written, began_s, ended_s)
    return figures(alone, beside, size_bytes, ended_s - began_s)


def fill(bench: Bench, ours: Server, topic: str) -> int:
    """Write `--size` bytes of random records with acks=all. Return the number of records."""
    size_bytes = bench.options.size_bytes
    note(f"writing {size_bytes / 1e6:,.0f} MB")
    chance = Random(bench.options.seed)
    values = [chance.randbytes(RECORD_BYTES) for _ in range(RECORDS)]
    count = size_bytes // RECORD_BYTES
    librdkafka.produce(ours.bootstrap, topic, values, count, "all")
    return count


def _is_in_sync(admin: AdminClient, topic: str) -> bool:
    """Return whether all replicas of a topic are in sync."""
    found: Any = admin.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics[topic].partitions
    return len(found) == PARTITIONS and all(
        len(one.isrs) == OF_THREE.replicas for one in found.values()
    )
