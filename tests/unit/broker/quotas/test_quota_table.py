"""Which quota counts for a client, and which clients share it."""

from __future__ import annotations

import itertools

import pytest

from broker.quotas.quota_table import CACHED_MAX, QuotaTable
from protocol.security.quota import PRODUCE_RATE, QuotaEntity, entity_of

ORDER: list[tuple[QuotaEntity, tuple[str, str]]] = [
    (entity_of([("user", "shop"), ("client-id", "web")]), ("shop", "web")),
    (entity_of([("user", "shop"), ("client-id", None)]), ("shop", "web")),
    (entity_of([("user", "shop")]), ("shop", "")),
    (entity_of([("user", None), ("client-id", "web")]), ("shop", "web")),
    (entity_of([("user", None), ("client-id", None)]), ("shop", "web")),
    (entity_of([("user", None)]), ("shop", "")),
    (entity_of([("client-id", "web")]), ("", "web")),
    (entity_of([("client-id", None)]), ("", "web")),
]
"""Kafka's order of precedence, with the user and client id that share the rate."""


@pytest.mark.parametrize("chosen", list(itertools.product([False, True], repeat=8)))
def test_the_first_of_kafkas_order_counts(chosen: tuple[bool, ...]) -> None:
    """All 256 sets of the eight entities that concern one client."""
    values = {
        entity: {PRODUCE_RATE: float(place)}
        for place, (entity, _) in enumerate(ORDER)
        if chosen[place]
    }
    values[entity_of([("user", "other")])] = {PRODUCE_RATE: 99.0}
    found = QuotaTable(values).of_client(PRODUCE_RATE, "shop", "web")
    if not any(chosen):
        assert found is None
        return
    place = chosen.index(True)
    assert found is not None and found == (float(place), ORDER[place][1])


def test_a_quota_of_another_key_does_not_hide_one() -> None:
    """Each key is looked up alone: the entity of a user can limit the fetches only."""
    values = {
        entity_of([("user", "shop")]): {"consumer_byte_rate": 1.0},
        entity_of([("client-id", "web")]): {PRODUCE_RATE: 2.0},
    }
    found = QuotaTable(values).of_client(PRODUCE_RATE, "shop", "web")
    assert found is not None and found.value == 2.0


def test_the_cache_of_look_ups_is_bounded() -> None:
    table = QuotaTable({(("client-id", None),): {PRODUCE_RATE: 1.0}})
    for number in range(CACHED_MAX + 10):
        assert table.of_client(PRODUCE_RATE, "shop", str(number)) is not None
    assert len(table._cached) <= CACHED_MAX
