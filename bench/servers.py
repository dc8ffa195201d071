"""The brokers under test: ours and, if requested and available, Apache Kafka."""

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType

import pytest

from bench.librdkafka import ALONE, Replication, Topics
from bench.machine import cpu_s, pss_mib
from bench.measurement import Figures
from bench.report import note
from bench.session import Bench
from protocol.errors import ErrorCode
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.harness.kafka import VERSION, KafkaProcess
from tests.harness.wire import Hung, WireClient, batch_of, produce_request

Skipped = pytest.skip.Exception

FLUSH: Mapping[str, Mapping[str, str]] = {
    "interval": {"flush.messages": str(2**63 - 1)},
    "ack": {"flush.messages": "1"},
}
"""The topic settings for the two kinds of flushing. Kafka's default is `interval`."""

PEER = f"kafka {VERSION}"
KAFKA_HEAP = "1G"
FIRST_TOPIC = "first"
POLL_S = 0.005
ANSWER_S_MAX = 60.0


@dataclass(slots=True)
class Server:
    """A running cluster of one broker or several, either ours or the peer."""

    name: str
    bootstrap: str
    pids: Callable[[], Iterable[int]]
    """A function that returns the process ids of the cluster's brokers. A restarted broker has
    another process id."""

    topics: Topics
    replication: Replication
    record_count: int = 0
    """The number of records that the cluster has received in all cases."""

    topic_count: int = 0
    """The number of topics that were created for single runs."""

    @property
    def address(self) -> str:
        """Return the address of one broker."""
        return self.bootstrap.split(",")[0]

    @property
    def cpu_s(self) -> float:
        """Return the user and system seconds of all its brokers."""
        return sum(cpu_s(pid) for pid in self.pids())

    @property
    def pss_mib(self) -> float:
        """Return the proportional set size of all its brokers."""
        return pss_mib(self.pids())


def server(
    name: str,
    bootstrap: str,
    pids: Callable[[], Iterable[int]],
    replication: Replication = ALONE,
) -> Server:
    """Return a server object for brokers that already run."""
    return Server(name, bootstrap, pids, Topics(bootstrap, replication), replication)


class BesideKafka:
    """Runs Apache Kafka within a `with` block. If Kafka cannot run, `server` and `process` are
    None."""

    def __init__(self, bench: Bench, replication: Replication = ALONE) -> None:
        self._bench = bench
        self._replication = replication
        self.process: KafkaProcess | None = None
        self.server: Server | None = None

    def __enter__(self) -> "BesideKafka":
        process = new_kafka(self._bench, "kafka", self._replication.replicas)
        if process is not None:
            self.process = process
            note(f"starting Apache Kafka {VERSION}")
            try:
                process.start()
            except BaseException:
                # If an interrupt comes here, `__exit__` is not called, because the block has not
                # begun. So clean up here.
                process.kill9()
                raise
            self.server = server(PEER, process.bootstrap, process.pids, self._replication)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process is not None:
            self.process.stop()
            shutil.rmtree(self.process.folder, ignore_errors=True)


def new_kafka(bench: Bench, name: str, nodes: int = 1) -> KafkaProcess | None:
    """Return a Kafka that has not been started; None if Kafka was not requested or is not
    available."""
    if not bench.options.beside_kafka:
        return None
    try:
        return KafkaProcess(bench.new_folder(name), nodes=nodes, heap=KAFKA_HEAP)
    except Skipped as reason:
        note(f"without Apache Kafka: {reason}")
        return None


def until_first_record(
    bootstrap: str, spawn: Callable[[], object], replication: Replication = ALONE
) -> Figures:
    """Start the processes. Return the seconds until the first answer, and until the first durable
    record."""
    began_s = time.perf_counter()
    end_s = began_s + ANSWER_S_MAX
    spawn()
    with _first_connection(bootstrap.split(",")[0], end_s) as client:
        client.ask(ApiVersionsRequest(), 0)
        answer_s = time.perf_counter() - began_s
        _until_created(client, replication, end_s)
        _until_produced(client, end_s)
        return {"answer_s": answer_s, "record_s": time.perf_counter() - began_s}


def leader_addresses(client: WireClient, topic: str) -> dict[int, str]:
    """Return the address of each partition's leader. Partitions without a leader are left out."""
    wanted = [MetadataRequestTopic(name=topic)]
    answer = client.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 4)
    by_id = {one.node_id: f"{one.host}:{one.port}" for one in answer.brokers}
    return {
        one.partition_index: by_id[one.leader_id]
        for one in answer.topics[0].partitions
        if one.leader_id in by_id
    }


def _first_connection(address: str, end_s: float) -> WireClient:
    while True:
        try:
            return WireClient(address, "bench")
        except OSError:
            if time.perf_counter() > end_s:
                raise
            time.sleep(POLL_S)


def _until_created(client: WireClient, replication: Replication, end_s: float) -> None:
    topic = CreatableTopic(
        name=FIRST_TOPIC,
        num_partitions=1,
        replication_factor=replication.replicas,
        configs=[
            CreatableTopicConfig(name=key, value=value)
            for key, value in replication.settings.items()
        ],
    )
    while True:
        answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
        code = answer.topics[0].error_code
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        _still_starting(code, end_s)


def _until_produced(client: WireClient, end_s: float) -> None:
    """Produce one record until all in-sync replicas have acknowledged it."""
    request = produce_request(FIRST_TOPIC, batch_of([b"first"]))
    while True:
        code = int(ErrorCode.LEADER_NOT_AVAILABLE)
        if (leader := leader_addresses(client, FIRST_TOPIC).get(0)) is not None:
            with WireClient(leader, "bench") as to_leader:
                answer = to_leader.ask(request, 9)
            code = answer.responses[0].partition_responses[0].error_code
        if code == ErrorCode.NONE:
            return
        _still_starting(code, end_s)


def _still_starting(code: int, end_s: float) -> None:
    if time.perf_counter() > end_s:
        raise Hung(
            f"the broker did not acknowledge a record within {ANSWER_S_MAX} s; its last error "
            f"is {code}"
        )
    time.sleep(POLL_S)
