"""The brokers under test: ours, and Apache Kafka beside it when it was asked for and can be had."""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType

import pytest

from bench.librdkafka import Topics
from bench.measurement import Figures
from bench.report import note
from bench.session import Bench
from protocol.errors import ErrorCode
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.harness.kafka import VERSION, KafkaProcess
from tests.harness.wire import Hung, WireClient, batch_of, produce_request

Skipped = pytest.skip.Exception

FLUSH: Mapping[str, Mapping[str, str]] = {
    "interval": {"flush.messages": str(2**63 - 1)},
    "ack": {"flush.messages": "1"},
}
"""The topic settings behind the two words; the first is Kafka's own bargain, and its default."""

KAFKA_HEAP = "1G"
POLL_S = 0.005
ANSWER_S_MAX = 60.0


@dataclass(slots=True)
class Server:
    """A running broker, ours or the peer."""

    name: str
    bootstrap: str
    pid: int
    topics: Topics
    record_count: int = 0
    """Records it has taken so far, by whatever case."""

    topic_count: int = 0
    """Topics made for single runs so far."""


def server(name: str, bootstrap: str, pid: int) -> Server:
    """A handle on a broker that serves already."""
    return Server(name, bootstrap, pid, Topics(bootstrap))


class BesideKafka:
    """Apache Kafka for the time of a `with`; `server` is None where there is none."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._process: KafkaProcess | None = None
        self.server: Server | None = None

    def __enter__(self) -> "BesideKafka":
        self._process = new_kafka(self._bench, "kafka")
        if self._process is not None:
            note(f"starting Apache Kafka {VERSION}")
            self._process.start()
            name = f"kafka {VERSION}"
            self.server = server(name, self._process.bootstrap, self._process.pid())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.stop()
            shutil.rmtree(self._process.folder, ignore_errors=True)


def new_kafka(bench: Bench, name: str) -> KafkaProcess | None:
    """A Kafka that was not started yet; None when it was not asked for or cannot be had."""
    if not bench.options.beside_kafka:
        return None
    try:
        return KafkaProcess(bench.new_folder(name), heap=KAFKA_HEAP)
    except Skipped as reason:
        note(f"without Apache Kafka: {reason}")
        return None


def until_first_record(bootstrap: str, spawn: Callable[[], object]) -> Figures:
    """Seconds from the start of a process to its first answer, and to its first durable record."""
    began_s = time.perf_counter()
    spawn()
    client = _first_connection(bootstrap, began_s + ANSWER_S_MAX)
    with client:
        client.ask(ApiVersionsRequest(), 0)
        answer_s = time.perf_counter() - began_s
        _until_created(client, began_s + ANSWER_S_MAX)
        _until_produced(client, began_s + ANSWER_S_MAX)
        return {"answer_s": answer_s, "record_s": time.perf_counter() - began_s}


def _first_connection(bootstrap: str, end_s: float) -> WireClient:
    while True:
        try:
            return WireClient(bootstrap, "bench")
        except OSError:
            if time.perf_counter() > end_s:
                raise
            time.sleep(POLL_S)


def _until_created(client: WireClient, end_s: float) -> None:
    topic = CreatableTopic(name="first", num_partitions=1, replication_factor=1)
    while True:
        code = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
        if code.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        _still_starting(code.topics[0].error_code, end_s)


def _until_produced(client: WireClient, end_s: float) -> None:
    while True:
        answer = client.ask(produce_request("first", batch_of([b"first"])), 9)
        code = answer.responses[0].partition_responses[0].error_code
        if code == ErrorCode.NONE:
            return
        _still_starting(code, end_s)


def _still_starting(code: int, end_s: float) -> None:
    if time.perf_counter() > end_s:
        raise Hung(f"no durable record in {ANSWER_S_MAX} s; last error {code}")
    time.sleep(POLL_S)
