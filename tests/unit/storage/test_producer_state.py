"""Idempotent producers: which batches count as repeated, next, refused or expired."""

from __future__ import annotations

import pytest

from broker.storage.known_producer import AWAITED_COUNT_MAX
from broker.storage.producer_state import BATCHES_KEPT, ProducerStateManager
from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import BatchHeader, read_header
from tests.unit.storage.kit import MANY, NOW, batch

LAST_SEQUENCE = 2**31 - 1


def header(base_sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> BatchHeader:
    return read_header(batch(*[b"v"] * count, producer=(producer, epoch, base_sequence)))


def state_with(*batches: BatchHeader) -> ProducerStateManager:
    state = ProducerStateManager(1000, MANY)
    offset = 100
    for one in batches:
        assert state.check(one) is None
        state.update(one, offset, -1, NOW)
        offset += one.record_count
    state.keep()
    return state


def refusal(state: ProducerStateManager, one: BatchHeader) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        state.check(one)
    return raised.value.code


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerStateManager(1000, MANY).check(header(5)) is None


def test_the_next_sequence_is_taken() -> None:
    assert state_with(header(0, 3)).check(header(3)) is None


def test_two_batches_behind_five_others_are_repeats() -> None:
    """Java's client had two batches without an answer from the former leader when it wrote five
    more to the new one. Then it repeated the two."""
    state = state_with(*[header(sequence) for sequence in range(7)])
    assert [known and known[2] for known in map(state.check, (header(0), header(1)))] == [100, 101]


def test_each_of_the_last_batches_is_a_repeat_with_its_own_offset() -> None:
    count = BATCHES_KEPT + 2
    state = state_with(*[header(sequence * 2, 2) for sequence in range(count)])
    for number in range(2, count):
        known = state.check(header(number * 2, 2))
        assert known is not None
        assert known[2:4] == (100 + number * 2, 101 + number * 2)


def test_an_older_repeat_is_out_of_order() -> None:
    state = state_with(*[header(sequence) for sequence in range(BATCHES_KEPT + 2)])
    assert refusal(state, header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("one", [header(4), header(2, 2), header(0, 2), header(0, 4)])
def test_a_gap_or_another_cut_of_known_records_is_out_of_order(one: BatchHeader) -> None:
    assert refusal(state_with(header(0, 3)), one) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_refused() -> None:
    state = state_with(header(0, epoch=3))
    assert refusal(state, header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_zero() -> None:
    state = state_with(header(0, 3))
    assert refusal(state, header(3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(0, epoch=1)) is None
    state.update(header(0, epoch=1), 200, -1, NOW)
    assert refusal(state, header(3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap() -> None:
    first = header(LAST_SEQUENCE - 1, 3)
    state = state_with(first)
    assert state.check(header(1)) is None
    assert state.check(first) is not None
    state = state_with(header(LAST_SEQUENCE))
    assert state.check(header(0)) is None


def test_a_failed_write_is_forgotten_as_if_it_had_not_been() -> None:
    state = state_with(header(0), header(1))
    state.update(header(2), 300, -1, NOW)
    state.update(header(3), 301, -1, NOW)
    state.update(header(0, producer=8), 302, -1, NOW)
    state.roll_back()
    assert 8 not in state.producers
    assert state.check(header(2)) is None
    assert refusal(state, header(3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(1)) is not None


def test_what_was_refused_of_a_newer_epoch_takes_the_place_of_the_older() -> None:
    """The producer will not send the batch of the older epoch again. So the first refused batch of
    the newer epoch is awaited instead."""
    state = ProducerStateManager(1000, MANY)
    for one in (header(3), header(0, epoch=1), header(1, epoch=1), header(4)):
        state.await_first(one.producer_id, one.producer_epoch, one.base_sequence)
    assert refusal(state, header(3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(state, header(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(0, epoch=1)) is None
    assert state.check(header(5, epoch=2)) is None


def test_what_is_sent_behind_a_refused_batch_has_to_wait_and_has_made_no_mistake() -> None:
    """A batch behind a refused one gets NOT_ENOUGH_REPLICAS, because librdkafka renumbers its whole
    queue after OUT_OF_ORDER_SEQUENCE_NUMBER."""
    state = state_with(header(0), header(1))

    def refuse(sequence: int) -> ErrorCode:
        """Check the batch, and note its refusal as a broker does."""
        code = refusal(state, header(sequence))
        if code is ErrorCode.NOT_ENOUGH_REPLICAS:
            state.note_refused(7, 0, sequence)
        return code

    state.note_refused(7, 0, 2)
    state.note_refused(7, 0, 3)
    assert refuse(3) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refusal(state, header(4, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [refuse(4), refuse(4)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    assert refuse(5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "2 does not come any more"
    state.note_refused(7, 0, 2)
    assert state.check(header(2)) is None
    state.update(header(2), 102, -1, NOW)
    state.keep()
    assert refuse(4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "3 was not refused"


def test_a_refused_first_batch_of_an_epoch_is_waited_for_too() -> None:
    state = state_with(header(0), header(1))
    state.note_refused(7, 1, 0)
    assert refusal(state, header(1, epoch=1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refusal(state, header(3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(0, epoch=1)) is None
    state.note_refused(7, 1, 0)
    state.update(header(0, epoch=1), 102, -1, NOW)
    state.keep()
    state.note_refused(7, 1, 1)
    state.note_refused(7, 0, 1)
    assert refusal(state, header(2, epoch=1)) is ErrorCode.NOT_ENOUGH_REPLICAS, "0 is fenced"
    state = ProducerStateManager(1000, MANY)
    state.note_refused(7, 0, 4)
    assert refusal(state, header(5)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert state.check(header(4)) is None


def test_only_so_many_refused_producers_are_remembered() -> None:
    state = ProducerStateManager(1000, MANY)
    for producer in range(AWAITED_COUNT_MAX + 5):
        state.await_first(producer, 0, 3)
    state.await_first(AWAITED_COUNT_MAX, 1, 0)
    assert list(state.awaited) == list(range(5, AWAITED_COUNT_MAX + 5))


def test_what_is_kept_is_not_rolled_back() -> None:
    state = state_with(header(0))
    state.update(header(1), 101, -1, NOW)
    state.keep()
    state.roll_back()
    assert state.check(header(1)) is not None


def test_silent_producers_are_forgotten_in_order_of_use() -> None:
    state = ProducerStateManager(1000, MANY)
    for producer, at in ((1, 0), (2, 100), (3, 200)):
        state.update(header(0, producer=producer), producer, -1, at)
    state.update(header(1, producer=1), 9, -1, 900)
    state.keep()
    assert state.expire(1150) == 1
    assert set(state.producers) == {1, 3}
    assert state.expire(1900) == 1
    assert state.expire(1901) == 1


def test_made_up_producers_push_out_the_silent_ones_but_no_open_transaction() -> None:
    state = ProducerStateManager(1000, 3)
    in_transaction = read_header(batch(b"v", producer=(1, 0, 0), is_transactional=True))
    for offset, one in enumerate(
        [in_transaction, *(header(0, producer=id_) for id_ in range(2, 9))]
    ):
        state.update(one, offset, -1, NOW)
        state.keep()
        assert len(state.producers) <= 3
    assert list(state.producers) == [1, 7, 8]
    # Add many producers before one call of `keep`, as one read of a connection can.
    for id_ in range(20, 30):
        state.update(header(0, producer=id_), id_, -1, NOW)
    state.keep()
    assert list(state.producers) == [1, 28, 29]
