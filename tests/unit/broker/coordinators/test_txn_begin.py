"""InitProducerId with a transactional id: fencing, resuming, and exhausted epochs."""

from dataclasses import replace

import pytest

from broker.coordinators.txn_state import (
    EXHAUSTED_EPOCH,
    PRODUCER_EPOCH_MAX,
    Transaction,
    TxnState,
)
from protocol.errors import ErrorCode
from tests.unit.broker.txn_kit import (
    ID,
    ID_COUNT_MAX,
    TIMEOUT_MS,
    TIMEOUT_MS_MAX,
    A,
    Ledger,
    refused,
)

COMPLETE = (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
PREPARE = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
ALIVE = tuple(state for state in TxnState if state is not TxnState.DEAD)


# A producer begins.


def test_a_first_producer_gets_a_new_id_in_epoch_0() -> None:
    one = Ledger().begin()
    assert (one.producer_id, one.producer_epoch, one.state) == (100, 0, TxnState.EMPTY)


@pytest.mark.parametrize("state", [TxnState.EMPTY, *COMPLETE])
def test_the_next_producer_gets_the_same_id_in_a_raised_epoch(state: TxnState) -> None:
    ledger = Ledger()
    before = ledger.in_state(state)
    after = ledger.begin(timeout_ms=5_000)
    assert after.producer_id == before.producer_id
    assert after.producer_epoch == before.producer_epoch + 1
    assert (after.state, after.timeout_ms, after.start_ms) == (TxnState.EMPTY, 5_000, -1)
    assert after.partitions == frozenset()


@pytest.mark.parametrize("state", PREPARE)
def test_a_new_producer_waits_while_markers_are_written(state: TxnState) -> None:
    ledger = Ledger()
    ledger.in_state(state)
    assert refused(ledger.begin) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_pitfall_25_a_new_producer_aborts_what_is_open_before_it_may_begin() -> None:
    ledger = Ledger()
    zombie = ledger.in_state(TxnState.ONGOING)
    aborting = ledger.begin()
    assert aborting.state is TxnState.PREPARE_ABORT
    # The abort marker has a higher epoch than the zombie, so it fences the zombie.
    assert aborting.producer_epoch == zombie.producer_epoch + 1
    assert refused(ledger.begin) is ErrorCode.CONCURRENT_TRANSACTIONS
    ledger.complete()
    assert ledger.begin().producer_epoch == zombie.producer_epoch + 2
    assert refused(lambda: ledger.add(zombie, A)) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: ledger.end(zombie)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, TIMEOUT_MS_MAX + 1])
def test_pitfall_28_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    ledger = Ledger()
    code = refused(lambda: ledger.begin(timeout_ms=timeout_ms))
    assert code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not ledger.log


@pytest.mark.parametrize("timeout_ms", [1, TIMEOUT_MS_MAX])
def test_the_bounds_of_a_timeout_are_within(timeout_ms: int) -> None:
    assert Ledger().begin(timeout_ms=timeout_ms).timeout_ms == timeout_ms


# KIP-360: a producer that goes on with a raised epoch.


@pytest.mark.parametrize("state", [TxnState.EMPTY, *COMPLETE])
def test_pitfall_27_a_producer_with_its_id_and_epoch_resumes(state: TxnState) -> None:
    ledger = Ledger()
    before = ledger.in_state(state)
    after = ledger.begin((before.producer_id, before.producer_epoch))
    assert after.producer_id == before.producer_id
    assert after.producer_epoch == before.producer_epoch + 1


def test_a_repeat_of_the_resuming_call_gets_the_same_answer() -> None:
    ledger = Ledger()
    before = ledger.begin()
    known = (before.producer_id, before.producer_epoch)
    epochs = {ledger.begin(known).producer_epoch for _ in range(3)}
    assert epochs == {before.producer_epoch + 1}


def test_a_producer_that_was_fenced_may_not_resume() -> None:
    ledger = Ledger()
    zombie = ledger.begin()
    ledger.begin()
    known = (zombie.producer_id, zombie.producer_epoch)
    assert refused(lambda: ledger.begin(known)) is ErrorCode.PRODUCER_FENCED


def test_a_stranger_may_not_resume() -> None:
    ledger = Ledger()
    one = ledger.begin()
    strange = (one.producer_id + 7, one.producer_epoch)
    assert refused(lambda: ledger.begin(strange)) is ErrorCode.PRODUCER_FENCED


def test_after_a_restart_only_the_current_epoch_is_known() -> None:
    ledger = Ledger()
    before = ledger.begin()
    known = (before.producer_id, before.producer_epoch)
    ledger.begin(known)
    ledger.reload()
    assert refused(lambda: ledger.begin(known)) is ErrorCode.PRODUCER_FENCED


def test_an_id_that_expired_is_resumed_under_a_new_producer_id() -> None:
    ledger = Ledger()
    one = ledger.begin((55, 3))
    assert (one.producer_id, one.producer_epoch) == (100, 0)


