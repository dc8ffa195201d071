"""The pauses of clients: the clients that share a rate, refunds, and the bound on memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from broker.quotas import rates
from broker.quotas.client_quotas import ClientQuotas, QuotaClient
from broker.quotas.quota_table import QuotaTable
from protocol.security.quota import FETCH_RATE, PRODUCE_RATE, REQUEST_SHARE, QuotaEntity

SHOP: QuotaEntity = (("user", "shop"),)
WEB = QuotaClient("shop", "web")


def quotas(values: Mapping[QuotaEntity, Mapping[str, float]]) -> ClientQuotas:
    made = ClientQuotas()
    made.use(QuotaTable(values))
    return made


def test_clients_of_a_user_share_its_quota() -> None:
    made = quotas({SHOP: {PRODUCE_RATE: 100.0}})
    assert made.record(PRODUCE_RATE, WEB, 1_000, 0) == 0
    assert made.record(PRODUCE_RATE, QuotaClient("shop", "app"), 100, 0) == 1_000
    assert made.record(PRODUCE_RATE, QuotaClient("other", "web"), 9_999, 0) == 0


def test_a_default_gives_each_user_a_rate_of_its_own() -> None:
    made = quotas({(("user", None),): {PRODUCE_RATE: 100.0}})
    assert made.record(PRODUCE_RATE, WEB, 1_000, 0) == 0
    assert made.record(PRODUCE_RATE, QuotaClient("other", "web"), 1_000, 0) == 0
    assert made.record(PRODUCE_RATE, WEB, 1, 0) > 0


def test_a_client_without_a_login_is_kafkas_anonymous() -> None:
    made = quotas({(("user", "ANONYMOUS"),): {PRODUCE_RATE: 100.0}})
    assert made.record(PRODUCE_RATE, QuotaClient(None, None), 2_000, 0) == 10_000


def test_the_pause_for_requests_is_at_most_a_second() -> None:
    made = quotas({SHOP: {REQUEST_SHARE: 1.0}})
    assert made.record(REQUEST_SHARE, WEB, 10_000, 0) == 1_000


def test_pitfall_38_an_empty_answer_is_taken_back() -> None:
    made = quotas({SHOP: {FETCH_RATE: 100.0}})
    assert made.record_fetch(WEB, 900, 0) == (0, False)
    pause_ms, is_empty = made.record_fetch(WEB, 300, 0)
    assert (pause_ms, is_empty) == (2_000, True)
    # The bytes of the empty answer do not count, so a smaller answer still fits.
    assert made.record_fetch(WEB, 100, 0) == (0, False)


def test_a_batch_above_the_whole_window_is_sent_once() -> None:
    """In Kafka a consumer never gets a batch that is larger than ten seconds of its quota."""
    made = quotas({SHOP: {FETCH_RATE: 100.0}})
    assert made.fetch_bytes_max(WEB) == 1_000
    assert made.record_fetch(WEB, 3_000, 0) == (20_000, False)
    assert made.record_fetch(WEB, 3_000, 5_000)[1]
    # It has left the window.
    assert made.record_fetch(WEB, 3_000, 11_000) == (20_000, False)


def test_a_client_without_a_quota_is_not_counted() -> None:
    made = quotas({SHOP: {FETCH_RATE: 100.0}})
    other = QuotaClient("other", "web")
    assert made.record_fetch(other, 10**9, 0) == (0, False)
    assert made.fetch_bytes_max(other) == math.inf
    assert not made._rates


def test_a_changed_quota_counts_what_was_used_before() -> None:
    made = quotas({SHOP: {PRODUCE_RATE: 100.0}})
    made.record(PRODUCE_RATE, WEB, 1_000, 0)
    made.use(QuotaTable({SHOP: {PRODUCE_RATE: 50.0}}))
    assert made.record(PRODUCE_RATE, WEB, 0, 0) == 10_000
    made.use(QuotaTable({}))
    assert made.record(PRODUCE_RATE, WEB, 10**9, 0) == 0


def test_the_number_of_rates_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client can send ever new client ids."""
    monkeypatch.setattr(rates, "RATES_MAX", 10)
    made = quotas({(("client-id", None),): {PRODUCE_RATE: 1.0}})
    for number in range(25):
        made.record(PRODUCE_RATE, QuotaClient("shop", f"busy-{number}"), 1, 0)
    assert len(made._rates) == 10
    # All others have left their windows.
    made.record(PRODUCE_RATE, QuotaClient("shop", "later"), 1, 60_000)
    assert list(made._rates) == [(PRODUCE_RATE, ("", "later"))]
