"""The broker's counters and timers, and the text that Prometheus reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from broker.controller.outcome import CreateOwnTopic
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.metrics.metrics import Metrics
from broker.metrics.times import ApiTimes, RequestTiming, Times
from broker.node.status import BrokerStatus
from broker.replicas.housekeeping import LOOP_LAG_MS_MAX, WATCH_INTERVAL_MS
from protocol.errors import ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.status import PartState
from protocol.wire.records import NewRecord, build_batch
from tests.sim.clock import SimClock
from tests.unit.broker.rig import Rig
from tests.unit.storage.kit import NOW

_LINE = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+\Z')


class Ticks:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.create("logs")
    yield rig


def test_durations_are_counted_in_buckets_and_summed() -> None:
    times = Times()
    for duration_ns in (0, 1_000, 1_000_000, 5_000_000_000):
        times.add(duration_ns)
    assert (times.count, times.total_ns, times.max_ns) == (4, 5_001_001_000, 5_000_000_000)
    assert times.quantile_ns(0.5) == 1024
    assert times.quantile_ns(1.0) == 5_000_000_000
    assert Times().quantile_ns(0.99) == 0


def test_a_histogram_is_cumulative_and_ends_with_all() -> None:
    times = Times()
    for duration_ns in (1_000, 20_000, 20_000, 10**12):
        times.add(duration_ns)
    lines = list(times.text("x_seconds", 'api="fetch"'))
    counts = [int(line.rsplit(" ", 1)[1]) for line in lines if "_bucket" in line]
    assert counts == sorted(counts)
    assert (counts[0], counts[1], counts[-2], counts[-1]) == (1, 3, 3, 4)
    assert 'le="+Inf"' in lines[-3]
    assert lines[-1] == 'x_seconds_count{api="fetch"} 4'


def test_the_phases_of_a_parked_request() -> None:
    clock = Ticks()
    times = ApiTimes(ApiKey.FETCH, clock)
    timing = RequestTiming(times, 7)
    for step_ns, what in ((10, timing.handled), (100, timing.ready), (1_000, timing.sent)):
        clock.now_ns += step_ns
        what()
    found = {phase: times.phase(phase).total_ns for phase in ("queue", "local", "remote", "send")}
    assert found == {"queue": 7, "local": 10, "remote": 100, "send": 1_000}


def test_an_answer_given_inside_the_handler_has_no_remote_part() -> None:
    clock = Ticks()
    times = ApiTimes(ApiKey.METADATA, clock)
    timing = RequestTiming(times, 0)
    clock.now_ns += 10
    timing.ready()
    clock.now_ns += 5
    timing.handled()
    timing.sent()
    assert (times.local.total_ns, times.remote.count, times.send.total_ns) == (10, 0, 5)


def test_every_request_is_counted_and_one_in_sixteen_fetches_timed(rig: Rig) -> None:
    for _ in range(32):
        rig.ask(fetch(), 11)
    rig.ask(ApiVersionsRequest(), 0)
    metrics = rig.broker.metrics
    one = metrics.times_of(ApiKey.FETCH)
    assert (one.count, one.local.count) == (32, 2)
    assert metrics.times_of(ApiKey.API_VERSIONS).local.count == 1


def fetch() -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="logs", partitions=[asked])])


def test_bytes_are_counted_by_topic_when_they_come_and_when_they_leave(rig: Rig) -> None:
    batch = build_batch([NewRecord(b"k", b"value", NOW)])
    data = TopicProduceData(
        name="logs", partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    rig.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    for _ in range(2):
        rig.ask(fetch(), 11)
    text = BrokerStatus(rig.broker, 0).metrics()
    assert f'millrace_broker_topic_bytes_in_total{{topic="logs"}} {len(batch)}' in text
    assert f'millrace_broker_topic_bytes_out_total{{topic="logs"}} {2 * len(batch)}' in text
    assert f'millrace_broker_topic_log_bytes{{topic="logs"}} {len(batch)}' in text
    counts = {"bytes_in": len(batch), "bytes_out": 2 * len(batch), "size_bytes": len(batch)}
    details = BrokerStatus(rig.broker, 0).status().details
    assert details["topic_list"] == [{"topic": "logs", **counts}]
    assert f"millrace_broker_bytes_out_total {2 * len(batch)}" in text


def test_waiting_requests_are_a_gauge(rig: Rig) -> None:
    waiting = fetch()
    waiting.max_wait_ms, waiting.min_bytes = 10_000, 1
    rig.send(waiting, 11)
    assert "millrace_broker_parked_fetches 1" in BrokerStatus(rig.broker, 0).metrics()


def test_what_the_coordinators_have_in_hand_is_a_gauge(rig: Rig) -> None:
    for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        rig.broker.parts.metadata.submit(CreateOwnTopic(topic), lambda _: None, print)
        rig.flusher.sync()
        rig.turn()
    joining = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    rig.send(joining, 3)
    begun = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1_000)
    assert rig.ask(begun, 1).error_code == ErrorCode.NONE
    text = BrokerStatus(rig.broker, 0).metrics()
    for line in ("group_members 1", "parked_joins 1", "transactional_ids 1"):
        assert f"millrace_broker_{line}\n" in text
    assert "millrace_broker_open_transactions 0\n" in text


def test_prometheus_reads_every_line(rig: Rig) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    rig.ask(fetch(), 11)
    metrics = rig.broker.metrics
    metrics.flushes.add(1_000_000)
    metrics.loop_lateness.add(1_000)
    text = BrokerStatus(rig.broker, 0).metrics()
    assert all(line.startswith("# TYPE ") or _LINE.match(line) for line in text.splitlines())
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {
        "millrace_broker_requests",
        "millrace_broker_request_seconds",
        "millrace_broker_flush_seconds",
        "millrace_broker_loop_late_seconds",
        "millrace_broker_topic_log_bytes",
        "millrace_broker_connections",
    } <= names


def test_rates_are_taken_from_one_look_to_the_next(rig: Rig) -> None:
    status = BrokerStatus(rig.broker, 0)
    assert "requests_per_s" not in status.status().details
    for _ in range(10):
        rig.ask(ApiVersionsRequest(), 0)
    rig.clock.advance(2_000)
    assert status.status().details["requests_per_s"] == 5.0
    assert [one["api"] for one in apis(status) if one["count"] == 10] == ["api_versions"]


def test_a_broker_that_serves_is_ready_once_it_is_in_service(rig: Rig) -> None:
    """A broker accepts connections before the controller unfences it. Topics that are created in
    between get fewer replicas, so the broker is not ready yet."""
    status = BrokerStatus(rig.broker, 0)
    assert rig.broker.is_serving
    assert not status.status().ready
    status.state = PartState.RUNNING
    assert status.status().ready
    rig.broker.stop_serving()
    assert not status.status().ready


def apis(status: BrokerStatus) -> Any:
    return status.status().details["apis"]


def test_nothing_is_shown_of_what_was_never_asked() -> None:
    assert "request_seconds_bucket" not in Metrics(lambda: 0, SimClock(0, 0)).text({})


def test_a_loop_that_was_held_is_noticed_whatever_else_was_due(rig: Rig) -> None:
    metrics = rig.broker.metrics
    rig.advance(0)
    for held in range(1, 31):
        # The loop is held after a different number of checks each time, so other periodic tasks are
        # not always due.
        for _ in range(held):
            rig.advance(WATCH_INTERVAL_MS)
        assert metrics.loop_lags == held - 1
        rig.advance(WATCH_INTERVAL_MS + LOOP_LAG_MS_MAX)
        assert metrics.loop_lags == held
