"""The leader's side of one follower: the fetches, the events that wake it, and the cost."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from broker.replication.epochs import EpochEnd
from broker.replication.fetch_session import EPOCH_MAX
from broker.replication.follower_session import (
    GRANTED,
    GRANTED_AGAIN,
    FetchVerdict,
    FollowerIdentity,
    FollowerSession,
    LeaderLog,
    check_fetch,
)
from broker.replication.follower_steps import PartitionId
from broker.storage.leader_epochs import LeaderEpochs
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchPartition
from tests.unit.broker.replication.kit import ASSIGNED, ONE, TWO, CountedId, Scene, ends

TOPIC = UUID(int=1)
A, B, C = (PartitionId(TOPIC, index) for index in range(3))
LOG = LeaderLog(LeaderEpochs([(2, 10), (4, 40)]), 10, 60)
"""The log of a leader in epoch 5."""


def asked(
    offset: int, last_epoch: int = -1, leader_epoch: int = 5, start: int = 0
) -> FetchPartition:
    return FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=start,
    )


@pytest.mark.parametrize(
    ("what", "heard"),
    [
        (asked(60, 4), GRANTED),
        (asked(10), GRANTED),
        (asked(60, 4, 4), FetchVerdict(ErrorCode.FENCED_LEADER_EPOCH)),
        (asked(60, 4, 6), FetchVerdict(ErrorCode.UNKNOWN_LEADER_EPOCH)),
        (asked(9, 2), FetchVerdict(ErrorCode.OFFSET_OUT_OF_RANGE)),
        (asked(9, 3), FetchVerdict(ErrorCode.OFFSET_OUT_OF_RANGE)),
        (asked(10, 1), FetchVerdict(ErrorCode.OFFSET_OUT_OF_RANGE)),
        (asked(50, 3), FetchVerdict(diverging=EpochEnd(2, 40))),
        (asked(61, 4), FetchVerdict(diverging=EpochEnd(4, 60))),
        (asked(61, 5), FetchVerdict(ErrorCode.OFFSET_OUT_OF_RANGE)),
        (asked(61), FetchVerdict(ErrorCode.OFFSET_OUT_OF_RANGE)),
    ],
)
def test_a_fetch_is_judged_before_it_is_believed(what: FetchPartition, heard: FetchVerdict) -> None:
    scene = Scene(log=ends(60, start=10))
    assert check_fetch(scene.state, LOG, what, FollowerIdentity(ONE, 11), 0) == heard
    check_fetch(scene.state, LOG, asked(60, 4), FollowerIdentity(TWO, 12), 0)
    # Only a granted fetch counts as progress.
    assert scene.state.high_watermark == (what.fetch_offset if heard is GRANTED else 0)


def test_who_asks_for_the_same_again_though_there_is_more_is_told_apart() -> None:
    state = Scene(log=ends(60, start=10)).state
    heard = [
        check_fetch(state, LOG, one, FollowerIdentity(ONE, 11), 0)
        for one in (asked(50, 4), asked(50, 4))
    ]
    assert heard == [GRANTED, GRANTED_AGAIN]
    assert check_fetch(state, LOG, asked(50, 4), FollowerIdentity(TWO, 12), 0) == GRANTED
    # The follower has all records, so it may repeat the offset.
    assert [
        check_fetch(state, LOG, asked(60, 4), FollowerIdentity(ONE, 11), 0) for _ in range(2)
    ] == [GRANTED] * 2


def test_a_role_is_judged_before_the_offset() -> None:
    scene = Scene(replace(ASSIGNED, leader=ONE))
    found = check_fetch(scene.state, LOG, asked(9), FollowerIdentity(TWO, 12), 0)
    assert found == FetchVerdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_who_is_no_replica_is_not_served() -> None:
    found = check_fetch(Scene(log=ends(60)).state, LOG, asked(10), FollowerIdentity(9, 90), 0)
    assert found == FetchVerdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def session(*partitions: PartitionId) -> FollowerSession:
    """Return a session whose full request named these partitions and was answered."""
    found = FollowerSession(77)
    found.begin(0, 0, [(one, asked(0)) for one in partitions], ())
    for one in partitions:
        found.served(one)
    return found


def test_what_a_request_names_is_due() -> None:
    ours = FollowerSession(77)
    heard = ours.begin(0, 0, [(A, asked(3)), (B, asked(4))], ())
    assert [partition for partition, _ in heard] == [A, B]
    assert ours.due() == [A, B]
    ours.served(A)
    ours.looked(B)
    assert ours.due() == []


def test_a_new_partition_is_told_its_high_watermark_with_the_next_answer() -> None:
    ours = FollowerSession(77)
    ours.begin(0, 0, [(A, asked(3))], ())
    ours.looked(A)
    assert ours.also() == [A]
    ours.served(A)
    ours.begin(77, 1, [(A, asked(4))], ())
    ours.looked(A)
    assert ours.also() == []


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [
        (76, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (77, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 0, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_a_request_out_of_turn_changes_nothing(
    session_id: int, epoch: int, code: ErrorCode
) -> None:
    ours = session(A, B)
    with pytest.raises(ApiError) as refused:
        ours.begin(session_id, epoch, [(C, asked(0))], [A])
    assert refused.value.code is code
    assert list(ours.partitions) == [A, B]
    ours.begin(77, 1, (), ())


def test_session_epochs_begin_again_after_the_largest() -> None:
    ours = session(A)
    ours._next_epoch = EPOCH_MAX
    ours.begin(77, EPOCH_MAX, (), ())
    ours.begin(77, 1, (), ())


def test_a_forgotten_partition_is_marked_no_more() -> None:
    ours = session(A, B)
    ours.written(A)
    ours.moved(A)
    ours.begin(77, 1, (), [A])
    assert (ours.due(), ours.also()) == ([], [])
    assert not ours.written(A)
    ours.moved(A)
    assert (ours.due(), ours.also(), list(ours.partitions)) == ([], [], [B])


def test_a_partition_that_another_session_has_is_told_once_and_marked_no_more() -> None:
    ours = session(A, B)
    ours.park()
    assert ours.lose(A)
    assert not ours.lose(A)
    assert (list(ours.partitions), ours.due(), ours.is_lost(A)) == ([B], [A], True)
    assert not ours.written(A)
    ours.put_out(A)
    assert (ours.due(), ours.is_lost(A)) == ([], False)


def test_a_lost_partition_that_is_forgotten_or_named_again_needs_no_telling() -> None:
    ours = session(A, B)
    ours.lose(A)
    ours.lose(B)
    ours.begin(77, 1, [(B, asked(4))], [A])
    assert (ours.is_lost(A), ours.is_lost(B)) == (False, False)
    assert (list(ours.partitions), ours.due()) == ([B], [B])


def test_the_first_write_since_it_was_parked_wakes_once() -> None:
    ours = session(A, B)
    ours.park()
    assert ours.written(A)
    assert not ours.written(B)
    assert not ours.written(A)
    assert ours.due() == [A, B]
    ours.served(A)
    ours.served(B)
    ours.park()
    assert ours.written(B)


def test_a_write_between_two_requests_wakes_nobody_and_is_not_lost() -> None:
    ours = session(A)
    assert not ours.written(A)
    ours.begin(77, 1, (), ())
    assert ours.due() == [A]


def test_a_high_watermark_alone_wakes_nobody() -> None:
    """KAFKA-9731: a waiting fetch stays parked if only the high watermark moves."""
    ours = session(A, B)
    ours.park()
    ours.moved(A)
    assert ours.is_parked
    assert (ours.due(), ours.also()) == ([], [A])
    assert ours.written(B)
    assert (ours.due(), ours.also()) == ([B], [A])


def test_what_an_answer_has_no_room_for_comes_first_in_the_next() -> None:
    ours = session(A, B, C)
    for one in (A, B, C):
        ours.written(one)
    ours.served(A)
    ours.begin(77, 1, [(A, asked(9))], ())
    assert ours.due() == [B, C, A]


def test_what_is_refused_must_be_named_anew() -> None:
    ours = session(A)
    ours.put_out(A)
    assert not ours.written(A)
    ours.begin(77, 1, [(A, asked(2))], ())
    assert ours.due() == [A]


def test_a_fetch_costs_what_it_names_and_what_was_written() -> None:
    topic = CountedId(int=9)
    many = [PartitionId(topic, index) for index in range(2_000)]
    ours = session(*many)
    CountedId.looked_up = 0
    ours.begin(77, 1, [(many[3], asked(5))], ())
    ours.written(many[1_999])
    assert ours.due() == [many[3], many[1_999]]
    for one in ours.due():
        ours.served(one)
    assert CountedId.looked_up < 20
