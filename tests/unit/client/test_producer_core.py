"""The producer's core, step by step: when batches are sent, their order, and the effect of each
response."""

import random

import pytest

from protocol.client.errors import ClientClosed, DeliveryTimedOut, RecordTooLarge
from protocol.client.pending import (
    BatchDelivered,
    BatchFailed,
    Effect,
    PendingBatch,
    SequenceRestarted,
    record_bytes_bound,
    sequence_after,
)
from protocol.client.producer_core import PRODUCER_EPOCH_MAX, SUSPECT_ANSWERS_MAX, ProducerCore
from protocol.client.producer_settings import ProducerSettings
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
EVERYTHING = 1 << 30


def a_core(**settings: object) -> ProducerCore:
    settings = {"linger_ms": 0, "retry_backoff_ms": (100, 100), **settings}
    core = ProducerCore(ProducerSettings(**settings), random.Random(1))  # type: ignore[arg-type]
    if core.settings.idempotent:
        core.set_producer_id(7, 0)
    return core


def put(core: ProducerCore, value: bytes, tp: TopicPartition = TP, now_ms: int = 0) -> PendingBatch:
    return core.append(tp, NewRecord(None, value, 0), value, now_ms)


def put_alone(core: ProducerCore, value: bytes) -> PendingBatch:
    """Append a record to a batch of its own."""
    batch = put(core, value)
    batch.closed = True
    return batch


def drain(core: ProducerCore, now_ms: int = 0) -> list[PendingBatch]:
    return core.drain(core.ready(now_ms), now_ms, EVERYTHING)


def drain_all(core: ProducerCore, now_ms: int = 0) -> list[PendingBatch]:
    batches: list[PendingBatch] = []
    while more := drain(core, now_ms):
        batches += more
    return batches


def refuse(
    core: ProducerCore, batch: PendingBatch, code: ErrorCode, now_ms: int = 0
) -> list[Effect]:
    return core.on_refused(batch, code, "", now_ms)


def a_confirmed_core(**settings: object) -> ProducerCore:
    """Return a core whose leader has acknowledged a batch of one record, so that five batches may
    be in flight."""
    core = a_core(**settings)
    put_alone(core, b"first")
    (batch,) = drain(core)
    core.on_delivered(batch, 0, -1)
    return core


# Batching.


def test_a_batch_waits_for_linger() -> None:
    core = a_core(linger_ms=5)
    put(core, b"a", now_ms=100)
    assert core.ready(104) == []
    assert core.next_deadline_ms(104) == 105
    assert core.ready(105) == [TP]
    assert core.next_deadline_ms(105) is None


def test_a_full_batch_leaves_at_once_and_the_next_lingers() -> None:
    core = a_core(linger_ms=50, batch_bytes=300)
    first = put(core, b"a" * 200)
    assert core.ready(0) == []
    second = put(core, b"b" * 200)
    assert second is not first
    assert drain(core) == [first]
    assert core.ready(0) == []


def test_a_record_larger_than_a_batch_has_one_of_its_own() -> None:
    core = a_core(linger_ms=50, batch_bytes=300)
    first = put(core, b"a")
    large = put(core, b"b" * 1000)
    assert drain(core) == [first]
    core.on_delivered(first, 0, -1)
    assert drain(core) == [large]


def test_nothing_lingers_under_pressure() -> None:
    core = a_core(linger_ms=50)
    put(core, b"a")
    assert core.ready(0) == []
    core.pressed = True
    assert core.ready(0) == [TP]


def test_one_request_takes_one_batch_a_partition_oldest_first_within_its_bound() -> None:
    core = a_core()
    put(core, b"a" * 100, OTHER)
    put(core, b"b" * 100, TP)
    assert core.ready(0) == [OTHER, TP]
    (only,) = core.drain(core.ready(0), 0, 150)
    assert only.tp == OTHER
    (other,) = core.drain(core.ready(0), 0, 150)
    assert other.tp == TP


def test_a_batch_encoded_by_the_caller_keeps_its_place() -> None:
    core = a_confirmed_core(linger_ms=0)
    first = put(core, b"a")
    payload = build_batch([NewRecord(None, b"x", 0), NewRecord(None, b"y", 0)])
    second = core.append_batch(TP, payload, 2, "token", 0)
    third = put(core, b"b")
    assert drain_all(core) == [first, second, third]
    assert [batch.base_sequence for batch in (first, second, third)] == [1, 2, 4]


