"""The broker under librdkafka and under single-record requests; beside Apache Kafka on request.

Both brokers run with their own defaults except where a case says otherwise: `flush=ack` is
`flush.messages=1` on the topic, `flush=interval` a number that is never reached.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import pytest

from bench import librdkafka, raw
from bench.figures import percentile
from bench.machine import cpu_s, pss_mib
from bench.measurement import Figures, Goal, Measurement, Peer
from bench.report import note
from bench.session import Bench
from protocol.messages.api import ApiKey
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.headers import decode_response_header, encode_request
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.wire.records import NewRecord, build_batch
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import VERSION, KafkaProcess

PART = "broker"
Skipped = pytest.skip.Exception
PARTITIONS = 6
FLUSH = {"ack": {"flush.messages": "1"}, "interval": {"flush.messages": str(2**63 - 1)}}
KAFKA_WARM_RECORDS = 10_000_000
PRODUCE_VERSION, FETCH_VERSION = 9, 11
SMALL_RECORD_BYTES = 100
FETCH_BYTES = 1 << 20
GB = 1e9


@dataclass(frozen=True, slots=True)
class Server:
    """A running broker, ours or the peer."""

    name: str
    bootstrap: str
    pid: int
    topics: librdkafka.Topics


Case = Callable[[Server], Figures]


def measure(bench: Bench) -> Iterator[Measurement]:
    """All cases; starting first, for the other cases leave data behind."""
    yield start(bench)
    folder = bench.new_folder("broker")
    with BrokerProcess(folder) as process:
        ours = _server("millrace", process.bootstrap, process.pid)
        yield _memory_idle(bench, ours)
        with _peer(bench) as kafka:
            _warm_up(bench, ours, kafka)
            yield from _cases(bench, ours, kafka.server)
        yield Measurement(
            PART,
            "memory after the load",
            [bench.once(lambda: {"pss_mib": pss_mib([ours.pid])})],
        )
    shutil.rmtree(folder, ignore_errors=True)


def start(bench: Bench, part: str = PART) -> Measurement:
    """From the start of the process to the first healthy answer, on an empty folder."""

    def once() -> Figures:
        folder = bench.new_folder("broker-start")
        with BrokerProcess(folder) as process:
            spent_s = cpu_s(process.pid)
            seconds = process.started_s
        shutil.rmtree(folder)
        return {"ready_s": seconds, "cpu_s": spent_s}

    runs = bench.repeat("broker start", once, runs=bench.options.sized(5, 1))
    return Measurement(part, "broker start", runs, goals=[Goal("ready_s", at_most=1.0)])


def _memory_idle(bench: Bench, server: Server) -> Measurement:
    run = bench.once(lambda: {"pss_mib": pss_mib([server.pid])})
    return Measurement(PART, "memory idle", [run], goals=[Goal("pss_mib", at_most=50)])


class _peer:
    """Apache Kafka when it was asked for and can be had; `server` is None otherwise."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._process: KafkaProcess | None = None
        self.server: Server | None = None

    def __enter__(self) -> "_peer":
        if not self._bench.options.beside_kafka:
            return self
        try:
            process = KafkaProcess(self._bench.new_folder("kafka"), heap="1G")
        except Skipped as reason:
            note(f"without Apache Kafka: {reason}")
            return self
        note(f"starting Apache Kafka {VERSION}")
        self._process = process.start()
        self.server = _server(f"kafka {VERSION}", process.bootstrap, process.pid())
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop()
            shutil.rmtree(self._process.folder, ignore_errors=True)


def _server(name: str, bootstrap: str, pid: int) -> Server:
    return Server(name, bootstrap, pid, librdkafka.Topics(bootstrap))


def _cases(bench: Bench, ours: Server, peer: Server | None) -> Iterator[Measurement]:
    sized = bench.options.sized
    for (kind, settings), size, acks in product(FLUSH.items(), (1024, 200), ("1", "all")):
        count = sized(400_000 if size == 1024 else 1_000_000, 100_000)
        case = f"produce {size} B, acks={acks}, flush={kind}"
        yield _compared(bench, case, ours, peer, _produce_case(bench, size, acks, settings, count))
    yield from _fetch_cases(bench, ours, peer)
    for kind, settings in FLUSH.items():
        for acks in ("1", "all"):
            words = f"acks={acks}, flush={kind}"
            case = f"one record a request, 10 connections × 5 in flight, {words}"
            yield _compared(bench, case, ours, peer, _requests_case(bench, settings, acks, 10, 5))
            case = f"one record a request, one at a time, {words}"
            yield _compared(bench, case, ours, peer, _requests_case(bench, settings, acks, 1, 1))


def _compared(
    bench: Bench, case: str, ours: Server, peer: Server | None, measure: Case
) -> Measurement:
    if peer is None:
        return Measurement(PART, case, bench.repeat(case, lambda: measure(ours)))
    runs, theirs = bench.in_turn(case, lambda: measure(ours), lambda: measure(peer))
    return Measurement(PART, case, runs, Peer(peer.name, theirs))


