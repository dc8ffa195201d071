"""The bucket of a client's changes: Kafka's TokenBucket of KIP-599."""

from __future__ import annotations

import random

import pytest

from broker.quotas.client_quotas import ClientQuotas, QuotaClient
from broker.quotas.quota_table import QuotaTable
from broker.quotas.rates import TokenBucket
from protocol.security.quota import MUTATION_RATE

CLIENT = QuotaClient(None, "c")
BURST = 11
"""The seconds of which a client can use its quota at once."""


def quotas(value: float) -> ClientQuotas:
    made = ClientQuotas()
    made.use(QuotaTable({(("client-id", "c"),): {MUTATION_RATE: value}}))
    return made


def test_a_window_is_there_at_once_and_the_last_change_may_be_large() -> None:
    bucket = TokenBucket()
    assert bucket.pause_ms(2, 0) == 0
    bucket.take(2 * BURST, 2, 0)
    assert bucket.pause_ms(2, 0) == 0, "nothing is missing"
    bucket.take(10, 2, 0)
    # Ten are missing, and two come in a second.
    assert bucket.pause_ms(2, 0) == 5_000
    assert bucket.pause_ms(2, 4_999) == 1
    assert bucket.pause_ms(2, 5_000) == 0


def test_it_never_has_more_than_a_window() -> None:
    bucket = TokenBucket()
    bucket.take(1, 2, 0)
    bucket.take(-5, 2, 10)
    bucket.take(2 * BURST + 2, 2, 10**9)
    assert bucket.pause_ms(2, 10**9) == 1_000


def test_another_quota_counts_from_its_change_on() -> None:
    bucket = TokenBucket()
    bucket.take(2 * BURST + 10, 2, 0)
    assert bucket.pause_ms(10, 1_000) == 800, "eight are missing"
    assert not bucket.is_unused(1_000) and bucket.is_unused(60_000)


def test_a_strict_change_above_the_quota_counts_nothing() -> None:
    made = quotas(1)
    assert made.mutate(CLIENT, 20, 0, is_strict=True) == 0
    assert [made.mutate(CLIENT, 5, 0, is_strict=True) for _ in range(3)] == [9_000] * 3
    assert made.mutate(CLIENT, 5, 9_000, is_strict=True) == 0


def test_an_earlier_version_is_served_and_pauses() -> None:
    made = quotas(1)
    assert made.mutate(CLIENT, 20, 0, is_strict=False) == 9_000
    assert made.mutate(CLIENT, 5, 0, is_strict=False) == 14_000
    made.give_back(CLIENT, 14, 0)
    assert made.mutate(CLIENT, 1, 0, is_strict=True) == 0


def test_without_a_quota_nothing_is_counted() -> None:
    made = quotas(1)
    other = QuotaClient(None, "other")
    assert made.mutate(other, 10**6, 0, is_strict=True) == 0
    made.give_back(other, 5, 0)
    assert not made._buckets


@pytest.mark.parametrize("seed", range(5))
def test_what_is_changed_stays_within_the_quota(seed: int) -> None:
    """In any time the changes are at most those of the time, a window and one change more."""
    chance, made, now_ms, done = random.Random(seed), quotas(3), 0, 0
    for _ in range(2_000):
        now_ms += chance.choice((0, 10, 500))
        count = chance.randrange(1, 9)
        if not made.mutate(CLIENT, count, now_ms, is_strict=True):
            done += count
        assert done <= 3 * (now_ms / 1_000 + BURST) + 8
