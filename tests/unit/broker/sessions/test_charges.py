"""The cost of one request: the time of its thread, and the longest pause of an answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker.quotas.client_quotas import ClientQuotas, QuotaClient
from broker.quotas.quota_table import QuotaTable
from broker.sessions.charges import PAUSE_MS_MAX, Charge, Charging
from protocol.messages.api import ApiKey
from protocol.messages.metadata import MetadataResponse
from protocol.messages.produce import ProduceResponse
from protocol.security.quota import PRODUCE_RATE, REQUEST_SHARE
from tests.unit.broker.rig import FakeSession

SECOND_NS = 10**9


class Thread:
    """A clock of a thread that the test moves, and the charges of its requests."""

    def __init__(self, **quotas: float) -> None:
        self.now_ns = 0
        self.quotas = ClientQuotas()
        self.quotas.use(QuotaTable({(("client-id", "c"),): quotas}))
        clock: Any = SimpleNamespace(monotonic_ms=lambda: 0)
        self._charging = Charging(self.quotas, clock, lambda: self.now_ns)
        self.session: Any = FakeSession()

    def charge(self, size_bytes: int = 100) -> Charge:
        return Charge(self._charging, size_bytes)

    def share(self) -> float:
        """Return the per cent of a thread that were counted in the window of ten seconds."""
        rate = self.quotas._rates[REQUEST_SHARE, ("", "c")]
        return rate.per_second(0) * 10


def test_the_time_until_the_answer_pauses_and_the_rest_counts() -> None:
    thread = Thread(**{REQUEST_SHARE: 1.0})
    charge = thread.charge()
    thread.now_ns += SECOND_NS // 5
    response = MetadataResponse()
    charge.settle(thread.session, ApiKey.METADATA, "c", response)
    # 20 % of a second are 2 % of ten: twice the quota, but a pause is at most a second.
    assert response.throttle_time_ms == thread.session.paused_ms == 1_000
    assert round(thread.share(), 6) == 20
    thread.now_ns += SECOND_NS // 10
    charge.handled()
    assert round(thread.share(), 6) == 30


def test_the_wait_of_a_parked_request_is_not_its_time() -> None:
    thread = Thread(**{REQUEST_SHARE: 50.0})
    charge = thread.charge()
    thread.now_ns += SECOND_NS // 10
    charge.handled()
    thread.now_ns += 30 * SECOND_NS
    response = MetadataResponse()
    charge.settle(thread.session, ApiKey.METADATA, "c", response)
    assert response.throttle_time_ms == 0 and thread.session.paused_ms == 0
    assert round(thread.share(), 6) == 10


def test_without_acknowledgement_only_the_bytes_count() -> None:
    thread = Thread(**{REQUEST_SHARE: 0.001, PRODUCE_RATE: 100.0})
    charge = thread.charge(size_bytes=500)
    thread.now_ns += SECOND_NS
    assert charge.settle_produce(thread.session, "c", is_answered=False) == 0
    charge.handled()
    assert (REQUEST_SHARE, ("", "c")) not in thread.quotas._rates


def test_the_greater_of_two_pauses_is_named() -> None:
    thread = Thread(**{REQUEST_SHARE: 0.001, PRODUCE_RATE: 100.0})
    charge = thread.charge(size_bytes=3_000)
    thread.now_ns += SECOND_NS
    response = ProduceResponse()
    charge.settle(thread.session, ApiKey.PRODUCE, "c", response)
    assert response.throttle_time_ms == thread.session.paused_ms == 20_000


def test_a_pause_fits_into_the_answer() -> None:
    thread = Thread(**{PRODUCE_RATE: 1.0})
    response = ProduceResponse()
    thread.charge(size_bytes=10**9).settle(thread.session, ApiKey.PRODUCE, "c", response)
    assert response.throttle_time_ms == thread.session.paused_ms == PAUSE_MS_MAX
    assert ProduceResponse.decode(response.encode(9), 9)[0] == response


def test_a_client_that_has_not_logged_in_is_not_counted() -> None:
    thread = Thread(**{REQUEST_SHARE: 0.001})
    thread.session.rights = SimpleNamespace(user="")
    charge = thread.charge()
    thread.now_ns += SECOND_NS
    charge.settle(thread.session, ApiKey.API_VERSIONS, "c", MetadataResponse())
    charge.handled()
    assert not thread.session.paused_ms and not thread.quotas._rates
    assert thread.quotas.record(REQUEST_SHARE, QuotaClient("", "c"), 1.0, 0) > 0