def _warm_up(bench: Bench, ours: Server, kafka: _peer) -> None:
    """Let memory, page cache and (for the peer) the compiler settle before anything counts."""
    count = bench.options.sized(500_000, 20_000)
    note("warming up")
    _produce_case(bench, 200, "1", FLUSH["interval"], count)(ours)
    if kafka.server is not None:
        count = bench.options.sized(KAFKA_WARM_RECORDS, 200_000)
        _produce_case(bench, 200, "1", FLUSH["interval"], count)(kafka.server)


def _produce_case(bench: Bench, size: int, acks: str, settings: dict[str, str], count: int) -> Case:
    chance = random.Random(bench.options.seed)
    values = [chance.randbytes(size) for _ in range(64)]

    def measure(server: Server) -> Figures:
        server.topics.create("bench", PARTITIONS, settings)
        try:
            before_s = cpu_s(server.pid)
            seconds = librdkafka.produce(server.bootstrap, "bench", values, count, acks)
            spent_s = cpu_s(server.pid) - before_s
            found = server.topics.record_count("bench", PARTITIONS)
        finally:
            server.topics.delete("bench")
        if found != count:
            raise librdkafka.Lost(f"{found} of {count} records in the topic")
        volume = count * size
        return {
            "mb_per_s": volume / seconds / 1e6,
            "records_per_s": count / seconds,
            "broker_cpu_s_per_gb": spent_s / volume * GB,
            "broker_cpu_us_per_record": spent_s / count * 1e6,
        }

    return measure


def _fetch_cases(bench: Bench, ours: Server, peer: Server | None) -> Iterator[Measurement]:
    """Both read the same records, which stay in the page cache."""
    size, count = 1024, bench.options.sized(500_000, 100_000)
    value = random.Random(bench.options.seed).randbytes(size)
    servers = [ours] if peer is None else [ours, peer]
    for server in servers:
        server.topics.create("bench-fetch", PARTITIONS, {})
        librdkafka.produce(server.bootstrap, "bench-fetch", [value], count, "1")

    def by_librdkafka(server: Server) -> Figures:
        before_s = cpu_s(server.pid)
        seconds = librdkafka.consume(server.bootstrap, "bench-fetch", PARTITIONS, count)
        return _volume_figures(count * size, seconds, cpu_s(server.pid) - before_s)

    def by_replay(server: Server) -> Figures:
        before_s = cpu_s(server.pid)
        frames = [_fetch_frame("bench-fetch", number) for number in range(2)]
        seconds = bench.options.sized(3, 1)
        found = raw.replay(server.bootstrap, frames, in_flight=2, seconds=seconds)
        return _volume_figures(found.answer_bytes, found.seconds, cpu_s(server.pid) - before_s)

    yield _compared(bench, "fetch 1 KiB records by librdkafka", ours, peer, by_librdkafka)
    case = "fetch 1 MiB answers, thrown away, 2 connections × 2 in flight"
    yield _compared(bench, case, ours, peer, by_replay)
    for server in servers:
        server.topics.delete("bench-fetch")


def _volume_figures(volume: int, seconds: float, spent_s: float) -> Figures:
    return {"mb_per_s": volume / seconds / 1e6, "broker_cpu_s_per_gb": spent_s / volume * GB}


def _requests_case(
    bench: Bench, settings: dict[str, str], acks: str, connections: int, in_flight: int
) -> Case:
    seconds = bench.options.sized(3, 1)

    def measure(server: Server) -> Figures:
        server.topics.create("bench", PARTITIONS, settings)
        try:
            frames = [
                _produce_frame("bench", number % PARTITIONS, acks) for number in range(connections)
            ]
            before_s = cpu_s(server.pid)
            found = raw.replay(server.bootstrap, frames, in_flight=in_flight, seconds=seconds)
            spent_s = cpu_s(server.pid) - before_s
            _check_produced(found.last_answer)
            records = server.topics.record_count("bench", PARTITIONS)
        finally:
            server.topics.delete("bench")
        if records != found.requests:
            raise librdkafka.Lost(f"{records} records of {found.requests} acknowledged requests")
        return {
            "requests_per_s": found.requests / found.seconds,
            "ack_p50_ms": percentile(found.latencies_s, 0.5) * 1e3,
            "ack_p99_ms": percentile(found.latencies_s, 0.99) * 1e3,
            "broker_cpu_us_per_request": spent_s / found.requests * 1e6,
        }

    return measure


def _produce_frame(topic: str, partition: int, acks: str) -> bytes:
    record = NewRecord(None, bytes(SMALL_RECORD_BYTES), 1_700_000_000_000)
    data = PartitionProduceData(index=partition, records=build_batch([record]))
    request = ProduceRequest(
        acks=-1 if acks == "all" else int(acks),
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return encode_request(request, PRODUCE_VERSION, 1, "bench")


def _check_produced(answer: bytes) -> None:
    _, position = decode_response_header(answer, ApiKey.PRODUCE, PRODUCE_VERSION)
    response, _ = ProduceResponse.decode(answer, PRODUCE_VERSION, position)
    code = response.responses[0].partition_responses[0].error_code
    if code:
        raise librdkafka.Lost(f"the broker refused a record: error {code}")


def _fetch_frame(topic: str, partition: int) -> bytes:
    wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return encode_request(request, FETCH_VERSION, 1, "bench")
