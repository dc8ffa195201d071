"""Compare the broker with Apache Kafka in one run: eight kinds of work and their cost.

Both brokers have the same clients, disk and machine, and are measured alternately. The peer has
Kafka's own settings. Our broker is measured with `flush=interval`, as Kafka does, and with
`flush=ack`, our default. Both are warmed up first, because a Java broker gets twice as fast in its
first minutes.
"""

import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from bench import broker_cases as cases
from bench import librdkafka
from bench.beside import Row, markdown
from bench.broker_idle import idle
from bench.machine import cpu_s
from bench.measurement import Figures, Measurement, ratio
from bench.report import note
from bench.servers import FLUSH, PEER, BesideKafka, Server, new_kafka, server, until_first_record
from bench.session import Bench
from bench.turns import KEPT_TOPIC, Beside, Turns, by_flush
from tests.harness.broker import BrokerProcess

PART = "broker"
OWN_SETTINGS: Mapping[str, object] = {"max.connections.per.ip": 5_000}
FETCH_TOPIC = "consumed"


PRODUCE_LARGE = Row(
    "librdkafka, 1 KiB records, linger 5 ms, 6 partitions",
    {"cpu_s_per_gb": "broker CPU-s per GB", "mb_per_s": "MB/s"},
    (ratio("cpu_s_per_gb", at_most=1 / 3), ratio("mb_per_s", at_least=1.2)),
)
PRODUCE_SMALL = Row(
    "librdkafka, 200 B records, linger 5 ms, 6 partitions",
    {"cpu_s_per_million": "broker CPU-s per M records", "records_per_s": "records/s"},
    (ratio("cpu_s_per_million", at_most=1 / 3),),
)
MANY_REQUESTS = Row(
    "one 100-byte record a request, 10 connections × 5 in flight",
    {"requests_per_s": "requests/s", "cpu_us_per_request": "broker CPU-µs a request"},
    (ratio("requests_per_s", at_least=2.5), ratio("cpu_us_per_request", at_most=1 / 4)),
)
ONE_AT_A_TIME = Row(
    "one 100-byte record a request, one at a time",
    {"ack_p50_us": "p50 µs", "ack_p99_us": "p99 µs", "cpu_us_per_request": "CPU-µs a request"},
    (ratio("ack_p50_us", at_most=1.1), ratio("ack_p99_us", at_most=0.6)),
    (ratio("ack_p50_us", at_most=3.0),),
)
CONSUME = Row(
    "librdkafka consumes from the page cache, 6 partitions",
    {"cpu_s_per_gb": "broker CPU-s per GB", "mb_per_s": "MB/s"},
    (ratio("cpu_s_per_gb", at_most=0.8), ratio("mb_per_s", at_least=1.0)),
    is_flushed=False,
)
REPLAYED = Row(
    "1 MiB fetches, thrown away, 2 connections × 2 in flight",
    {"cpu_s_per_gb": "broker CPU-s per GB", "mb_per_s": "MB/s"},
    is_flushed=False,
)
ON_THE_WAY = Row(
    "produce → consume at 1,000 records/s",
    {"p50_ms": "p50 ms", "p99_ms": "p99 ms"},
    (ratio("p50_ms", at_most=1.0), ratio("p99_ms", at_most=1.0)),
)
START = Row(
    "from the start of the process",
    {"answer_s": "s to the first answer", "record_s": "s to the first acknowledged record"},
    (ratio("record_s", at_most=1 / 8),),
)
MEMORY_IDLE = Row(
    "memory, idle", {"pss_mib": "MiB"}, (ratio("pss_mib", at_most=1 / 8),), is_flushed=False
)
IDLE = Row(
    "1,000 idle connections, 1,000 partitions",
    {
        "pss_mib": "MiB",
        "idle_cpu_percent": "% of a core idle",
        "session_cpu_percent": "with one consumer of all, by session",
        "no_session_cpu_percent": "the same without one",
    },
    (ratio("pss_mib", at_most=1.0), ratio("idle_cpu_percent", at_most=1.0)),
    is_flushed=False,
)


