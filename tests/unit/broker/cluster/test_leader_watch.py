"""The rules by which a voter decides that its leader is dead."""

from __future__ import annotations

import pytest

from broker.cluster.leader_watch import LeaderProbe, LeaderWatch
from broker.controller.suspicion import RECONNECT_MS, ProbeVerdict
from broker.quorum.events import LeaderDead
from broker.world import End
from protocol.types import NO_NODE

LEADER, EPOCH = 2, 7
LATER_MS = 1_500
"""When a verdict comes."""


@pytest.fixture
def watch() -> LeaderWatch:
    watch = LeaderWatch()
    watch.follow(LEADER, EPOCH)
    return watch


def doubt(watch: LeaderWatch, now_ms: int = 1_000, end: End = End.RESET) -> LeaderProbe:
    probe = watch.closed(LEADER, end, now_ms)
    assert probe is not None
    assert probe.leader_id == LEADER
    return probe


def test_refused_is_dead_at_once(watch: LeaderWatch) -> None:
    assert watch.probed(doubt(watch), ProbeVerdict.REFUSED, LATER_MS) == LeaderDead(LEADER, EPOCH)
    assert watch.next_deadline_ms is None
    assert watch.tick(10_000) is None


@pytest.mark.parametrize("verdict", [None, ProbeVerdict.SILENT, ProbeVerdict.UNREACHABLE])
def test_what_does_not_come_back_is_dead_after_half_a_second(
    watch: LeaderWatch, verdict: ProbeVerdict | None
) -> None:
    probe = doubt(watch, 1_000)
    if verdict is not None:
        assert watch.probed(probe, verdict, LATER_MS) is None
    assert watch.next_deadline_ms == 1_000 + RECONNECT_MS
    assert watch.tick(1_000 + RECONNECT_MS - 1) is None
    assert watch.tick(1_000 + RECONNECT_MS) == LeaderDead(LEADER, EPOCH)
    assert watch.tick(1_000 + RECONNECT_MS) is None


@pytest.mark.parametrize("verdict", [ProbeVerdict.ACCEPTED, ProbeVerdict.UNRESOLVED])
def test_who_accepts_or_has_no_name_is_left_to_the_time_out(
    watch: LeaderWatch, verdict: ProbeVerdict
) -> None:
    assert watch.probed(doubt(watch), verdict, LATER_MS) is None
    assert watch.next_deadline_ms is None


def test_an_answer_makes_every_verdict_void(watch: LeaderWatch) -> None:
    probe = doubt(watch)
    watch.answered(LEADER, EPOCH)
    assert watch.tick(2_000) is None
    assert watch.probed(probe, ProbeVerdict.REFUSED, LATER_MS) is None
    again = doubt(watch, 5_000)
    assert again != probe
    assert watch.probed(probe, ProbeVerdict.REFUSED, LATER_MS) is None
    assert watch.next_deadline_ms == 5_000 + RECONNECT_MS


def test_an_answer_of_another_epoch_or_node_is_none_of_the_leader(watch: LeaderWatch) -> None:
    probe = doubt(watch)
    watch.answered(LEADER, EPOCH - 1)
    watch.answered(3, EPOCH)
    assert watch.probed(probe, ProbeVerdict.REFUSED, LATER_MS) == LeaderDead(LEADER, EPOCH)


def test_another_leader_is_another_matter(watch: LeaderWatch) -> None:
    probe = doubt(watch)
    watch.follow(LEADER, EPOCH)
    assert watch.next_deadline_ms == 1_000 + RECONNECT_MS
    watch.follow(LEADER, EPOCH + 1)
    assert watch.tick(5_000) is None
    assert watch.probed(probe, ProbeVerdict.REFUSED, LATER_MS) is None
    doubt(watch)
    watch.follow(NO_NODE, EPOCH + 2)
    assert watch.next_deadline_ms is None


def test_only_the_leaders_links_are_watched(watch: LeaderWatch) -> None:
    assert watch.closed(3, End.RESET, 0) is None
    watch.follow(NO_NODE, EPOCH + 1)
    assert watch.closed(LEADER, End.RESET, 0) is None


@pytest.mark.parametrize("end", [End.CLOSED, End.UNRESOLVED])
def test_an_end_of_our_own_making_doubts_nobody(watch: LeaderWatch, end: End) -> None:
    assert watch.closed(LEADER, end, 0) is None
    assert watch.next_deadline_ms is None


def test_further_ends_ask_anew_and_give_no_more_time(watch: LeaderWatch) -> None:
    probe = doubt(watch, 1_000)
    assert watch.closed(LEADER, End.TIMED_OUT, 1_100) is None
    watch.probed(probe, ProbeVerdict.UNREACHABLE, LATER_MS)
    second = doubt(watch, 1_200, End.UNREACHABLE)
    assert watch.next_deadline_ms == 1_000 + RECONNECT_MS
    assert watch.probed(second, ProbeVerdict.REFUSED, LATER_MS) == LeaderDead(LEADER, EPOCH)


def test_a_leader_taken_for_dead_that_goes_on_may_be_doubted_again(watch: LeaderWatch) -> None:
    doubt(watch, 1_000)
    assert watch.tick(1_500)
    watch.answered(LEADER, EPOCH)
    assert watch.probed(doubt(watch, 2_000), ProbeVerdict.REFUSED, LATER_MS) == LeaderDead(
        LEADER, EPOCH
    )
