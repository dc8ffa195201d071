"""The rate of new connections of an address: which quota counts, what a refusal costs, and how many
addresses are remembered."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from broker.quotas import rates as module
from broker.quotas.connection_rates import ConnectionRates
from protocol.security.quota import CONNECTION_RATE, PRODUCE_RATE

BURST_S = 10
"""The seconds of which an address can use the quota at once."""


def rates(quotas: Mapping[str | None, float]) -> ConnectionRates:
    made = ConnectionRates()
    made.use({(("ip", name),): {CONNECTION_RATE: value} for name, value in quotas.items()})
    return made


def admitted(made: ConnectionRates, host: str, count: int, now_ms: int = 0) -> int:
    return sum(not made.refusal(host, now_ms) for _ in range(count))


def test_an_address_has_ten_seconds_worth_at_once_and_then_its_rate() -> None:
    made = rates({"10.0.0.7": 2})
    assert admitted(made, "10.0.0.7", 100) == 2 * BURST_S
    assert made.refusal("10.0.0.7", 0) == "connection_creation_rate 2 of 10.0.0.7 is reached"
    # Refused connections do not count: ten seconds later the window is the same, and after its end
    # the address starts again.
    assert admitted(made, "10.0.0.7", 100, 11_000) == 2 * BURST_S


def test_a_steady_client_below_its_quota_is_always_admitted() -> None:
    made = rates({None: 5})
    assert all(not made.refusal("10.0.0.7", number * 250) for number in range(1_000))


def test_the_quota_of_the_address_counts_before_the_default() -> None:
    made = rates({"10.0.0.7": 3, None: 1})
    assert admitted(made, "10.0.0.7", 100) == 3 * BURST_S
    # Each other address has the default for itself.
    assert [admitted(made, f"10.0.1.{number}", 100) for number in range(3)] == [BURST_S] * 3


@pytest.mark.parametrize("host", ["::ffff:10.0.0.7", "10.0.0.7"])
def test_an_address_is_compared_in_its_shortest_form(host: str) -> None:
    assert admitted(rates({"10.0.0.7": 1}), host, 100) == BURST_S


def test_without_a_quota_nothing_is_counted() -> None:
    made = ConnectionRates()
    made.use(
        {(("user", "shop"),): {PRODUCE_RATE: 1.0}, (("ip", "10.0.0.7"),): {CONNECTION_RATE: 1}}
    )
    assert admitted(made, "10.0.0.8", 100) == 100
    made.use({})
    assert admitted(made, "10.0.0.7", 100) == 100
    assert not made._rates


def test_the_number_of_remembered_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RATES_MAX", 10)
    made = rates({None: 1})
    for number in range(100):
        made.refusal(f"10.0.0.{number}", 0)
        assert len(made._rates) <= 10


def test_the_rate_is_never_above_the_quota() -> None:
    """In each window of eleven seconds at most eleven seconds' worth is admitted."""
    chance = random.Random(612)
    made, now_ms, times = rates({None: 4}), 0, []
    for _ in range(3_000):
        now_ms += chance.choice((0, 0, 0, 30, 400))
        if not made.refusal("h", now_ms):
            times.append(now_ms)
    for first in times:
        within = [one for one in times if first <= one < first + 10_000]
        assert len(within) <= 4 * (BURST_S + 2), first