def memory_after(count: int) -> Row:
    """Return the row for the memory that a broker uses after it has received this many records."""
    return Row(
        f"memory, after {count / 1e6:g} M records",
        {"pss_mib": "MiB"},
        (ratio("pss_mib", at_most=1 / 8),),
        is_flushed=False,
    )


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure all rows. The start comes first, because the other cases leave data behind."""
    found: list[Measurement] = []
    total = bench.options.sized(25_000_000, 500_000)
    for measurement in _measurements(bench, total):
        found.append(measurement)
        yield measurement
    rows = [
        PRODUCE_LARGE, PRODUCE_SMALL, MANY_REQUESTS, ONE_AT_A_TIME, CONSUME, REPLAYED, ON_THE_WAY,
        START, MEMORY_IDLE, memory_after(total), IDLE,
    ]  # fmt: skip
    for line in markdown(rows, found, "one node"):
        sys.stderr.write(line + "\n")


def _measurements(bench: Bench, total: int) -> Iterator[Measurement]:
    yield from _starts(bench)
    folder = bench.new_folder("broker")
    with BrokerProcess(folder, OWN_SETTINGS) as process, BesideKafka(bench) as kafka:
        ours = server("millrace", process.bootstrap, lambda: [process.pid])
        turns = Turns(PART, bench, ours, kafka.server)
        yield turns.once(MEMORY_IDLE, _memory)
        sized = bench.options.sized
        turns.warm_up(sized(10_000_000, 100_000))
        yield from turns.flushed(
            PRODUCE_LARGE, cases.produce(bench, 1024, sized(1_000_000, 50_000))
        )
        yield from turns.flushed(
            PRODUCE_SMALL, cases.produce(bench, 200, sized(3_000_000, 100_000))
        )
        yield from turns.flushed(MANY_REQUESTS, cases.requests(bench, 10, 5))
        yield from turns.flushed(ONE_AT_A_TIME, cases.requests(bench, 1, 1))
        yield from turns.flushed(ON_THE_WAY, cases.on_the_way(bench, 1_000))
        yield from _consuming(bench, turns)
        _top_up(turns.all, total)
        yield turns.once(memory_after(total), _memory)
        yield turns.once(IDLE, idle(bench))
    shutil.rmtree(folder, ignore_errors=True)


def _starts(bench: Bench) -> Iterator[Measurement]:
    """Measure how fast a broker starts on an empty folder. Formatting Kafka's folder is not
    measured."""

    def ours(settings: Mapping[str, str]) -> Figures:
        folder = bench.new_folder("broker-start")
        process = BrokerProcess(
            folder, {"log.flush.interval.messages": int(settings["flush.messages"])}
        )
        try:
            figures = until_first_record(process.bootstrap, process.spawn)
            return {**figures, "cpu_s": cpu_s(process.pid)}
        finally:
            process.kill9()
            shutil.rmtree(folder, ignore_errors=True)

    def peers() -> Figures:
        process = new_kafka(bench, "kafka-start")
        assert process is not None
        process.format()
        try:
            figures = until_first_record(process.bootstrap, process.spawn)
            return {**figures, "cpu_s": sum(map(cpu_s, process.pids()))}
        finally:
            process.kill9()
            shutil.rmtree(process.folder, ignore_errors=True)

    has_peer = new_kafka(bench, "kafka-probe") is not None
    return by_flush(
        PART,
        bench,
        START,
        {kind: partial(ours, settings) for kind, settings in FLUSH.items()},
        Beside(PEER, peers) if has_peer else None,
    )


def _memory(one: Server, _: Mapping[str, str]) -> Figures:
    return {"pss_mib": one.pss_mib}


def _consuming(bench: Bench, turns: Turns) -> Iterator[Measurement]:
    """Measure how fast both brokers deliver the same records, which stay in the page cache."""
    size_bytes, count = 1024, bench.options.sized(1_000_000, 50_000)
    value = random.Random(bench.options.seed).randbytes(size_bytes)
    for one in turns.all:
        one.topics.create(FETCH_TOPIC, cases.PARTITIONS, FLUSH["interval"])
        librdkafka.produce(one.bootstrap, FETCH_TOPIC, [value], count, "1")
        one.record_count += count
    yield turns.plain(CONSUME, cases.consume(FETCH_TOPIC, count, size_bytes))
    yield turns.plain(REPLAYED, cases.replayed_fetches(bench, FETCH_TOPIC))
    for one in turns.all:
        one.topics.delete(FETCH_TOPIC)


def _top_up(servers: Sequence[Server], total: int) -> None:
    """Produce records until every broker has received the same number."""
    for one in servers:
        if one.record_count < total:
            note(f"filling {one.name} up to {total:,} records")
            left = total - one.record_count
            librdkafka.produce(one.bootstrap, KEPT_TOPIC, [bytes(200)], left, "1")
            one.record_count += left