def test_the_bound_of_a_record_holds_for_its_encoding() -> None:
    rng = random.Random(5)
    for _ in range(200):
        record = NewRecord(
            rng.choice((None, rng.randbytes(rng.randrange(300)))),
            rng.choice((None, rng.randbytes(rng.randrange(40_000)))),
            rng.randrange(2**41),
            tuple(("ä" * rng.randrange(90), rng.randbytes(9)) for _ in range(rng.randrange(4))),
        )
        earlier = NewRecord(b"", b"", 0)
        size = len(build_batch([earlier, record])) - len(build_batch([earlier]))
        assert size <= record_bytes_bound(record)


# Bounds.


def test_the_buffer_is_counted_and_freed() -> None:
    core = a_core(buffer_bytes=1000)
    put(core, b"a" * 500)
    assert core.has_room(300)
    assert not core.has_room(500)
    (batch,) = drain(core)
    core.on_delivered(batch, 0, -1)
    assert core.buffered_bytes == 0


def test_what_can_never_be_sent_is_refused_at_once() -> None:
    core = a_core(buffer_bytes=1000, request_bytes_max=500)
    core.check_size(500)
    with pytest.raises(RecordTooLarge, match="expected at most 500"):
        core.check_size(501)


def test_settings_that_contradict_each_other() -> None:
    for required_acks, max_in_flight in ((1, 5), (-1, 6), (-1, 0)):
        with pytest.raises(ValueError, match="max_in_flight"):
            ProducerSettings(required_acks=required_acks, max_in_flight=max_in_flight)
    # A connection can have at most 128 requests in flight, with idempotence or without.
    with pytest.raises(ValueError, match="expected 1 to 128"):
        ProducerSettings(idempotent=False, max_in_flight=129)
    with pytest.raises(ValueError, match="required_acks"):
        ProducerSettings(required_acks=2, idempotent=False)


# Order and sequences.


def test_one_batch_until_the_leader_confirms_then_five() -> None:
    core = a_core()
    batches = [put_alone(core, b"%d" % index) for index in range(8)]
    assert drain_all(core) == batches[:1]
    core.on_delivered(batches[0], 0, -1)
    assert drain_all(core) == batches[1:6]
    core.on_delivered(batches[1], 1, -1)
    assert drain_all(core) == batches[6:7]
    assert [batch.base_sequence for batch in batches[:7]] == list(range(7))


def test_nothing_leaves_without_a_producer_id() -> None:
    core = ProducerCore(ProducerSettings(linger_ms=0), random.Random(1))
    put(core, b"a")
    assert core.needs_producer_id
    assert core.ready(0) == []
    core.set_producer_id(9, 3)
    (batch,) = drain(core)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 3, 0)


def test_sequences_wrap_around() -> None:
    assert sequence_after(2**31 - 1, 1) == 0
    assert sequence_after(2**31 - 3, 5) == 2
    core = a_confirmed_core()
    core._lines[TP].next_sequence = 2**31 - 2
    first = put(core, b"a")
    put(core, b"b")
    put(core, b"c")
    assert drain(core) == [first]
    second = put_alone(core, b"d")
    assert drain(core) == [second]
    assert (first.base_sequence, second.base_sequence) == (2**31 - 2, 1)


def test_a_lost_connection_repeats_everything_one_by_one() -> None:
    core = a_confirmed_core()
    batches = [put_alone(core, b"%d" % index) for index in range(3)]
    assert drain_all(core) == batches
    for batch in batches:
        core.on_connection_lost(batch, 1000)
    assert core.ready(1000) == []
    retry_at = core.next_deadline_ms(1000)
    assert retry_at is not None
    assert 1080 <= retry_at <= 1120
    for offset, batch in enumerate(batches):
        assert drain_all(core, retry_at) == [batch]
        core.on_delivered(batch, 1 + offset, -1)
    assert [batch.base_sequence for batch in batches] == [1, 2, 3]


def test_no_sixth_batch_pushes_an_unanswered_one_out_of_the_leader_s_memory() -> None:
    """Kafka remembers only the last five batches. The first batch got no response from the
    former leader, so a sixth batch must wait until it has one."""
    core = a_confirmed_core()
    batches = [put_alone(core, b"%d" % index) for index in range(7)]
    assert drain_all(core) == batches[:5]
    for offset, batch in enumerate(batches[1:5]):
        core.on_delivered(batch, 2 + offset, -1)
    assert drain_all(core) == []
    core.on_delivered(batches[0], 1, -1)
    assert drain_all(core) == batches[5:]


def test_an_echo_of_an_earlier_refusal_waits_for_its_turn() -> None:
    core = a_confirmed_core()
    first, second = put_alone(core, b"a"), put_alone(core, b"b")
    drain_all(core)
    assert refuse(core, first, ErrorCode.NOT_LEADER_OR_FOLLOWER) == []
    assert refuse(core, second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) == []
    assert drain_all(core, 200) == [first]
    core.on_delivered(first, 1, -1)
    assert drain_all(core, 200) == [second]
    assert (second.producer_epoch, second.base_sequence) == (0, 2)


