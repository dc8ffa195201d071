"""Transactions with power cuts between any two steps: consumers see all of a transaction or
nothing."""

import random

import pytest

from tests.harness.history import Outcome
from tests.harness.seed import seeded
from tests.unit.broker.txn_world import TxnWorld


def campaign(name: str, world_count: int, step_count: int) -> None:
    chance = seeded(name)
    cuts = transactions = committed = 0
    for _ in range(world_count):
        world = TxnWorld(random.Random(chance.random()), TxnWorld.cut)
        world.run(step_count)
        world.finish()
        world.judge()
        cuts += world.fault_count
        ends = [end for actor in world.actors for end in actor.log.ends.values()]
        transactions += len(ends)
        committed += ends.count(Outcome.OK)
    print(f"{cuts} power cuts, {transactions} transactions, {committed} known as committed")
    assert committed > world_count
    assert cuts > world_count


def test_pitfall_26_a_transaction_is_all_or_nothing_whenever_the_power_fails() -> None:
    campaign("transactions", 12, 600)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_many_more_power_cuts() -> None:
    campaign("many transactions", 400, 1_500)
