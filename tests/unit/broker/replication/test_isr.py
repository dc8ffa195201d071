"""The in-sync replicas as their leader sees them: the committed ones, and those that may be
joining."""

from __future__ import annotations

import random

import pytest

from broker.replication.isr import PROPOSAL_RETRY_MS, Isr
from protocol.errors import ErrorCode

UNCLEAR = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


def test_joining_members_end_with_the_next_partition_epoch() -> None:
    isr = Isr((3, 1), 7)
    assert (isr.committed, isr.maximal) == ((1, 3), (1, 3))
    isr.proposed(1, (1, 2, 3), 0)
    assert (isr.committed, isr.maximal) == ((1, 3), (1, 2, 3))
    isr.settle((1, 3), 8)
    assert (isr.maximal, isr.may_propose(0)) == ((1, 3), True)


def test_who_is_proposed_away_counts_until_the_log_says_so() -> None:
    isr = Isr((1, 2, 3), 7)
    isr.proposed(1, (1,), 0)
    isr.answered(1, ErrorCode.NONE)
    assert isr.maximal == (1, 2, 3)


def test_members_of_several_proposals_add_up() -> None:
    isr = Isr((1,), 7)
    isr.proposed(1, (1, 2), 0)
    isr.answered(1, ErrorCode.REQUEST_TIMED_OUT)
    isr.proposed(2, (1, 3), PROPOSAL_RETRY_MS)
    assert isr.maximal == (1, 2, 3)
    isr.answered(2, ErrorCode.INELIGIBLE_REPLICA)
    assert isr.maximal == (1, 2, 3)
    assert isr.needs_void


def test_an_answer_to_another_proposal_changes_nothing() -> None:
    isr = Isr((1,), 7)
    isr.proposed(4, (1, 2), 0)
    isr.answered(3, ErrorCode.INELIGIBLE_REPLICA)
    assert (isr.maximal, isr.may_propose(PROPOSAL_RETRY_MS)) == ((1, 2), False)


def play(seed: int) -> None:
    """Let a controller accept any proposal that was ever sent, late and in any order. The leader
    must count every member that the controller accepted."""
    chance = random.Random(seed)
    truth: tuple[int, ...] = (1,)
    epoch = 0
    isr = Isr(truth, epoch)
    copies: list[tuple[int, tuple[int, ...], int]] = []
    now_ms = number = 0
    for _ in range(60):
        now_ms += chance.randrange(PROPOSAL_RETRY_MS)
        deed = chance.randrange(4)
        if deed == 0 and isr.may_propose(now_ms):
            number += 1
            members = (1, *(node for node in (2, 3) if chance.random() < 0.5))
            isr.proposed(number, members, now_ms)
            copies.append((number, members, isr.partition_epoch))
        elif deed == 1 and copies:
            taken, members, asked_epoch = copies.pop(chance.randrange(len(copies)))
            is_eligible = chance.random() < 0.7
            code = ErrorCode.INVALID_UPDATE_VERSION
            if asked_epoch == epoch:
                code = ErrorCode.NONE if is_eligible else ErrorCode.INELIGIBLE_REPLICA
            if code is ErrorCode.NONE:
                truth, epoch = members, epoch + 1
            if chance.random() < 0.6:
                isr.answered(taken, code)
        elif deed == 2:
            isr.answered(number, chance.choice(UNCLEAR))
        elif epoch > isr.partition_epoch and chance.random() < 0.5:
            isr.settle(truth, epoch)
        # The leader's maximal ISR contains the controller's ISR, whatever responses the leader got.
        assert set(truth) <= set(isr.maximal), seed


def test_a_member_the_controller_may_know_is_always_counted() -> None:
    """A failure names its seed, and `play(seed)` repeats it."""
    for seed in range(300):
        play(seed)


def test_a_refusal_is_not_believed_while_another_copy_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the leader believes such a refusal, the same histories lose a member."""
    answered = Isr.answered

    def believe(self: Isr, number: int, code: ErrorCode) -> None:
        self._is_unclear = False
        answered(self, number, code)

    monkeypatch.setattr(Isr, "answered", believe)
    with pytest.raises(AssertionError):
        for seed in range(300):
            play(seed)
