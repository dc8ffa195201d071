"""Each script of a famous bug succeeds. Some of the scripts fail if a particular guard is
removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.replication import scripts
from tests.sim.replication.guards import GUARDS

CAUGHT_BY: dict[str, Callable[[], None]] = {
    "1 leader epoch in Fetch": scripts.kip_320_a_fetch_of_an_earlier_epoch_arrives_late,
    "2 last fetched epoch": scripts.kip_279_two_logs_part_twice,
    "3 iterated truncation": scripts.kip_279_two_logs_part_twice,
    "4 maximal ISR": scripts.an_unclear_answer_keeps_the_maximal_isr,
    "5 frozen under min ISR": scripts.kip_966_the_last_replica_standing_commits_nothing,
    "6 follower offsets per epoch": scripts.what_a_follower_said_in_an_earlier_epoch_is_forgotten,
    "7 follower reports its durable end": (
        scripts.kip_101_a_follower_restarts_before_it_knows_the_high_watermark
    ),
    "8 leader counts its durable end": (
        scripts.a_power_cut_takes_what_only_the_leader_has_not_synced
    ),
    "9 joins at the high watermark": scripts.trap_8_a_follower_joins_under_load,
    "10 joins at the epoch's start": scripts.a_new_leader_adds_no_replica_below_its_epoch_start,
    "15 maximal ISR kept on an unclear answer": scripts.an_unclear_answer_keeps_the_maximal_isr,
    "17 own registration": scripts.what_is_older_than_the_own_registration_is_not_believed,
    "21 ISR only from the log": scripts.an_answer_comes_before_the_log_that_it_rests_on,
    "39 request id on replies": scripts.a_late_answer_is_not_taken_for_a_later_one,
    "a joiners are awaited": scripts.trap_8_a_follower_joins_under_load,
    "b nothing to compare at the start": scripts.what_the_leader_has_deleted_cannot_be_compared,
    "c truncation by epochs": (
        scripts.kip_101_a_follower_restarts_before_it_knows_the_high_watermark
    ),
}


@pytest.mark.parametrize("script", scripts.SCRIPTS, ids=lambda script: script.__name__)
def test_a_famous_bug_does_not_happen_here(script: Callable[[], None]) -> None:
    script()


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.interpreted
def test_a_guard_that_is_taken_out_is_missed(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    GUARDS[guard](monkeypatch)
    with pytest.raises(AssertionError):
        CAUGHT_BY[guard]()


def test_every_guard_has_its_script() -> None:
    assert list(CAUGHT_BY) == list(GUARDS)
