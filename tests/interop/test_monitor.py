"""The monitor's process with a real broker: its samples, and its page after the broker has died."""

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from protocol.client.cluster import Cluster
from protocol.client.group import OffsetAndMetadata, commit_offsets
from protocol.types import TopicPartition
from sinks.config import SinksSettings
from tests.harness.broker import BrokerProcess
from tests.harness.monitor import MonitorProcess
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

READER = TopicPartition("logs.access", 0)


def monitor_of(
    broker: BrokerProcess, folder: Path, sinks: SinksSettings | None = None
) -> MonitorProcess:
    """Run a monitor of one broker with short intervals."""
    return MonitorProcess([broker], folder, sinks, refresh="200ms")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, {"num.partitions": 1}) as running:
        yield running


@pytest.fixture
def monitor(broker: BrokerProcess, tmp_path: Path) -> Iterator[MonitorProcess]:
    running = monitor_of(broker, tmp_path)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def produce(broker: BrokerProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(READER.topic, f"line {number}".encode())
    assert producer.flush(30) == 0


def commit(broker: BrokerProcess, offset: int) -> None:
    async def run() -> None:
        cluster = Cluster(broker.bootstrap, client_id="test")
        await cluster.start()
        await commit_offsets(cluster, "millrace-stream", {READER: OffsetAndMetadata(offset, "b7")})
        await cluster.close()

    asyncio.run(run())


def test_lag_grows_with_what_is_written_and_falls_with_what_is_committed(
    broker: BrokerProcess, monitor: MonitorProcess
) -> None:
    produce(broker, 100)
    commit(broker, 100)
    wait_until(lambda: monitor.lag() == [("ok", 0, 0)], 20, "lag 0")
    produce(broker, 250)
    wait_until(lambda: monitor.lag() == [("ok", 250, 250)], 20, "lag as written")
    row = monitor.get("/api/v1/lag")["data"][0]
    assert 0 <= row["time_lag_ms"] < 60_000
    commit(broker, 350)
    wait_until(lambda: monitor.lag() == [("ok", 0, 0)], 20, "lag 0 again")


def test_a_dead_broker_is_down_and_its_lag_unknown_until_it_is_back(
    broker: BrokerProcess, monitor: MonitorProcess
) -> None:
    produce(broker, 30)
    commit(broker, 10)
    wait_until(lambda: monitor.lag() == [("ok", 20, 20)], 20, "lag 20")
    broker.kill9()
    wait_until(lambda: monitor.lag() == [("end_unknown", None, 20)], 20, "lag unknown")
    assert [b["alive"] for b in monitor.get("/api/v1/brokers")["data"]] == [False]
    wait_until(
        lambda: [p["health"] for p in monitor.get("/api/v1/parts")["data"]] == ["down"],
        20,
        "its status has not answered either",
    )
    assert monitor.get("/api/v1/lag")["errors"]
    broker.restart()
    wait_until(lambda: monitor.lag() == [("ok", 20, 20)], 20, "lag known again")


def test_it_stops_cleanly_with_a_page_open(broker: BrokerProcess, monitor: MonitorProcess) -> None:
    wait_until(lambda: monitor.get("/status")["ready"], 20, "the first snapshot")
    with urllib.request.urlopen(f"http://127.0.0.1:{monitor.port}/events", timeout=10) as events:
        assert events.readline().startswith(b"data: ")
        monitor.process.terminate()
        assert monitor.process.wait(15) == 0


def test_sinks_are_parts_too(
    broker: BrokerProcess, mysql_server: MySqlServer, tmp_path: Path
) -> None:
    with RedisServer(tmp_path / "r") as redis:
        sinks = SinksSettings(mysql=mysql_server.new_database(), redis=redis.settings)
        monitor = monitor_of(broker, tmp_path, sinks)

        def health() -> dict[str, str]:
            rows = monitor.get("/api/v1/parts")["data"]
            return {row["part"]: row["health"] for row in rows}

        try:
            up = {"broker-1": "up", "mysql": "up", "redis": "up"}
            wait_until(lambda: health() == up, 20, "all parts are up")
            redis.kill9()
            wait_until(lambda: health() == {**up, "redis": "down"}, 20, "Redis is down")
            redis.start()
            wait_until(lambda: health() == up, 20, "all parts are up again")
        finally:
            monitor.process.kill()
            monitor.process.wait()
