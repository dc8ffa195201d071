"""Topics are deleted and created again while clients produce to them and wait in a Fetch."""

import random
import threading
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from tests.harness.broker import BrokerProcess
from tests.harness.seed import seeded
from tests.harness.wire import WireClient, batch_of, fetch_request, produce_request

pytestmark = pytest.mark.live

TOPIC = "coming-and-going"
PARTITIONS = 4
PRODUCERS = 3
IN_FLIGHT = 8
NEVER_ENOUGH = 1 << 30

ROUNDS = 25
WRITES_PER_ROUND_MAX = 60


class Crowd:
    """Producers with several requests in flight, and consumers with parked fetches, of one
    topic."""

    def __init__(self, bootstrap: str) -> None:
        self.codes: set[int] = set()
        self.faults: list[str] = []
        self.writes = threading.Semaphore(0)
        self._bootstrap = bootstrap
        self._is_stopping = False
        jobs = [self._write] * PRODUCERS + [self._wait] * 2
        self._threads = [
            threading.Thread(target=self._run, args=(job, number))
            for number, job in enumerate(jobs)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, job, number: int) -> None:  # type: ignore[no-untyped-def]  # a bound method
        try:
            with WireClient(self._bootstrap) as client:
                while not self._is_stopping:
                    job(client, number)
        except Exception as error:
            self.faults.append(repr(error))

    def _write(self, client: WireClient, number: int) -> None:
        for step in range(IN_FLIGHT):
            batch = batch_of([bytes(3_000)])
            request = produce_request(TOPIC, batch, partition=(number + step) % PARTITIONS)
            client.send(request, 9)
        for _ in range(IN_FLIGHT):
            answer = client.receive().responses[0].partition_responses[0]
            self.codes.add(answer.error_code)
            self.writes.release()

    def _wait(self, client: WireClient, number: int) -> None:
        request = fetch_request(TOPIC, 0, max_wait_ms=300, min_bytes=NEVER_ENOUGH)
        self.codes.add(client.ask(request, 12).responses[0].partitions[0].error_code)

    def finish(self) -> None:
        self._is_stopping = True
        for thread in self._threads:
            thread.join()


def test_a_topic_under_load_comes_and_goes(tmp_path: Path) -> None:
    chance: random.Random = seeded("deletion under load")
    settings = {"log.segment.bytes": 20_000}
    created = CreateTopicsRequest(
        topics=[CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)]
    )
    deleted = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=10_000)
    with BrokerProcess(tmp_path, settings) as broker, WireClient(broker.bootstrap) as client:
        assert client.ask(created, 7).topics[0].error_code == 0
        crowd = Crowd(broker.bootstrap)
        try:
            for _ in range(ROUNDS):
                for _ in range(chance.randint(1, WRITES_PER_ROUND_MAX)):
                    assert crowd.writes.acquire(timeout=20)
                assert client.ask(deleted, 5).responses[0].error_code == 0
                assert client.ask(created, 7).topics[0].error_code == 0
        finally:
            crowd.finish()
        assert not crowd.faults
        assert crowd.codes <= {
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.OFFSET_OUT_OF_RANGE,
        }
        assert ErrorCode.NONE in crowd.codes
        assert broker.stop() == 0
        names = {one.name for one in broker.log_dir.iterdir() if one.is_dir()}
        assert {one for one in names if not one.endswith("-delete")} == {
            "__cluster_metadata-0",
            *(f"{TOPIC}-{number}" for number in range(PARTITIONS)),
        }
