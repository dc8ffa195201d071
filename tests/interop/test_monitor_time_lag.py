"""The time lag of groups that make no progress, with a real broker and librdkafka as the client."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.broker import BrokerProcess
from tests.harness.monitor import MonitorProcess
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

HOUR_MS = 3_600_000
YOUNG_MS = 60_000
TOPICS = {
    "appended": {"message.timestamp.type": "LogAppendTime"},
    "transactional": {},
    "batch": {},
    "future": {"message.timestamp.after.max.ms": "9223372036854775807"},
    "past": {},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        new = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
        for made in admin.create_topics(new).values():
            made.result(30)
        yield running


def write(broker: BrokerProcess, topic: str, *stamps_ms: int) -> None:
    """Write one batch with a record for each timestamp."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 500})
    for at_ms in stamps_ms:
        producer.produce(topic, b"line", partition=0, timestamp=at_ms)
    assert producer.flush(30) == 0


def commit(broker: BrokerProcess, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"{topic}-reader"})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_the_age_is_that_of_the_record_that_waits(broker: BrokerProcess, tmp_path: Path) -> None:
    now_ms = round(time.time() * 1000)
    write(broker, "appended", 1_000)
    write(broker, "batch", now_ms - HOUR_MS, now_ms)
    write(broker, "future", now_ms + HOUR_MS)
    write(broker, "past", 1_000)
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    writer.init_transactions()
    writer.begin_transaction()
    for _ in range(2):
        writer.produce("transactional", b"line", partition=0, timestamp=now_ms - HOUR_MS)
    writer.commit_transaction()
    for topic, offset in (("appended", 0), ("batch", 1), ("future", 0), ("past", 0)):
        commit(broker, topic, offset)
    commit(broker, "transactional", 2)
    monitor = MonitorProcess([broker], tmp_path, refresh="200ms")
    try:
        rows = wait_until(lambda: looked_at(monitor), 30, "every reader was looked at")
        assert rows is not None
        for topic in ("appended", "batch"):
            assert 0 < rows[topic]["time_lag_ms"] < YOUNG_MS, topic
            assert rows[topic]["time_lag_bound"] == "exact"
        for topic in ("future", "past"):
            assert rows[topic]["time_lag_ms"] is None, topic
        before_marker = rows["transactional"]
        assert (before_marker["lag"], before_marker["time_lag_ms"]) == (1, 0)
    finally:
        monitor.kill()


def looked_at(monitor: MonitorProcess) -> dict[str, Any] | None:
    """Return the lag rows by topic, or None until the monitor has read a record for each group."""
    rows = {row["topic"]: row for row in monitor.rows("lag")}
    bounds = {topic: row["time_lag_bound"] for topic, row in rows.items()}
    wanted = {**dict.fromkeys(TOPICS, "exact"), "future": "unknown", "past": "unknown"}
    return rows if bounds == wanted else None
