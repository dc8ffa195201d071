"""The broker beside Apache Kafka: what eight kinds of work cost each of them, in one run.

Same clients, same disk, same machine, measured in turn; the peer has Kafka's own settings, ours is
shown with `flush=interval`, which is Kafka's bargain, and with `flush=ack`, which is our default.
Both are warmed first, for a Java broker gets twice as fast in its first minutes.
"""

import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from bench import broker_cases as cases
from bench import librdkafka
from bench.beside import Row, markdown
from bench.broker_idle import idle
from bench.machine import cpu_s, pss_mib
from bench.measurement import Figures, Goal, Measurement, Peer, Run
from bench.report import note
from bench.servers import FLUSH, BesideKafka, Server, new_kafka, server, until_first_record
from bench.session import Bench
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import VERSION

PART = "broker"
OWN_SETTINGS: Mapping[str, object] = {"max.connections.per.ip": 5_000}
KEPT_TOPIC = "kept"
FETCH_TOPIC = "consumed"


def _ratio(figure: str, *, at_most: float | None = None, at_least: float | None = None) -> Goal:
    return Goal(figure, at_most=at_most, at_least=at_least, of="ratio")


PRODUCE_LARGE = Row(
    "librdkafka, 1 KiB records, linger 5 ms, 6 partitions",
    {"cpu_s_per_gb": "broker CPU-s per GB", "mb_per_s": "MB/s"},
    (_ratio("cpu_s_per_gb", at_most=1 / 3), _ratio("mb_per_s", at_least=1.2)),
)
PRODUCE_SMALL = Row(
    "librdkafka, 200 B records, linger 5 ms, 6 partitions",
    {"cpu_s_per_million": "broker CPU-s per M records", "records_per_s": "records/s"},
    (_ratio("cpu_s_per_million", at_most=1 / 3),),
)
MANY_REQUESTS = Row(
    "one 100-byte record a request, 10 connections × 5 in flight",
    {"requests_per_s": "requests/s", "cpu_us_per_request": "broker CPU-µs a request"},
    (_ratio("requests_per_s", at_least=2.5), _ratio("cpu_us_per_request", at_most=1 / 4)),
)
ONE_AT_A_TIME = Row(
    "one 100-byte record a request, one at a time",
    {"ack_p50_us": "p50 µs", "ack_p99_us": "p99 µs", "cpu_us_per_request": "CPU-µs a request"},
    (_ratio("ack_p50_us", at_most=1.1), _ratio("ack_p99_us", at_most=0.6)),
    (_ratio("ack_p50_us", at_most=3.0),),
)
CONSUME = Row(
    "librdkafka consumes from the page cache, 6 partitions",
    {"cpu_s_per_gb": "broker CPU-s per GB", "mb_per_s": "MB/s"},
    (_ratio("cpu_s_per_gb", at_most=0.8), _ratio("mb_per_s", at_least=1.0)),
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
    (_ratio("p50_ms", at_most=1.0), _ratio("p99_ms", at_most=1.0)),
)
START = Row(
    "from the start of the process",
    {"answer_s": "s to the first answer", "record_s": "s to the first acknowledged record"},
    (_ratio("record_s", at_most=1 / 8),),
)
MEMORY_IDLE = Row(
    "memory, idle", {"pss_mib": "MiB"}, (_ratio("pss_mib", at_most=1 / 8),), is_flushed=False
)
IDLE = Row(
    "1,000 idle connections, 1,000 partitions",
    {
        "pss_mib": "MiB",
        "idle_cpu_percent": "% of a core idle",
        "session_cpu_percent": "with one consumer of all, by session",
        "no_session_cpu_percent": "the same without one",
    },
    (_ratio("pss_mib", at_most=1.0), _ratio("idle_cpu_percent", at_most=1.0)),
    is_flushed=False,
)


def memory_after(count: int) -> Row:
    """The row of the memory after so many records."""
    return Row(
        f"memory, after {count / 1e6:g} M records",
        {"pss_mib": "MiB"},
        (_ratio("pss_mib", at_most=1 / 8),),
        is_flushed=False,
    )


def measure(bench: Bench) -> Iterator[Measurement]:
    """All rows; starting first, for the other cases leave data behind."""
    found: list[Measurement] = []
    total = bench.options.sized(25_000_000, 500_000)
    for measurement in _measurements(bench, total):
        found.append(measurement)
        yield measurement
    rows = [
        PRODUCE_LARGE, PRODUCE_SMALL, MANY_REQUESTS, ONE_AT_A_TIME, CONSUME, REPLAYED, ON_THE_WAY,
        START, MEMORY_IDLE, memory_after(total), IDLE,
    ]  # fmt: skip
    for line in markdown(rows, found):
        sys.stderr.write(line + "\n")


