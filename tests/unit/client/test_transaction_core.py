"""Which calls a transactional producer allows in each state, and the effect of each error code."""

import random

import pytest

from protocol.client.errors import (
    ClientError,
    DeliveryTimedOut,
    ProducerFenced,
    TransactionFailed,
)
from protocol.client.pending import BatchFailed
from protocol.client.producer_core import ProducerCore
from protocol.client.producer_settings import ProducerSettings
from protocol.client.transaction_core import CodeMeaning, TransactionCore, TransactionState, judge
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition
from protocol.wire.record import NewRecord

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def an_open_one() -> TransactionCore:
    core = TransactionCore()
    core.initialized()
    core.begin()
    return core


def test_moves_that_are_legal_and_all_others() -> None:
    core = TransactionCore()
    for move in (core.begin, core.begin_commit, core.begin_abort, core.check_open):
        with pytest.raises(ClientError, match="not initialized"):
            move()
    core.initialized()
    core.initialized()
    for move in (core.begin_commit, core.begin_abort, core.check_open):
        with pytest.raises(ClientError, match="between transactions"):
            move()
    core.begin()
    core.check_open()
    core.begin_commit()
    core.begin_commit()
    with pytest.raises(ClientError, match="committing"):
        core.begin_abort()
    core.ended()
    core.begin()
    core.begin_abort()
    core.begin_abort()
    with pytest.raises(ClientError, match="aborting"):
        core.begin_commit()
    core.ended()
    assert core.state is TransactionState.READY


def test_a_partition_s_batches_wait_until_the_coordinator_knows_it() -> None:
    core = an_open_one()
    assert core.joining == frozenset()
    core.join(ZERO, core.number)
    core.join(ONE, core.number)
    assert core.joining == {ZERO, ONE}
    assert not core.may_send(ZERO)
    assert core.on_joined({ZERO: ErrorCode.NONE, ONE: ErrorCode.NONE}) is CodeMeaning.DONE
    assert core.may_send(ZERO)
    assert core.joining == frozenset()
    assert core.is_open_there
    core.join(ZERO, core.number)
    assert core.joining == frozenset()
    core.begin_commit()
    assert core.may_send(ZERO)
    core.ended()
    core.begin()
    assert not core.may_send(ZERO)


def test_a_record_is_let_into_no_transaction_but_the_one_it_was_sent_in() -> None:
    core = an_open_one()
    sent_in = core.number
    core.begin_abort()
    core.ended()
    with pytest.raises(ClientError, match="between transactions"):
        core.join(ZERO, sent_in)
    core.begin()
    with pytest.raises(TransactionFailed):
        core.join(ZERO, sent_in)
    assert core.joining == frozenset()
    core.join(ZERO, core.number)
    assert core.joining == {ZERO}


def test_one_partition_refused_for_a_while_keeps_the_others_out_for_as_long() -> None:
    core = an_open_one()
    core.join(ZERO, core.number)
    core.join(ONE, core.number)
    verdict = core.on_joined(
        {ZERO: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ONE: ErrorCode.OPERATION_NOT_ATTEMPTED}
    )
    assert verdict is CodeMeaning.AGAIN
    assert core.joining == {ZERO, ONE}
    verdict = core.on_joined(
        {ZERO: ErrorCode.TOPIC_AUTHORIZATION_FAILED, ONE: ErrorCode.OPERATION_NOT_ATTEMPTED}
    )
    assert verdict is CodeMeaning.ABORT


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, CodeMeaning.DONE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, CodeMeaning.AGAIN),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, CodeMeaning.AGAIN),
        (ErrorCode.NOT_COORDINATOR, CodeMeaning.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, CodeMeaning.FIND_COORDINATOR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, CodeMeaning.FENCED),
        (ErrorCode.PRODUCER_FENCED, CodeMeaning.FENCED),
        (ErrorCode.ILLEGAL_GENERATION, CodeMeaning.ABORT),
        (ErrorCode.UNKNOWN_MEMBER_ID, CodeMeaning.ABORT),
        (ErrorCode.FENCED_INSTANCE_ID, CodeMeaning.ABORT),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, CodeMeaning.ABORT),
        (ErrorCode.TRANSACTION_ABORTABLE, CodeMeaning.ABORT),
        (ErrorCode.INVALID_TXN_STATE, CodeMeaning.FATAL),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CodeMeaning.FATAL),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, CodeMeaning.FATAL),
    ],
)
def test_codes_and_what_they_mean(code: ErrorCode, verdict: CodeMeaning) -> None:
    assert judge(code) is verdict


def test_a_failure_leaves_only_the_abort() -> None:
    core = an_open_one()
    core.join(ZERO, core.number)
    core.fail(ApiError(ErrorCode.MESSAGE_TOO_LARGE))
    assert core.drops_waiting
    assert core.joining == frozenset()
    for move in (core.check_open, core.begin_commit):
        with pytest.raises(TransactionFailed, match="MESSAGE_TOO_LARGE"):
            move()
    core.begin_abort()
    assert core.drops_waiting
    core.ended()
    assert core.failure is None
    core.begin()


def test_a_failure_during_the_commit_stops_it() -> None:
    core = an_open_one()
    core.begin_commit()
    core.fail(DeliveryTimedOut("late"), was_sent=True)
    with pytest.raises(TransactionFailed, match="late"):
        core.begin_commit()
    assert core.needs_new_epoch
    core.begin_abort()
    core.ended()
    core.begin()
    core.begin_commit()


def test_a_batch_that_never_left_leaves_no_gap() -> None:
    core = an_open_one()
    core.fail(DeliveryTimedOut("never sent"))
    assert (core.needs_new_epoch, core.is_known_to_coordinator) == (False, True)
    core.fail(ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    assert (core.needs_new_epoch, core.is_known_to_coordinator) == (True, False)


def test_a_fenced_producer_is_of_no_more_use() -> None:
    core = an_open_one()
    core.fail(ApiError(ErrorCode.PRODUCER_FENCED))
    for move in (core.begin, core.check_open, core.begin_commit, core.begin_abort):
        with pytest.raises(ProducerFenced):
            move()
    core.fail(ApiError(ErrorCode.MESSAGE_TOO_LARGE))
    assert core.state is TransactionState.DEAD


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    ],
)
def test_in_a_transaction_the_producer_never_raises_its_epoch_by_itself(code: ErrorCode) -> None:
    settings = ProducerSettings(
        transactional_id="id", linger_ms=0, unknown_topic_timeout_ms=1, retry_backoff_ms=(1, 1)
    )
    core = ProducerCore(settings, random.Random(1))
    core.set_producer_id(7, 3)
    core.append(ZERO, NewRecord(None, b"x", 0), None, 0)
    (batch,) = core.drain([ZERO], 0, 1 << 20)
    (effect,) = core.on_refused(batch, code, "", 0)
    assert isinstance(effect, BatchFailed)
    assert isinstance(effect.error, ApiError)
    assert effect.error.code == code
    assert (core.producer_id, core.producer_epoch) == (7, 3)
    assert core.is_empty
    # After the abort, the producer epoch is raised and sequence numbers start at 0 again.
    core.set_producer_id(7, 4)
    core.append(ZERO, NewRecord(None, b"y", 0), None, 10)
    (batch,) = core.drain([ZERO], 10, 1 << 20)
    assert (batch.producer_epoch, batch.base_sequence) == (4, 0)