def test_a_producer_that_aborts_by_init_gets_its_next_epoch() -> None:
    """librdkafka does this when it must give up a transaction and needs a new epoch."""
    ledger = Ledger()
    before = ledger.in_state(TxnState.ONGOING)
    known = (before.producer_id, before.producer_epoch)
    assert ledger.begin(known).state is TxnState.PREPARE_ABORT
    assert refused(lambda: ledger.begin(known)) is ErrorCode.CONCURRENT_TRANSACTIONS
    ledger.complete()
    after = ledger.begin(known)
    assert (after.state, after.producer_epoch) == (TxnState.EMPTY, before.producer_epoch + 1)


def test_a_zombie_cannot_abort_its_successor_by_resuming() -> None:
    ledger = Ledger()
    zombie = ledger.begin()
    ledger.add(ledger.begin(), A)
    known = (zombie.producer_id, zombie.producer_epoch)
    assert refused(lambda: ledger.begin(known)) is ErrorCode.PRODUCER_FENCED
    assert ledger[ID].state is TxnState.ONGOING


# Epochs run out.


def at_epoch(ledger: Ledger, epoch: int) -> Transaction:
    one = ledger.begin()
    ledger.shard.transactions[ID] = replace(one, producer_epoch=epoch)
    return ledger[ID]


def test_pitfall_27_after_the_last_epoch_comes_a_new_producer_id() -> None:
    ledger = Ledger()
    last = at_epoch(ledger, EXHAUSTED_EPOCH)
    after = ledger.begin()
    assert (after.producer_id, after.producer_epoch) == (last.producer_id + 1, 0)


def test_the_last_epoch_itself_is_given() -> None:
    ledger = Ledger()
    at_epoch(ledger, EXHAUSTED_EPOCH - 1)
    assert ledger.begin().producer_epoch == EXHAUSTED_EPOCH


def test_fencing_in_the_last_epoch_takes_the_one_kept_for_it() -> None:
    ledger = Ledger()
    last = ledger.add(at_epoch(ledger, EXHAUSTED_EPOCH), A)
    assert ledger.begin().producer_epoch == PRODUCER_EPOCH_MAX
    ledger.complete()
    after = ledger.begin()
    assert (after.producer_id, after.producer_epoch) == (last.producer_id + 1, 0)


@pytest.mark.parametrize("is_open", [False, True])
def test_resuming_in_the_last_epoch_rotates_and_its_repeat_gets_the_same(is_open: bool) -> None:
    ledger = Ledger()
    last = at_epoch(ledger, EXHAUSTED_EPOCH)
    known = (last.producer_id, last.producer_epoch)
    if is_open:
        ledger.add(last, A)
        ledger.begin(known)
        ledger.complete()
    for _ in range(3):
        after = ledger.begin(known)
        assert (after.producer_id, after.producer_epoch) == (last.producer_id + 1, 0)
    assert refused(lambda: ledger.add(last, A)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_id_before_a_rotation_is_a_stranger_once_its_successor_works() -> None:
    ledger = Ledger()
    last = at_epoch(ledger, EXHAUSTED_EPOCH)
    known = (last.producer_id, last.producer_epoch)
    ledger.add(ledger.begin(known), A)
    assert refused(lambda: ledger.begin(known)) is ErrorCode.PRODUCER_FENCED


def test_a_shard_has_a_limit_of_ids() -> None:
    """Ids that are being written count too, because one sync can contain all their records."""
    ledger = Ledger()
    for number in range(ID_COUNT_MAX - 1):
        ledger.begin(transactional_id=f"id-{number}")
    outcome = ledger.shard.init_producer_id("last", TIMEOUT_MS, None, 1, 0)
    assert refused(lambda: ledger.begin(transactional_id="more")) is ErrorCode.POLICY_VIOLATION
    ledger.write(outcome)
    assert refused(lambda: ledger.begin(transactional_id="more")) is ErrorCode.POLICY_VIOLATION
    assert ledger.begin(transactional_id="id-0").producer_epoch == 1


def test_no_producer_writes_under_the_epoch_that_only_fences() -> None:
    """No producer got the highest epoch, which only fences. A transaction of this epoch could not
    be fenced, because no higher epoch exists."""
    ledger = Ledger()
    last = ledger.add(at_epoch(ledger, EXHAUSTED_EPOCH), A)
    ledger.begin()
    guessed = ledger.complete()
    assert guessed.producer_epoch == PRODUCER_EPOCH_MAX
    assert refused(lambda: ledger.add(guessed, A)) is ErrorCode.PRODUCER_FENCED
    ledger.now_ms += TIMEOUT_MS + 1
    assert ledger.shard.abort_overdue(ledger.now_ms, ledger.now_ms) == []
    assert ledger.begin().producer_id == last.producer_id + 1
