"""Requests of a client whose session has ended, and pending requests when it ends."""

from __future__ import annotations

import pytest

from broker.handlers.login import FAILURE_DELAY_MS
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest
from protocol.messages.sasl import SaslAuthenticateRequest
from tests.harness.wire import batch_of, fetch_request, produce_request
from tests.unit.broker.login_rig import LoginClient, LoginRig


@pytest.fixture
def rig() -> LoginRig:
    made = LoginRig()
    made.set_password("shop", "secret")
    return made


def producing(rig: LoginRig) -> tuple[LoginClient, bytes]:
    """Return a client that has logged in and written two records, and its third Produce."""
    rig.create("t")
    client = rig.connect()
    client.log_in()
    request = produce_request("t", batch_of([b"v"]))
    for _ in range(2):
        client.send(request, 9)
        rig.flusher.sync()
        rig.world.settle()
        response = client.answer(ProduceRequest, 9).responses[0]
        assert response.partition_responses[0].error_code == 0
    return client, client.encoded(request, 9)


def log_end(rig: LoginRig) -> int:
    """Return the number of records in partition 0 of topic t."""
    return rig.broker.parts.replicas.find("t", 0).log.log_end_offset


def test_a_produce_like_the_last_is_not_served_after_the_end_either() -> None:
    """The fast path must check the end of the session, as the normal path does."""
    rig = LoginRig(connections_max_reauth_ms=60_000)
    rig.set_password("shop", "secret")
    client, third = producing(rig)
    rig.clock.advance(60_001)
    client.send_bytes(third)
    assert client.is_closed
    assert log_end(rig) == 2


def test_a_produce_like_the_last_is_not_served_after_a_login_that_failed(rig: LoginRig) -> None:
    client, third = producing(rig)
    rig.clock.advance(2_000)
    client.choose()
    assert client.authenticate(b"nonsense") is None
    rig.world.run_for(FAILURE_DELAY_MS)
    assert (
        client.answer(SaslAuthenticateRequest, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    )
    was_closed = client.is_closed
    client.send_bytes(third)
    assert (was_closed, client.is_closed) == (False, True)
    assert log_end(rig) == 2


def test_a_changed_user_gets_no_answer_to_what_is_under_way(rig: LoginRig) -> None:
    """The pending requests are a Fetch that waits for records and a Produce whose batch is not
    synced yet."""
    rig.create("t", flush_messages="1")
    reader, writer = rig.connect(), rig.connect()
    for client in (reader, writer):
        client.log_in()
    reader.send(fetch_request("t", max_wait_ms=60_000), 11)
    assert reader.session.parked_fetch is not None
    writer.send(produce_request("t", batch_of([b"v"])), 9)
    sent = [client.link.sent for client in (reader, writer)]
    rig.set_password("shop", "other")
    assert reader.is_closed and writer.is_closed
    assert reader.session.parked_fetch is None
    rig.flusher.sync()
    rig.let_time_pass(61_000)
    assert [client.link.sent for client in (reader, writer)] == sent
    assert rig.connect().log_in(password="other").error_code == 0
