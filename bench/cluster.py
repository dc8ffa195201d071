"""Compare three brokers with three of Apache Kafka: the cost of replicated work and of failovers.

Both clusters have the same clients, disk and machine, and are measured alternately. Every partition
has three replicas, two of which must be in sync, and producers use acks=all. The peer has Kafka's
own settings, so it does not fsync. Rows with the label for it also measure the peer with an fsync
for each append. Both clusters are warmed up first. At the end, leaders are stopped with SIGKILL and
with SIGTERM while a producer writes.
"""

import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from bench import broker_cases as cases
from bench import failover, outage
from bench.beside import Row, markdown
from bench.librdkafka import OF_THREE
from bench.measurement import Figures, Goal, Measurement, Peer, Run, Values, ratio
from bench.report import note
from bench.servers import FLUSH, PEER, BesideKafka, Server, new_kafka, server, until_first_record
from bench.session import Bench
from bench.turns import KEPT_TOPIC, Beside, Turns, by_flush
from tests.harness.cluster import ClusterProcesses

PART = "cluster"
ENDS_A_ROUND = 7
"""The number of leaders that a round stops with each signal. Three rounds then give more than the
twenty events that a 99th percentile needs."""

START = Row(
    "from the start of three processes",
    {"answer_s": "s to the first answer", "record_s": "s to the first acknowledged record"},
    (Goal("record_s", at_most=1.5),),
    (Goal("record_s", at_most=1.5),),
)
MEMORY_IDLE = Row(
    "memory of three, idle", {"pss_mib": "MiB"}, (Goal("pss_mib", at_most=140),), is_flushed=False
)
MANY_REQUESTS = Row(
    "one 100-byte record a request, 10 connections × 5 in flight",
    {"requests_per_s": "requests/s", "cpu_us_per_request": "CPU-µs a request, all brokers"},
    (ratio("requests_per_s", at_least=10), ratio("cpu_us_per_request", at_most=1 / 10)),
    (ratio("requests_per_s", at_least=5), ratio("cpu_us_per_request", at_most=1 / 5)),
)
ONE_AT_A_TIME = Row(
    "one 100-byte record a request, one at a time",
    {"ack_p50_us": "p50 µs", "ack_p99_us": "p99 µs"},
    (ratio("ack_p50_us", at_most=0.5),),
    (ratio("ack_p50_us", at_most=0.65),),
    is_peer_synced=True,
)
PRODUCE = Row(
    "librdkafka, 200 B records, linger 5 ms, 6 partitions",
    {"records_per_s": "records/s", "cpu_s_per_million": "CPU-s per M records, all brokers"},
    (ratio("records_per_s", at_least=1.5), ratio("cpu_s_per_million", at_most=1 / 3)),
    (ratio("records_per_s", at_least=1.5), ratio("cpu_s_per_million", at_most=1 / 3)),
)
ON_THE_WAY = Row(
    "produce → consume at 1,000 records/s",
    {"p50_ms": "p50 ms", "p99_ms": "p99 ms"},
    (),
    (ratio("p50_ms", at_most=1 / 4), ratio("p99_ms", at_most=1 / 4)),
    is_peer_synced=True,
)
WITHOUT_ACKS = {
    "p50_s": "p50 s",
    "p99_s": "p99 s",
    "max_s": "longest s",
    "max_at_internal_s": "s of the longest at librdkafka's `:0/internal`",
}
KILLED = Row(
    "`kill -9` of a leader: longest time without an acknowledgement in any of 6 partitions",
    WITHOUT_ACKS,
    (Goal("p50_s", at_most=0.4), Goal("p99_s", at_most=1.0)),
    is_flushed=False,
)
STOPPED = Row(
    "SIGTERM to a leader: longest time without an acknowledgement in any of 6 partitions",
    WITHOUT_ACKS,
    (Goal("p50_s", at_most=0.2),),
    is_flushed=False,
)
ROWS = (START, MEMORY_IDLE, MANY_REQUESTS, ONE_AT_A_TIME, PRODUCE, ON_THE_WAY, KILLED, STOPPED)


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure all rows. The starts come first, because the other cases leave data behind. The
    failovers come last."""
    found: list[Measurement] = []
    for measurement in _measurements(bench):
        found.append(measurement)
        yield measurement
    for line in markdown(ROWS, found, "three nodes, three copies, acks=all"):
        sys.stderr.write(line + "\n")


def _measurements(bench: Bench) -> Iterator[Measurement]:
    yield from _starts(bench)
    folder = bench.new_folder("cluster")
    with ClusterProcesses(folder) as processes, BesideKafka(bench, OF_THREE) as kafka:
        ours = server("millrace", processes.bootstrap, processes.pids, OF_THREE)
        turns = Turns(PART, bench, ours, kafka.server)
        sized = bench.options.sized
        yield turns.once(MEMORY_IDLE, _memory)
        turns.warm_up(sized(10_000_000 if kafka.server else 1_000_000, 20_000))
        yield from turns.flushed(MANY_REQUESTS, cases.requests(bench, 10, 5))
        yield from turns.flushed(ONE_AT_A_TIME, cases.requests(bench, 1, 1))
        yield from turns.flushed(PRODUCE, cases.produce(bench, 200, sized(3_000_000, 20_000)))
        yield from turns.flushed(ON_THE_WAY, cases.on_the_way(bench, 1_000))
        for one in turns.all:
            one.topics.delete(KEPT_TOPIC)
        endangered: list[tuple[Server, failover.Processes]] = [(ours, processes)]
        if kafka.server is not None and kafka.process is not None:
            endangered.append((kafka.server, kafka.process))
        yield _ends(bench, KILLED, signal.SIGKILL, endangered)
        yield _ends(bench, STOPPED, signal.SIGTERM, endangered)
    shutil.rmtree(folder, ignore_errors=True)


def _memory(one: Server, _: Mapping[str, str]) -> Figures:
    return {"pss_mib": one.pss_mib}


def _starts(bench: Bench) -> Iterator[Measurement]:
    """Measure how fast a cluster starts on empty folders. Formatting Kafka's folders is not
    measured."""

    def ours(settings: Mapping[str, str]) -> Figures:
        folder = bench.new_folder("cluster-start")
        processes = ClusterProcesses(
            folder, {"log.flush.interval.messages": int(settings["flush.messages"])}
        )
        try:
            return until_first_record(processes.bootstrap, processes.spawn, OF_THREE)
        finally:
            processes.kill9()
            shutil.rmtree(folder, ignore_errors=True)

    def peers() -> Figures:
        process = new_kafka(bench, "kafka-start", OF_THREE.replicas)
        assert process is not None
        process.format()
        try:
            return until_first_record(process.bootstrap, process.spawn, OF_THREE)
        finally:
            process.kill9()
            shutil.rmtree(process.folder, ignore_errors=True)

    has_peer = new_kafka(bench, "kafka-probe", OF_THREE.replicas) is not None
    return by_flush(
        PART,
        bench,
        START,
        {kind: partial(ours, settings) for kind, settings in FLUSH.items()},
        Beside(PEER, peers) if has_peer else None,
    )


def _ends(
    bench: Bench,
    row: Row,
    number: signal.Signals,
    endangered: Sequence[tuple[Server, failover.Processes]],
) -> Measurement:
    """Measure how long partitions cannot be written to after their leader was stopped.

    Each round stops some leaders of each server. The figures are computed over all rounds. A
    disturbed round is marked in the JSON line. It is not measured again, because it takes minutes.
    """
    note(row.work)
    found: dict[str, list[outage.Outage]] = {one.name: [] for one, _ in endangered}
    loads: dict[str, float] = dict.fromkeys(found, 0.0)
    for _ in range(bench.options.runs):
        for one, processes in endangered:
            run = bench.once(partial(_round, bench, one, processes, number, found[one.name]))
            loads[one.name] = max(loads[one.name], run.other_load)
    pooled: list[tuple[str, list[Run], Values]] = [
        (name, [Run(outage.figures(ends), loads[name])], outage.values(ends))
        for name, ends in found.items()
    ]
    (_, runs, values), *others = pooled
    peer = Peer(*others[0]) if others else None
    return Measurement(PART, row.work, runs, peer, row.goals, values=values)


def _round(
    bench: Bench,
    one: Server,
    processes: failover.Processes,
    number: signal.Signals,
    found: list[outage.Outage],
) -> Figures:
    count = bench.options.sized(ENDS_A_ROUND, 1)
    ends = failover.outages(one, processes, number, count)
    found.extend(ends)
    return outage.figures(ends)
