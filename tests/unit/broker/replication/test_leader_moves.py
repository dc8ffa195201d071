"""A partition leader during a reassignment that adds replicas.

The added replicas do not raise the required number of in-sync replicas. It is at most the number of
the original replicas until the reassignment is complete.
"""

from __future__ import annotations

from dataclasses import replace

from broker.replication.partition import PartitionState
from tests.unit.broker.replication.kit import ASSIGNED, ME, ONE, TWO, Scene, ends

GROWING = replace(
    ASSIGNED,
    replicas=(ME, ONE, TWO),
    adding_replicas=(ONE, TWO),
    in_sync_replicas=(ME,),
    min_in_sync_replicas=2,
)
"""A partition that a reassignment grows from one replica to three."""


def test_guard_48_the_minimum_counts_the_original_replicas() -> None:
    """If all replicas counted, the high watermark would not move until the copy is complete."""
    scene = Scene(GROWING)
    scene.state.advance_durable_end(10)
    assert not scene.state.is_under_min_isr
    assert scene.state.high_watermark == 10


def test_the_minimum_counts_all_replicas_when_the_reassignment_is_complete() -> None:
    scene = Scene(GROWING)
    scene.state.advance_durable_end(10)
    scene.log_says(adding_replicas=())
    scene.state.advance_durable_end(20)
    assert (scene.state.is_under_min_isr, scene.state.high_watermark) == (True, 10)


def test_kip_352_only_original_replicas_out_of_sync_are_reported() -> None:
    scene = Scene(GROWING)
    # An added replica is still an outsider that can join.
    assert (scene.state.is_under_replicated, scene.state.has_outsiders) == (False, True)
    scene.log_says(adding_replicas=(TWO,))
    assert (scene.state.is_under_replicated, scene.state.has_outsiders) == (True, True)
    assert not PartitionState(ME, 10).is_under_replicated, "it leads nothing"


def test_a_rate_may_hold_only_followers_for_which_the_high_watermark_does_not_wait() -> None:
    """Guard 63: the high watermark waits for the members of the ISR, for proposed members, and for
    replicas that are about to join."""
    scene = Scene(replace(ASSIGNED, in_sync_replicas=(ME, ONE)), ends(10))
    assert [scene.state.waits_for(one) for one in (ME, ONE, TWO, 9)] == [False, True, False, False]
    # Replica TWO lags, so it does not join, and the high watermark does not wait for it.
    scene.fetched(TWO, 4)
    assert not scene.state.waits_for(TWO)
    # Replica TWO was caught up just now, so it is about to join.
    scene.fetched(TWO, 10)
    assert scene.state.waits_for(TWO)
    assert scene.proposes() == (ME, ONE, TWO)
    assert scene.state.waits_for(TWO)


def test_a_broker_that_does_not_lead_waits_for_no_follower() -> None:
    scene = Scene(replace(ASSIGNED, leader=ONE))
    assert not scene.state.waits_for(ONE)
