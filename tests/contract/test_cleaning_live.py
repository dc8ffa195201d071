"""A running broker compacts its topics while it serves, and restarts afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.messages.fetch import FetchRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.wire.records import NewRecord, build_batch, iterate_batches, iterate_records
from tests.harness.broker import BrokerProcess
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient, create, fetch_request

pytestmark = pytest.mark.live

TOPIC = "table"
KEYS = 10
DEADLINE_S = 60.0
SETTINGS = {"log.cleaner.backoff.ms": 50, "log.segment.delete.delay.ms": 0}
CONFIG = {
    "cleanup_policy": "compact",
    "segment_bytes": "8000",
    "min_cleanable_dirty_ratio": "0.1",
}


def produce(client: WireClient, number: int) -> None:
    records = [NewRecord(b"k%d" % key, b"%d-%d" % (key, number), -1) for key in range(KEYS)]
    data = PartitionProduceData(index=0, records=memoryview(build_batch(records)))
    topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def read(client: WireClient, end_offset: int) -> tuple[dict[bytes, bytes], int]:
    """Return the last value of each key, and the number of records that were read."""
    offset, count = 0, 0
    found: dict[bytes, bytes] = {}
    while offset < end_offset:
        request: FetchRequest = fetch_request(TOPIC, offset)
        part = client.ask(request, 12).responses[0].partitions[0]
        assert part.error_code == 0
        for header, view in iterate_batches(part.records or b""):
            for record in iterate_records(view):
                found[record.key or b""] = record.value or b""
                count += 1
            offset = header.last_offset + 1
    return found, count


def test_a_compacted_topic_stays_small_under_load_and_over_a_kill(tmp_path: Path) -> None:
    rounds = 0
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        folder = broker.log_dir / f"{TOPIC}-0"
        with WireClient(broker.bootstrap) as client:
            create(client, TOPIC, 1, **CONFIG)

            def has_been_cleaned() -> bool:
                nonlocal rounds
                for _ in range(20):
                    produce(client, rounds)
                    rounds += 1
                return read(client, rounds * KEYS)[1] < rounds * KEYS / 4

            wait_until(has_been_cleaned, DEADLINE_S, "most records are cleaned away")
            found, _ = read(client, rounds * KEYS)
            assert found == {b"k%d" % key: b"%d-%d" % (key, rounds - 1) for key in range(KEYS)}
        broker.kill9()
        broker.start()
        with WireClient(broker.bootstrap) as client:
            assert read(client, rounds * KEYS)[0] == found
            produce(client, rounds)
            found = read(client, (rounds + 1) * KEYS)[0]
            assert set(found.values()) == {b"%d-%d" % (key, rounds) for key in range(KEYS)}
        assert (folder / f"{0:020d}.log").exists()
        assert "could not be compacted" not in broker.log_text()
