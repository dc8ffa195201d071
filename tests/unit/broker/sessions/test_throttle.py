"""Clients over their quota: the answer comes at once, then the connection pauses (KIP-219)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.metadata.quota_changes import quota_record
from broker.sessions.metered import MeteredFastPath, MeteredStarts
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.security.quota import (
    FETCH_RATE,
    PRODUCE_RATE,
    REQUEST_SHARE,
    QuotaEntity,
)
from tests.harness.wire import batch_of, produce_request
from tests.unit.broker.login_rig import LoginRig

ALL_CLIENTS: QuotaEntity = (("client-id", None),)
SHOP: QuotaEntity = (("user", "shop"),)
BATCH = batch_of([b"x" * 1_000])


class Scene:
    """A broker with a topic and quotas, and a client on the listener HOST."""

    def __init__(self, entity: QuotaEntity = ALL_CLIENTS, **quotas: float) -> None:
        self.rig = LoginRig(connections_max_reauth_ms=60_000, connections_max_idle_ms=30_000)
        self.rig.set_password("shop", "secret")
        self.rig.create("t")
        self.set(entity, **quotas)
        self.client = self.rig.connect("HOST")

    def set(self, entity: QuotaEntity, **quotas: float) -> None:
        for key, value in quotas.items():
            self.rig.commit(quota_record(entity, key, value, remove=not value))

    def encoded(self, acks: int = -1) -> bytes:
        request = produce_request("t", BATCH)
        request.acks = acks
        return self.client.encoded(request, 9)

    def sync(self) -> None:
        self.rig.world.settle()
        self.rig.flusher.sync()
        self.rig.world.settle()

    def produce(self) -> int | None:
        """Send a Produce. Return the pause in its answer; None if there is no answer."""
        self.client.send_bytes(self.encoded())
        self.sync()
        return self.pause()

    def pause(self) -> int | None:
        """Return the pause in the next answer to a Produce."""
        answer = self.client.answer(ProduceRequest, 9)
        if answer is None:
            return None
        (one,) = answer.responses[0].partition_responses
        assert one.error_code == 0
        return int(answer.throttle_time_ms)

    @property
    def log_end(self) -> int:
        return self.rig.broker.parts.replicas.find("t", 0).log.log_end_offset

    def fetch(self, **fields: Any) -> Any:
        """Send a Fetch from the start of the log, with a session. Return the answer."""
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="t", partitions=[partition])]
        usual: dict[str, Any] = {"max_wait_ms": 0, "max_bytes": 1 << 20, "topics": topics}
        request = FetchRequest(**usual | {"session_epoch": 0} | fields)
        return self.client.ask(request, 12)


def records_in(answer: Any) -> int:
    """Return the bytes of records in the answer to a Fetch."""
    return sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_produce_over_the_quota_is_answered_at_once_and_the_connection_pauses(
    before: int,
) -> None:
    """With one or two requests before it the Produce takes the fast path."""
    scene = Scene(producer_byte_rate=10**9)
    for _ in range(before):
        assert scene.produce() == 0
    scene.set(ALL_CLIENTS, producer_byte_rate=100)
    pause_ms = scene.produce()
    assert pause_ms is not None and pause_ms > 0
    assert scene.log_end == before + 1
    # Nothing is served during the pause, whatever the client sends.
    assert scene.produce() is None
    scene.rig.let_time_pass(pause_ms - 1)
    assert scene.log_end == before + 1
    scene.rig.let_time_pass(1)
    scene.sync()
    assert scene.log_end == before + 2
    assert scene.pause() is not None


def test_the_pause_is_kafkas() -> None:
    """The size of the request counts: (O - T) / T times the window of ten seconds."""
    scene = Scene(producer_byte_rate=50)
    size_bytes = len(scene.encoded()) - 4
    assert scene.produce() == round((size_bytes / 10 - 50) / 50 * 10_000)


def test_requests_that_are_in_flight_wait_too() -> None:
    scene = Scene(producer_byte_rate=100)
    scene.client.send_bytes(scene.encoded() + scene.encoded())
    metadata = scene.client.encoded(MetadataRequest(topics=[]), 9)
    scene.client.send_bytes(metadata + scene.encoded())
    scene.sync()
    # The first Produce pauses the connection when it starts, before its answer is ready.
    first = scene.pause()
    assert first is not None and scene.pause() is None
    assert scene.log_end == 1
    scene.rig.let_time_pass(first)
    scene.sync()
    second = scene.pause()
    assert second is not None and scene.log_end == 2
    assert scene.client.answer(MetadataRequest, 9) is None
    scene.rig.let_time_pass(second)
    scene.sync()
    assert scene.client.answer(MetadataRequest, 9) is not None
    assert scene.pause() is not None and scene.log_end == 3


def test_the_bytes_of_a_produce_without_acknowledgement_pause_too() -> None:
    scene = Scene(producer_byte_rate=100)
    scene.client.send_bytes(scene.encoded(acks=0))
    scene.client.send(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
    scene.sync()
    assert scene.log_end == 1
    assert scene.client.answer(ApiVersionsRequest, 3) is None
    scene.rig.let_time_pass(60_000)
    assert scene.client.answer(ApiVersionsRequest, 3) is not None


def test_pitfall_38_a_throttled_fetch_is_empty_and_keeps_its_session() -> None:
    """The records come with the next Fetch of the session, which does not name the partition."""
    scene = Scene()
    for _ in range(3):
        assert scene.produce() == 0
    session_id = scene.fetch(min_bytes=0).session_id
    assert session_id
    scene.set(ALL_CLIENTS, consumer_byte_rate=310)
    # The whole log has about 3,200 bytes, and ten seconds of the quota are 3,100.
    full = scene.fetch(session_id=session_id, session_epoch=1)
    assert 0 < records_in(full) <= 3_100 and full.throttle_time_ms == 0
    empty = scene.fetch(session_id=session_id, session_epoch=2)
    assert empty.throttle_time_ms > 0 and empty.error_code == 0
    assert empty.session_id == session_id and not empty.responses
    assert scene.fetch(session_id=session_id, session_epoch=3, topics=[]) is None
    scene.rig.let_time_pass(20_000)
    # It came at the end of the pause, when the first answer was still in the window.
    assert not scene.client.answer(FetchRequest, 12).responses
    again = scene.fetch(session_id=session_id, session_epoch=4, topics=[])
    assert again.session_id == session_id and records_in(again) > 0


def test_a_throttled_first_fetch_makes_no_session() -> None:
    scene = Scene()
    scene.produce()
    scene.set(ALL_CLIENTS, consumer_byte_rate=150)
    assert records_in(scene.fetch()) > 0
    answer = scene.fetch()
    assert (answer.session_id, answer.error_code, answer.responses) == (0, 0, [])
    assert answer.throttle_time_ms > 0
    assert len(scene.rig.broker.parts.fetches.sessions) == 1


def test_pitfall_38_a_muted_connection_is_not_idle() -> None:
    """It is silent because the broker does not read it: no limit on silence counts the pause."""
    scene = Scene(producer_byte_rate=10)
    pause_ms = scene.produce()
    assert pause_ms is not None and pause_ms > 60_000
    # A part of a frame waits in the buffer.
    scene.client.send_bytes(scene.encoded()[:20])
    for _ in range(9):
        scene.rig.let_time_pass(10_000)
        assert not scene.client.is_closed
    scene.rig.let_time_pass(pause_ms - 90_000)
    assert not scene.client.is_closed and not scene.client.session.is_throttled
    # From now on the client's silence counts again.
    scene.rig.let_time_pass(31_000)
    scene.rig.let_time_pass(31_000)
    assert scene.client.is_closed


def test_pitfall_38_a_pause_extends_the_session_of_a_login() -> None:
    """The client cannot log in again while the broker does not read from it."""
    scene = Scene(SHOP, producer_byte_rate=10)
    scene.client = scene.rig.connect()
    scene.client.log_in()
    pause_ms = scene.produce()
    assert pause_ms is not None and pause_ms > 60_000
    scene.rig.let_time_pass(pause_ms)
    assert not scene.client.is_closed
    assert scene.produce() is not None
    scene.rig.let_time_pass(10**6)
    scene.rig.let_time_pass(61_000)
    assert scene.client.is_closed


def test_pitfall_20_a_removed_user_ends_a_muted_connection() -> None:
    scene = Scene(SHOP, producer_byte_rate=10)
    scene.client = scene.rig.connect()
    scene.client.log_in()
    assert scene.produce()
    scene.rig.remove("shop")
    assert scene.client.is_closed
    # The timer of the pause finds nothing any more.
    scene.rig.let_time_pass(10**6)


def test_pitfall_38_a_removed_quota_ends_the_pause() -> None:
    scene = Scene(producer_byte_rate=10)
    assert scene.produce()
    assert scene.produce() is None
    scene.set(ALL_CLIENTS, producer_byte_rate=0)
    scene.sync()
    assert scene.pause() == 0
    assert scene.produce() == 0


def test_the_mill_itself_has_no_quota() -> None:
    scene = Scene(producer_byte_rate=10, request_percentage=0.0001)
    scene.client = scene.rig.connect("MILL")
    assert scene.produce() == 0


def test_a_login_costs_nothing() -> None:
    scene = Scene(request_percentage=0.000_001)
    client = scene.rig.connect()
    client.log_in()
    assert client.session.login.user == "shop" and not client.session.is_throttled


def test_requests_cost_nothing_more_without_quotas() -> None:
    scene = Scene()
    reception: Any = scene.rig.broker.listeners.receptions["HOST"]
    paths: Any = (reception.dispatcher, reception.fast_path)
    assert paths == (scene.rig.broker.listeners.clients, scene.rig.broker.fast_path)
    scene.set(SHOP, **{REQUEST_SHARE: 5.0, FETCH_RATE: 1.0, PRODUCE_RATE: 1.0})
    assert isinstance(reception.dispatcher, MeteredStarts)
    assert isinstance(reception.fast_path, MeteredFastPath)
    scene.set(SHOP, **{REQUEST_SHARE: 0.0, FETCH_RATE: 0.0, PRODUCE_RATE: 0.0})
    again: Any = (reception.dispatcher, reception.fast_path)
    assert again == paths


def test_a_stopping_broker_serves_what_it_has_read() -> None:
    scene = Scene(producer_byte_rate=10)
    assert scene.produce()
    assert scene.produce() is None
    scene.rig.broker.stop_serving()
    scene.sync()
    assert scene.log_end == 2 and scene.pause() is not None
    assert scene.rig.broker.is_quiet


def test_quotas_count_after_a_restart() -> None:
    scene = Scene(producer_byte_rate=10)
    scene.sync()
    scene.rig.power_cut(Random(1))
    scene.client = scene.rig.connect("HOST")
    assert scene.produce()
