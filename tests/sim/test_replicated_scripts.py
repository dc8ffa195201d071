"""Each sequence of events succeeds. It fails if its guard is removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim import replicated_scripts as scripts
from tests.sim.replicated_guards import GUARDS
from tests.sim.replication.guards import GUARDS as CORE_GUARDS

CAUGHT_BY: dict[str, Callable[[], object]] = {
    "1 leader epoch in Fetch": scripts.kip_320_a_fetch_of_an_earlier_epoch_arrives_late,
    "2 last fetched epoch": scripts.kip_279_two_logs_part_twice,
    "3 iterated truncation": scripts.kip_279_two_logs_part_twice,
    "7 follower reports its durable end": scripts.a_follower_that_has_not_synced_is_waited_for,
    "8 leader counts its durable end": scripts.followers_write_while_the_leader_still_syncs,
    "36 lowered checkpoint before truncation": scripts.what_was_cut_stays_cut_when_the_power_goes,
    "37 truncation synced before Fetch": scripts.what_was_cut_stays_cut_when_the_power_goes,
    "38 topic id on fetch": scripts.another_topic_of_the_same_name_is_another_topic,
    "40 gap mark": scripts.gaps_that_were_fetched_outlive_a_power_cut,
    "54 removal only after commit": (
        scripts.a_replica_that_came_back_is_not_removed_by_older_metadata
    ),
    "drained of syncs before a cut": scripts.trap_3_no_sync_is_under_way_when_a_log_is_cut,
    "woken before the leader's own sync": scripts.followers_write_while_the_leader_still_syncs,
    "hung up on when a leadership ends": (
        scripts.who_is_owed_bytes_of_a_log_that_may_be_cut_is_hung_up_on
    ),
    "waited for less long by a new leader": (
        scripts.a_new_leader_is_fetched_from_though_a_fetch_waits_there
    ),
}


@pytest.mark.parametrize("script", scripts.SCRIPTS, ids=lambda script: script.__name__)
def test_whole_nodes_come_through(script: Callable[[], None]) -> None:
    script()


@pytest.mark.parametrize("guard", CAUGHT_BY)
@pytest.mark.interpreted
def test_a_guard_that_is_taken_out_is_missed(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (GUARDS.get(guard) or CORE_GUARDS[guard])(monkeypatch)
    with pytest.raises(AssertionError):
        CAUGHT_BY[guard]()


def test_every_guard_of_whole_nodes_has_its_script() -> None:
    assert set(GUARDS) <= set(CAUGHT_BY)
