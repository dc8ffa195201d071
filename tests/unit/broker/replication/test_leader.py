"""The leader's record of its followers: which replicas hold back the high watermark, leave the ISR
or join it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.replication.isr import PROPOSAL_RETRY_MS
from broker.replication.leader import REJOIN_DWELL_MS, REPLICA_LAG_TIME_MAX_MS
from protocol.errors import ErrorCode
from protocol.types import NO_OFFSET
from tests.unit.broker.replication.kit import ASSIGNED, BROKER_EPOCHS, ME, ONE, TWO, Scene, ends

WITHOUT_TWO = replace(ASSIGNED, in_sync_replicas=(ME, ONE))


def committed(scene: Scene, end: int) -> int:
    """Let node 1 and follower ONE have all records up to `end`. Return the high watermark."""
    scene.state.advance_durable_end(end)
    scene.fetched(ONE, end)
    return scene.state.high_watermark


def test_the_least_durable_end_of_all_in_sync_is_committed() -> None:
    scene = Scene()
    scene.state.advance_durable_end(10)
    scene.fetched(ONE, 10)
    assert scene.state.high_watermark == 0
    scene.fetched(TWO, 7)
    assert scene.state.high_watermark == 7
    scene.fetched(TWO, 12)
    assert scene.state.high_watermark == 10


def test_acks_one_counts_at_the_leader_s_own_end() -> None:
    scene = Scene()
    scene.state.advance_durable_end(10)
    assert (scene.state.durable_end, scene.state.high_watermark) == (10, 0)


def test_followers_are_unknown_in_a_new_epoch() -> None:
    scene = Scene()
    scene.state.advance_durable_end(10)
    for node_id in (ONE, TWO):
        scene.fetched(node_id, 10)
    assert scene.state.high_watermark == 10
    scene.log = ends(20)
    scene.log_says(leader_epoch=6)
    scene.fetched(ONE, 20)
    assert scene.state.high_watermark == 10
    scene.fetched(TWO, 20)
    assert scene.state.high_watermark == 20


def test_nothing_is_committed_below_the_minimum() -> None:
    scene = Scene(replace(ASSIGNED, in_sync_replicas=(ME,)))
    scene.state.advance_durable_end(10)
    assert (scene.state.is_under_min_isr, scene.state.high_watermark) == (True, 0)
    scene.log_says(in_sync_replicas=(ME, ONE))
    scene.fetched(ONE, 10)
    assert (scene.state.is_under_min_isr, scene.state.high_watermark) == (False, 10)


def test_the_minimum_is_no_more_than_there_are_replicas() -> None:
    scene = Scene(replace(ASSIGNED, min_in_sync_replicas=7))
    scene.state.advance_durable_end(4)
    for node_id in (ONE, TWO):
        scene.fetched(node_id, 4)
    assert scene.state.high_watermark == 4


def test_a_lower_minimum_counts_when_the_log_says_so() -> None:
    scene = Scene(replace(ASSIGNED, in_sync_replicas=(ME,)))
    scene.state.advance_durable_end(10)
    scene.log_says(min_in_sync_replicas=1)
    assert scene.state.high_watermark == 10


def test_a_raised_minimum_before_a_shrink_freezes_what_the_shrink_would_release() -> None:
    """The leader replays the raised minimum before the shrink. The response to the proposal
    contains neither of them."""
    scene = Scene(replace(ASSIGNED, in_sync_replicas=(ME, ONE), min_in_sync_replicas=1))
    committed(scene, 5)
    scene.state.advance_durable_end(10)
    scene.now_ms += REPLICA_LAG_TIME_MAX_MS + 1
    assert scene.proposes() == (ME,)
    scene.state.answered(scene.number, ErrorCode.NONE)
    assert scene.state.high_watermark == 5
    scene.log_says(min_in_sync_replicas=2)
    scene.log_says(in_sync_replicas=(ME,))
    assert (scene.state.high_watermark, scene.state.is_under_min_isr) == (5, True)


def test_a_shrink_moves_the_watermark_when_the_log_confirms_it() -> None:
    """KAFKA-15021: the high watermark does not move when the shrink is proposed or answered."""
    scene = Scene()
    committed(scene, 10)
    scene.now_ms += REPLICA_LAG_TIME_MAX_MS
    committed(scene, 11)
    assert scene.proposes() is None
    scene.now_ms += 1
    assert scene.proposes() == (ME, ONE)
    assert scene.state.high_watermark == 0
    scene.state.answered(scene.number, ErrorCode.NONE)
    assert scene.state.high_watermark == 0
    scene.log_says(in_sync_replicas=(ME, ONE))
    assert scene.state.high_watermark == 11


def test_who_keeps_up_with_what_was_there_at_its_last_fetch_is_caught_up() -> None:
    scene = Scene()
    for round_ in range(1, 20):
        scene.now_ms += REPLICA_LAG_TIME_MAX_MS // 2
        scene.state.advance_durable_end(round_ * 10)
        for node_id in (ONE, TWO):
            scene.fetched(node_id, round_ * 10 - 10)
        assert scene.proposes() is None


def test_an_idle_follower_that_has_everything_stays_in_sync() -> None:
    scene = Scene()
    committed(scene, 5)
    scene.fetched(TWO, 5)
    for _ in range(100):
        scene.now_ms += 1_000
        assert scene.proposes() is None
    scene.state.advance_durable_end(6)
    scene.now_ms += REPLICA_LAG_TIME_MAX_MS
    assert scene.proposes() is None
    scene.now_ms += 1
    assert scene.proposes() == (ME,)


def test_a_member_that_never_fetches_in_the_epoch_is_taken_out() -> None:
    scene = Scene()
    scene.now_ms += REPLICA_LAG_TIME_MAX_MS + 1
    scene.fetched(ONE, 0)
    assert scene.proposes() == (ME, ONE)


def test_who_joins_counts_from_the_proposal_on() -> None:
    """The controller can have accepted the proposal before the leader learns this. So the joining
    replica counts at once (the maximal ISR)."""
    scene = Scene(WITHOUT_TWO)
    committed(scene, 10)
    scene.fetched(TWO, 10)
    assert scene.proposes() == (ME, ONE, TWO)
    scene.state.eligible({ME: 10, ONE: 11})
    assert committed(scene, 20) == 10
    assert scene.state.maximal_in_sync_replicas == (ME, ONE, TWO)
    assert scene.state.in_sync_replicas == (ME, ONE)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NONE,
    ],
)
def test_an_answer_that_is_unclear_keeps_the_maximal_isr(code: ErrorCode) -> None:
    scene = Scene(WITHOUT_TWO)
    scene.fetched(TWO, 0)
    assert scene.proposes() == (ME, ONE, TWO)
    scene.state.answered(scene.number, code)
    scene.state.eligible({ME: 10, ONE: 11})
    assert committed(scene, 20) == 0
    scene.log_says(in_sync_replicas=(ME, ONE))
    assert scene.state.high_watermark == 20


def test_a_refusal_of_the_only_proposal_lets_the_joiner_go() -> None:
    scene = Scene(WITHOUT_TWO)
    scene.fetched(TWO, 0)
    assert scene.proposes() == (ME, ONE, TWO)
    scene.state.eligible({ME: 10, ONE: 11})
    assert committed(scene, 20) == 0
    scene.state.answered(scene.number, ErrorCode.INELIGIBLE_REPLICA)
    assert scene.state.high_watermark == 20


def test_a_refusal_behind_an_unclear_answer_is_followed_by_a_void_proposal() -> None:
    """The controller may still accept the unanswered proposal. So the leader proposes the unchanged
    ISR, because the new partition epoch invalidates the old proposal."""
    scene = Scene(WITHOUT_TWO)
    scene.fetched(TWO, 0)
    assert scene.proposes() == (ME, ONE, TWO)
    scene.state.answered(scene.number, ErrorCode.REQUEST_TIMED_OUT)
    scene.now_ms += PROPOSAL_RETRY_MS
    assert scene.proposes() == (ME, ONE, TWO)
    scene.state.eligible({ME: 10, ONE: 11})
    scene.state.answered(scene.number, ErrorCode.INELIGIBLE_REPLICA)
    assert scene.state.maximal_in_sync_replicas == (ME, ONE, TWO)
    assert committed(scene, 20) == 0
    scene.now_ms += PROPOSAL_RETRY_MS
    assert scene.proposes() == (ME, ONE)
    scene.log_says()
    assert scene.state.high_watermark == 20


def test_one_proposal_at_a_time_and_none_while_the_log_is_awaited() -> None:
    scene = Scene(WITHOUT_TWO)
    scene.fetched(TWO, 0)
    assert scene.proposes() == (ME, ONE, TWO)
    scene.now_ms += 10 * PROPOSAL_RETRY_MS
    scene.fetched(TWO, 0)
    assert scene.proposes() is None
    scene.state.answered(scene.number + 1, ErrorCode.NONE)
    assert scene.proposes() is None
    scene.state.answered(scene.number, ErrorCode.NONE)
    scene.now_ms += PROPOSAL_RETRY_MS
    scene.fetched(TWO, 0)
    assert scene.proposes() is None


def test_a_proposal_is_repeated_after_a_while() -> None:
    scene = Scene(WITHOUT_TWO)
    scene.fetched(TWO, 0)
    assert scene.proposes() == (ME, ONE, TWO)
    scene.state.answered(scene.number, ErrorCode.NOT_CONTROLLER)
    scene.now_ms += PROPOSAL_RETRY_MS - 1
    assert scene.proposes() is None
    scene.now_ms += 1
    assert scene.proposes() == (ME, ONE, TWO)


@pytest.mark.parametrize(("end", "joins"), [(9, False), (10, True), (11, True)])
def test_joining_takes_all_that_is_committed(end: int, joins: bool) -> None:
    scene = Scene(WITHOUT_TWO)
    committed(scene, 10)
    scene.state.advance_durable_end(30)
    scene.fetched(TWO, end)
    assert (scene.proposes() is not None) == joins


@pytest.mark.parametrize(("end", "joins"), [(49, False), (50, True)])
def test_joining_takes_all_of_earlier_epochs(end: int, joins: bool) -> None:
    """The leader knows only a lower bound of the former high watermark. So a replica that joins
    must have all records of earlier epochs."""
    scene = Scene(WITHOUT_TWO, ends(50, high_watermark=20))
    scene.fetched(TWO, end)
    assert (scene.proposes() is not None) == joins


@pytest.mark.parametrize("brokers", [{ME: 10, ONE: 11}, {ME: 10, ONE: 11, TWO: 13}])
def test_who_is_fenced_or_another_incarnation_does_not_join(brokers: dict[int, int]) -> None:
    scene = Scene(WITHOUT_TWO)
    scene.state.eligible(brokers)
    scene.fetched(TWO, 0)
    assert scene.proposes() is None
    scene.state.eligible(BROKER_EPOCHS)
    assert scene.proposes() == (ME, ONE, TWO)


def test_a_stale_incarnation_s_fetch_is_not_heard() -> None:
    scene = Scene()
    committed(scene, 10)
    scene.fetched(TWO, 4, epoch=20)
    scene.fetched(TWO, 10, epoch=12)
    assert scene.state.high_watermark == 4


def test_a_proposal_names_the_broker_epochs_that_fetched() -> None:
    scene = Scene(replace(ASSIGNED, in_sync_replicas=(ME, ONE)))
    scene.fetched(TWO, 0)
    proposal = scene.state.proposal(0)
    assert proposal is not None
    assert proposal.in_sync_replicas == ((ME, 10), (ONE, -1), (TWO, 12))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 7)


def test_who_was_shrunk_away_dwells_before_it_joins_again() -> None:
    scene = Scene()
    scene.state.advance_durable_end(10)
    scene.now_ms += REPLICA_LAG_TIME_MAX_MS + 1
    scene.fetched(ONE, 10)
    assert scene.proposes() == (ME, ONE)
    scene.log_says(in_sync_replicas=(ME, ONE))
    scene.fetched(TWO, 10)
    scene.now_ms += REJOIN_DWELL_MS - 1
    scene.fetched(TWO, 10)
    assert scene.proposes() is None
    assert committed(scene, 11) == 11
    scene.fetched(TWO, 11)
    scene.now_ms += 1
    assert scene.proposes() == (ME, ONE, TWO)


def test_who_was_fenced_away_does_not_dwell() -> None:
    scene = Scene()
    scene.log_says(in_sync_replicas=(ME, ONE))
    scene.fetched(TWO, 0)
    assert scene.proposes() == (ME, ONE, TWO)


def test_who_joins_is_given_the_whole_lag_time() -> None:
    scene = Scene(WITHOUT_TWO)
    committed(scene, 10)
    scene.state.advance_durable_end(20)
    scene.now_ms += 60_000
    scene.fetched(ONE, 20)
    scene.fetched(TWO, 10)
    assert scene.proposes() is None
    scene.fetched(TWO, 20)
    assert scene.proposes() == (ME, ONE, TWO)
    scene.log_says(in_sync_replicas=(ME, ONE, TWO))
    scene.state.advance_durable_end(30)
    scene.fetched(ONE, 30)
    scene.now_ms += REPLICA_LAG_TIME_MAX_MS
    scene.fetched(ONE, 30)
    assert scene.proposes() is None


def test_the_watermark_waits_for_who_is_about_to_join() -> None:
    """Otherwise, under load, the high watermark would always be ahead of every follower, so none
    could join."""
    scene = Scene(WITHOUT_TWO)
    committed(scene, 10)
    scene.fetched(TWO, 9)
    scene.state.advance_durable_end(20)
    scene.fetched(TWO, 10)
    scene.fetched(ONE, 20)
    assert scene.state.high_watermark == 10
    scene.fetched(TWO, 15)
    assert scene.state.high_watermark == 15
    assert scene.proposes() == (ME, ONE, TWO)


def test_the_watermark_does_not_wait_for_who_stopped_fetching() -> None:
    scene = Scene(WITHOUT_TWO)
    committed(scene, 10)
    scene.fetched(TWO, 9)
    scene.fetched(TWO, 10)
    scene.state.answered(0, ErrorCode.NONE)
    scene.state.advance_durable_end(20)
    scene.now_ms += REPLICA_LAG_TIME_MAX_MS + 1
    scene.fetched(ONE, 20)
    assert scene.state.high_watermark == 10
    scene.state.proposal(scene.now_ms)
    assert scene.state.high_watermark == 20


def test_the_watermark_does_not_wait_for_who_is_fenced() -> None:
    scene = Scene(WITHOUT_TWO)
    committed(scene, 10)
    scene.fetched(TWO, 10)
    committed(scene, 20)
    assert scene.state.high_watermark == 10
    scene.state.eligible({ME: 10, ONE: 11})
    assert scene.state.high_watermark == 20


def test_an_unclean_leader_first_reports_that_it_has_recovered() -> None:
    alone = replace(ASSIGNED, in_sync_replicas=(ME,), min_in_sync_replicas=1, is_recovering=True)
    scene = Scene(alone)
    for node_id in (ONE, TWO):
        scene.fetched(node_id, 0)
    assert scene.proposes() == (ME,)
    scene.state.answered(scene.number, ErrorCode.NONE)
    scene.log_says(is_recovering=False)
    assert scene.proposes() == (ME, ONE, TWO)


def test_the_low_watermark_is_that_of_all_live_replicas() -> None:
    scene = Scene(log=ends(50))
    scene.state.trimmed(30)
    assert scene.state.low_watermark == NO_OFFSET
    scene.fetched(ONE, 50, start=30)
    assert scene.state.low_watermark == NO_OFFSET
    scene.fetched(TWO, 50, start=10)
    assert scene.state.low_watermark == 10
    scene.state.eligible({ME: 10, ONE: 11})
    assert scene.state.low_watermark == 30


def test_where_the_log_of_a_new_process_begins_it_must_say_itself() -> None:
    """The log start that the former process reported may not have been durable on its disk. So the
    low watermark is unknown until the new process fetches."""
    scene = Scene(log=ends(50))
    scene.state.trimmed(30)
    for node_id in (ONE, TWO):
        scene.fetched(node_id, 50, start=30)
    assert scene.state.low_watermark == 30
    later = BROKER_EPOCHS[TWO] + 100
    scene.state.eligible({**BROKER_EPOCHS, TWO: later})
    assert scene.state.low_watermark == NO_OFFSET
    scene.state.fetched(TWO, later, 50, 10, scene.now_ms)
    assert scene.state.low_watermark == 10


def test_who_is_no_replica_any_more_holds_nothing_back() -> None:
    scene = Scene()
    committed(scene, 10)
    scene.log_says(replicas=(ME, ONE), in_sync_replicas=(ME, ONE))
    assert scene.state.high_watermark == 10
    scene.fetched(TWO, 3)
    assert (scene.state.high_watermark, scene.state.is_replica(TWO)) == (10, False)


def test_a_replica_that_is_added_begins_unknown() -> None:
    scene = Scene(replace(ASSIGNED, replicas=(ME, ONE), in_sync_replicas=(ME, ONE)))
    committed(scene, 10)
    scene.log_says(replicas=(ME, ONE, TWO))
    assert committed(scene, 20) == 20
    scene.fetched(TWO, 5)
    assert scene.proposes() is None
    scene.fetched(TWO, 20)
    assert scene.proposes() == (ME, ONE, TWO)