def _measurements(bench: Bench, total: int) -> Iterator[Measurement]:
    yield from _starts(bench)
    folder = bench.new_folder("broker")
    with BrokerProcess(folder, OWN_SETTINGS) as process, BesideKafka(bench) as kafka:
        turns = _Turns(bench, server("millrace", process.bootstrap, process.pid), kafka.server)
        yield turns.once(MEMORY_IDLE, _memory)
        _warm_up(bench, turns.all)
        sized = bench.options.sized
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


class _Turns:
    """Ours and the peer, measured in turn, row by row."""

    def __init__(self, bench: Bench, ours: Server, peer: Server | None) -> None:
        self._bench = bench
        self._ours = ours
        self._peer = peer
        self._peer_name = None if peer is None else peer.name
        self.all = [ours] if peer is None else [ours, peer]

    def flushed(self, row: Row, case: cases.Case) -> Iterator[Measurement]:
        """A row of both kinds of flushing, the peer's runs between them."""
        measures = [partial(case, self._ours, settings) for settings in FLUSH.values()]
        peers = None if self._peer is None else (self._peer.name, partial(case, self._peer, {}))
        return _by_flush(self._bench, row, measures, peers)

    def plain(self, row: Row, case: cases.Case) -> Measurement:
        """A row that has nothing to do with flushing."""
        rounds = self._bench.in_rounds(row.work, [partial(case, one, {}) for one in self.all])
        return _measurement(row, rounds.runs, self._peer_name, rounds.discarded)

    def once(self, row: Row, case: cases.Case) -> Measurement:
        """A row that cannot be repeated, as what it tells depends on all before it."""
        note(row.work)
        runs = [[self._bench.once(partial(case, one, {}))] for one in self.all]
        return _measurement(row, runs, self._peer_name)


def _by_flush(
    bench: Bench,
    row: Row,
    ours: Sequence[Callable[[], Figures]],
    peers: tuple[str, Callable[[], Figures]] | None,
) -> Iterator[Measurement]:
    """Ours, one for each kind of flushing, with the runs of the peer, if any, between them."""
    measures = list(ours)
    if peers is not None:
        measures.insert(1, peers[1])
    rounds = bench.in_rounds(row.work, measures)
    runs = list(rounds.runs)
    peer = None if peers is None else Peer(peers[0], runs.pop(1))
    for kind, found in zip(FLUSH, runs, strict=True):
        goals = row.goals_for(kind)
        yield Measurement(PART, row.case(kind), found, peer, goals, rounds.discarded)


def _measurement(
    row: Row, runs: Sequence[Sequence[Run]], peer_name: str | None, discarded: int = 0
) -> Measurement:
    peer = None if peer_name is None else Peer(peer_name, runs[1])
    return Measurement(PART, row.work, runs[0], peer, row.goals, discarded)


def _starts(bench: Bench) -> Iterator[Measurement]:
    """On empty folders; formatting Kafka's does not count."""

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
            return {**figures, "cpu_s": cpu_s(process.pid())}
        finally:
            process.kill9()
            shutil.rmtree(process.folder, ignore_errors=True)

    has_peer = new_kafka(bench, "kafka-probe") is not None
    return _by_flush(
        bench,
        START,
        [partial(ours, settings) for settings in FLUSH.values()],
        (f"kafka {VERSION}", peers) if has_peer else None,
    )


def _memory(one: Server, _: Mapping[str, str]) -> Figures:
    return {"pss_mib": pss_mib([one.pid])}


def _warm_up(bench: Bench, servers: Sequence[Server]) -> None:
    """Let memory, page cache and the peer's compiler settle before anything counts.

    The records stay: a broker that is asked for its memory later has something to look after.
    """
    count = bench.options.sized(10_000_000, 100_000)
    for one in servers:
        note(f"warming up {one.name}")
        one.topics.create(KEPT_TOPIC, cases.PARTITIONS, FLUSH["interval"])
        librdkafka.produce(one.bootstrap, KEPT_TOPIC, [bytes(200)], count, "1")
        one.record_count += count
        cases.requests(bench, 10, 5)(one, FLUSH["interval"])
        cases.requests(bench, 1, 1)(one, FLUSH["interval"])
        cases.consume(KEPT_TOPIC, count // 10, 200)(one, {})


def _consuming(bench: Bench, turns: _Turns) -> Iterator[Measurement]:
    """Both read the same records, which stay in the page cache."""
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
    """Bring every broker to the same number of records taken."""
    for one in servers:
        if one.record_count < total:
            note(f"filling {one.name} up to {total:,} records")
            left = total - one.record_count
            librdkafka.produce(one.bootstrap, KEPT_TOPIC, [bytes(200)], left, "1")
            one.record_count += left
