"""A running stream reports how long its batches spend in each stage, and how old live lines are
when they are counted."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sinks.config import SinksSettings
from stream.stages import STAGES
from tests.harness.broker import BrokerProcess
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.stream import StreamProcess
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

TOPIC = "logs.access"
DEADLINE_S = 60.0
BACKLOG = 3_000
LINES_AT_ONCE = 20
ENOUGH_LIVE = 200
# How long the test blocks writes to Redis. It is far less than the sinks' timeout. After a timeout
# the batch would fail, and its wait would count in no stage.
WAITED_S = 0.75
# Spark reports each of its times in whole milliseconds.
ROUNDED_MS = 5
SECTION = {
    "from": {"access": {"topic": TOPIC, "format": "combined"}},
    "defaults": {"windows": ["1m", "all"]},
    "metrics": [
        {"name": "by_status", "from": "access", "measure": "count", "key": "status"},
        {"name": "by_path", "from": "access", "measure": "count", "key": "path"},
    ],
}


class Rig:
    """A stream with both sinks, and a producer for its topic."""

    def __init__(self, broker: BrokerProcess, stream: StreamProcess, redis: RedisServer) -> None:
        self.stream = stream
        self.redis = redis
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})

    def send(self, lines: int) -> None:
        for _ in range(lines):
            text = (
                "10.0.0.7 - - [01/Aug/2026:10:00:00 +0000]"
                f' "GET /p{self.sent % 40} HTTP/1.1" 200 5 "-" "agent"'
            )
            self._producer.produce(TOPIC, text, key=f"f{self.sent % 9}".encode())
            self.sent += 1
        assert self._producer.flush(60) == 0

    def told(self) -> dict[str, Any]:
        return dict(self.stream.details()["stages"])

    def minute(self) -> dict[str, Any]:
        return dict(self.told()["windows"]["1m"])

    def is_counted(self) -> bool:
        return bool(self.stream.details()["lines_total"] == self.sent)

    def sends_until(self, condition: Callable[[], bool], what: str) -> None:
        """Send lines, a few with each poll, until a condition holds."""

        def comes() -> bool:
            self.send(LINES_AT_ONCE)
            return bool(condition())

        wait_until(comes, DEADLINE_S, what)


@pytest.fixture
def rig(tmp_path: Path, mysql_server: MySqlServer, redis_server: RedisServer) -> Iterator[Rig]:
    sinks = SinksSettings(mysql=mysql_server.new_database(), redis=redis_server.settings)
    with BrokerProcess(tmp_path, {"num.partitions": 3}) as broker:
        stream = StreamProcess(tmp_path, SECTION, sinks, broker.bootstrap)
        made = Rig(broker, stream, redis_server)
        made.send(BACKLOG)
        with stream:
            wait_until(made.is_counted, DEADLINE_S, "the backlog is counted")
            yield made


def test_stages_and_ages_are_those_of_what_happens(rig: Rig) -> None:
    assert rig.minute()["live_lines"] == 0, "lines that waited for the stream's start are not live"
    rig.sends_until(lambda: rig.minute()["live_lines"] >= ENOUGH_LIVE, "live lines are measured")
    wait_until(rig.is_counted, DEADLINE_S, "all is counted")
    told = rig.told()
    minute = told["windows"]["1m"]
    assert list(minute["stages"]) == list(STAGES)
    assert all(one["ms"] > 0 for one in minute["stages"].values()), minute["stages"]
    assert 0 < minute["line_ms"]["p50"] <= minute["line_ms"]["p99"]
    assert minute["lines"] == rig.sent
    for name in ("last", "median", "slowest"):
        batch = told[name]
        assert sum(batch["stage_ms"].values()) <= batch["ms"] + ROUNDED_MS, (name, batch)
    # Block writes to Redis for a while. Then the stage `redis` must have taken long, and lines must
    # be late.
    before_s = told["total"]["seconds"]["redis"]

    def has_waited() -> bool:
        # The maintenance of Redis can be the writer that waits. A batch behind it waits in no
        # stage, so then block writes again.
        with rig.redis.paused() as holds_back:
            rig.sends_until(holds_back, "a batch waits for Redis")
            over_s = time.monotonic() + WAITED_S
            wait_until(lambda: time.monotonic() >= over_s, DEADLINE_S, "it has waited long enough")
        wait_until(rig.is_counted, DEADLINE_S, "all is counted")
        return bool(rig.told()["total"]["seconds"]["redis"] > before_s + WAITED_S)

    wait_until(has_waited, DEADLINE_S, "a batch has waited for Redis")
    assert rig.told()["slowest"]["ms"] > WAITED_S * 1000
    assert rig.minute()["line_ms"]["p99"] > WAITED_S * 1000