def test_nothing_is_in_flight_beside_a_batch_that_is_tried_again() -> None:
    core = a_confirmed_core()
    first, second = put_alone(core, b"a"), put_alone(core, b"b")
    drain_all(core)
    refuse(core, first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    # The second batch is still in flight and can be acknowledged, because the first was in the log
    # before its refusal. So the retry of the first must wait.
    assert drain_all(core, 200) == []
    core.on_delivered(second, 2, -1)
    put_alone(core, b"c")
    assert drain_all(core, 200) == [first]
    assert drain_all(core, 200) == []


@pytest.mark.parametrize(
    ("code", "error_expected"),
    [(ErrorCode.REQUEST_TIMED_OUT, True), (ErrorCode.NOT_ENOUGH_REPLICAS, False)],
)
def test_which_refusals_leave_it_open_whether_the_batch_was_written(
    code: ErrorCode, error_expected: bool
) -> None:
    core = a_core()
    batch = put(core, b"a")
    drain(core)
    refuse(core, batch, code)
    drain(core, 200)
    effects = refuse(core, batch, ErrorCode.INVALID_PRODUCER_EPOCH, 200)
    assert any(isinstance(effect, BatchFailed) for effect in effects) == error_expected


def test_a_gap_in_the_log_restarts_the_sequence_under_a_raised_epoch() -> None:
    core = a_confirmed_core()
    first, second = put_alone(core, b"a"), put_alone(core, b"b")
    drain_all(core)
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refuse(core, first, code) == [SequenceRestarted(TP, code)]
    # The second batch is still in flight with the old producer epoch, so nothing may be sent yet.
    assert drain_all(core, 200) == []
    assert refuse(core, second, code) == []
    assert drain_all(core, 200) == [first]
    assert (first.producer_epoch, first.base_sequence) == (1, 0)
    core.on_delivered(first, 1, -1)
    assert drain_all(core, 200) == [second]
    assert (second.producer_epoch, second.base_sequence) == (1, 1)


def test_other_partitions_take_the_raised_epoch_when_nothing_is_outstanding() -> None:
    core = a_confirmed_core()
    other = put(core, b"o", OTHER)
    drain_all(core)
    mine = put_alone(core, b"a")
    drain_all(core)
    refuse(core, mine, ErrorCode.UNKNOWN_PRODUCER_ID)
    drain_all(core, 200)
    assert mine.producer_epoch == 1
    assert other.producer_epoch == 0
    core.on_delivered(other, 0, -1)
    later = put(core, b"p", OTHER)
    drain_all(core, 200)
    assert (later.producer_epoch, later.base_sequence) == (1, 0)


def test_the_last_epoch_is_followed_by_another_producer_id() -> None:
    core = a_core()
    core.set_producer_id(7, PRODUCER_EPOCH_MAX)
    batch = put_alone(core, b"a")
    drain_all(core)
    refuse(core, batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert drain_all(core, 200) == []
    assert core.needs_producer_id
    core.set_producer_id(8, 0)
    assert drain_all(core, 200) == [batch]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (8, 0, 0)


def test_a_refused_epoch_fails_only_what_may_be_in_the_log() -> None:
    core = a_confirmed_core()
    unsure, sure = put_alone(core, b"a"), put_alone(core, b"b")
    drain_all(core)
    core.on_connection_lost(unsure, 0)
    refuse(core, sure, ErrorCode.NOT_ENOUGH_REPLICAS)
    drain_all(core, 200)
    effects = refuse(core, unsure, ErrorCode.INVALID_PRODUCER_EPOCH, 200)
    assert [type(effect) for effect in effects] == [BatchFailed, SequenceRestarted]
    assert core.needs_producer_id
    core.set_producer_id(8, 0)
    assert drain_all(core, 400) == [sure]
    assert (sure.producer_id, sure.base_sequence) == (8, 0)


def test_a_duplicate_counts_as_delivered_without_an_offset() -> None:
    core = a_core()
    batch = put(core, b"a")
    drain(core)
    effects = refuse(core, batch, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert effects == [BatchDelivered(batch, -1, -1)]


# Refusals.


def test_a_batch_too_large_is_split_and_its_single_record_fails() -> None:
    core = a_confirmed_core()
    batch = put(core, b"a")
    for value in (b"b", b"c"):
        put(core, value)
    drain(core)
    assert refuse(core, batch, ErrorCode.MESSAGE_TOO_LARGE) == []
    (left,) = drain(core)
    assert (left.tokens, left.base_sequence) == ([b"a"], 1)
    core.on_delivered(left, 1, -1)
    (right,) = drain(core)
    assert (right.tokens, right.base_sequence) == ([b"b", b"c"], 2)
    assert refuse(core, right, ErrorCode.MESSAGE_TOO_LARGE) == []
    (alone,) = drain_all(core)
    (failed,) = refuse(core, alone, ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(failed, BatchFailed)
    assert failed.batch.tokens == [b"b"]
    (last,) = drain_all(core)
    core.on_delivered(last, 2, -1)
    assert core.buffered_bytes == 0


def test_an_encoded_batch_too_large_is_reported_and_gives_its_sequence_back() -> None:
    core = a_confirmed_core()
    payload = build_batch([NewRecord(None, b"x", 0), NewRecord(None, b"y", 0)])
    batch = core.append_batch(TP, payload, 2, "token", 0)
    drain(core)
    (failed,) = refuse(core, batch, ErrorCode.MESSAGE_TOO_LARGE)
    assert isinstance(failed, BatchFailed)
    assert isinstance(failed.error, ApiError)
    after = put_alone(core, b"a")
    drain(core)
    assert after.base_sequence == batch.base_sequence == 1


def test_codes_that_may_never_pass_are_bounded() -> None:
    core = a_core()
    batch = put(core, b"a")
    for attempt in range(SUSPECT_ANSWERS_MAX):
        assert drain(core, attempt * 1000) == [batch]
        assert refuse(core, batch, ErrorCode.CORRUPT_MESSAGE, attempt * 1000) == []
    drain(core, EVERYTHING)
    (failed,) = refuse(core, batch, ErrorCode.CORRUPT_MESSAGE, EVERYTHING)
    assert isinstance(failed, BatchFailed)


def test_a_topic_that_stays_unknown_fails_its_records() -> None:
    core = a_core(unknown_topic_timeout_ms=1000)
    put(core, b"a")
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert core.on_leader_unknown(TP, code, 0) == []
    assert core.on_leader_unknown(TP, code, 999) == []
    assert core.on_leader_unknown(TP, ErrorCode.LEADER_NOT_AVAILABLE, 1000) == []
    assert core.on_leader_unknown(TP, code, 1500) == []
    (failed,) = core.on_leader_unknown(TP, code, 2500)
    assert isinstance(failed, BatchFailed)
    assert core.is_empty


def test_a_topic_that_is_forbidden_fails_at_once() -> None:
    core = a_core()
    put(core, b"a")
    (failed,) = core.on_leader_unknown(TP, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)
    assert isinstance(failed, BatchFailed)


def test_delivery_timeout_spares_what_is_in_flight_and_says_what_is_known() -> None:
    core = a_core(delivery_timeout_ms=100)
    sent, waiting = put_alone(core, b"a"), put_alone(core, b"b")
    drain(core)
    assert core.next_deadline_ms(0) == 100
    (failed,) = core.expire(100)
    assert isinstance(failed, BatchFailed)
    assert failed.batch is waiting
    assert "was not written" in str(failed.error)
    core.on_connection_lost(sent, 100)
    (failed,) = core.expire(100)
    assert isinstance(failed, BatchFailed)
    assert isinstance(failed.error, DeliveryTimedOut)
    assert "may have been written" in str(failed.error)


def test_the_end_fails_everything() -> None:
    core = a_core()
    for value in (b"a", b"b"):
        put_alone(core, value)
    drain(core)
    error = ClientClosed("over")
    assert len(core.fail_all(error)) == 2
    assert core.is_empty
    assert core.buffered_bytes == 0


def test_numbers_of_batches_tell_when_a_flush_is_done() -> None:
    core = a_confirmed_core()
    first, second = put_alone(core, b"a"), put_alone(core, b"b")
    mark = core.last_number
    drain_all(core)
    put_alone(core, b"later")
    core.on_delivered(second, 2, -1)
    assert core.oldest_number() == first.order[0]
    core.on_delivered(first, 1, -1)
    oldest = core.oldest_number()
    assert oldest is not None
    assert oldest > mark


# Without idempotence.


def test_without_idempotence_there_are_no_ids_and_order_needs_one_in_flight() -> None:
    core = a_core(idempotent=False, required_acks=1, max_in_flight=1)
    first, second = put_alone(core, b"a"), put_alone(core, b"b")
    assert drain_all(core) == [first]
    assert first.producer_id == -1
    core.on_connection_lost(first, 0)
    assert drain_all(core, 200) == [first]
    core.on_delivered(first, 0, -1)
    assert drain_all(core, 200) == [second]
