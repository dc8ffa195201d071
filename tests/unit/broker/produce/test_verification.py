"""The check that a producer may write in a transaction that another broker coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from broker.metadata.image import OFFSETS_TOPIC
from broker.node import transacting
from broker.produce.verification import Codes, Owner
from broker.shards.markers import TxnMarker
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from tests.unit.broker.replicas.test_leadership_moves import Controller
from tests.unit.broker.rig import Asked, Rig
from tests.unit.broker.txn_rig import (
    A,
    B,
    Doubtful,
    TxnProducer,
    code_of,
    read_stable,
    settle,
    txn_rig,
)

SHARD_EPOCH = 5


class Elsewhere:
    """A double of a coordinator on another broker. The test answers the verifications."""

    def __init__(self) -> None:
        self.questions: list[tuple[Owner, list[TopicPartition], Callable[[Codes], None]]] = []

    def is_elsewhere(self, transactional_id: str) -> bool:
        return True

    def refuse_outsider(
        self, owner: Owner, partition: TopicPartition, coordinator_epoch: int
    ) -> None:
        raise AssertionError("it is not here")

    def ask(
        self,
        owner: Owner,
        partitions: Iterable[TopicPartition],
        answered: Callable[[Codes], None],
    ) -> None:
        self.questions.append((owner, list(partitions), answered))

    def answer(self, code: ErrorCode = ErrorCode.NONE, **codes: ErrorCode) -> None:
        """Answer the oldest verification with one code for all partitions, or with a code per
        partition index: `p0=...`."""
        _, partitions, answered = self.questions.pop(0)
        answered({one: codes.get(f"p{one.partition}", code) for one in partitions})


class Ignored:
    """Waits for a marker and ignores the result."""

    def reached(self) -> None:
        pass

    def lost(self, code: ErrorCode) -> None:
        pass


@pytest.fixture
def coordinator() -> Elsewhere:
    return Elsewhere()


@pytest.fixture
def rig(coordinator: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(transacting, "LocalVerifier", lambda transactions: coordinator)
    with txn_rig() as rig:
        yield rig


@pytest.fixture
def producer(rig: Rig) -> TxnProducer:
    return TxnProducer(rig).ready()


def end_of(rig: Rig, place: TopicPartition = A) -> int:
    return rig.broker.parts.replicas.find(*place).log.log_end_offset


def end_transaction(rig: Rig, producer: TxnProducer, place: TopicPartition = A) -> None:
    """Write the abort marker that the coordinator on the other broker would send."""
    replica = rig.broker.parts.replicas.find(*place)
    marker = TxnMarker(producer.producer_id, producer.producer_epoch, False, SHARD_EPOCH)
    rig.broker.parts.markers.write_once(replica, marker, Ignored(), rig.clock.monotonic_ms() + 1)


def test_the_first_batch_of_a_transaction_waits_and_the_next_are_asked_about_no_more(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere
) -> None:
    first = producer.send(A, b"x")
    assert first.session.held is first.slot, "nothing may start behind it"
    # The next read overwrites the request's buffer while the request waits.
    first.frame[:] = bytes(len(first.frame))
    settle(rig)
    assert not first.is_answered() and end_of(rig) == 0
    ((owner, partitions, _),) = coordinator.questions
    assert owner == ("id", producer.producer_id, producer.producer_epoch)
    assert partitions == [A]
    coordinator.answer()
    assert not first.session.held, "it is let go"
    settle(rig)
    assert code_of(first) is ErrorCode.NONE
    assert producer.put(A, b"y") is ErrorCode.NONE
    assert not coordinator.questions
    end_transaction(rig, producer)
    settle(rig)
    # The first batch of another transaction needs another verification.
    assert not producer.send(A, b"z").is_answered()
    assert len(coordinator.questions) == 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_the_coordinator_refuses_is_not_written(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere, said: ErrorCode, told: ErrorCode
) -> None:
    asked = producer.send(A, b"x")
    coordinator.answer(said)
    settle(rig)
    assert code_of(asked) is told
    assert end_of(rig) == 0
    assert not rig.broker.parts.replicas.find(*A).log.producer_state.verifications


def test_no_answer_is_no_leave(rig: Rig, producer: TxnProducer, coordinator: Elsewhere) -> None:
    asked = producer.send(A, b"x")
    coordinator.questions.pop()[2]({})
    settle(rig)
    assert code_of(asked) is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("has_marker", [False, True])
def test_what_comes_behind_a_batch_that_has_to_come_again_is_not_taken_first(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere, has_marker: bool
) -> None:
    if has_marker:
        # The log knows only a marker of the producer and no batch, so it would accept any sequence.
        end_transaction(rig, producer)
    begin = end_of(rig)
    first = producer.send(A, b"x")
    coordinator.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    second = producer.send(A, b"y")
    coordinator.answer()
    settle(rig)
    assert code_of(first) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert code_of(second) is ErrorCode.NOT_ENOUGH_REPLICAS, "it only has to wait"
    assert end_of(rig) == begin
    for value in (b"x", b"y"):
        producer.sequences[A] = (b"x", b"y").index(value)
        asked = producer.send(A, value)
        if coordinator.questions:
            coordinator.answer()
        settle(rig)
        assert code_of(asked) is ErrorCode.NONE


def test_what_was_refused_of_a_transaction_that_has_ended_is_not_waited_for(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere
) -> None:
    producer.send(A, b"x")
    coordinator.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    end_transaction(rig, producer)
    settle(rig)
    later = producer.send(A, b"y")
    coordinator.answer()
    settle(rig)
    assert code_of(later) is ErrorCode.NONE


@pytest.mark.parametrize("times", [1, 2])
def test_a_marker_between_the_answer_and_the_append_makes_the_answer_void(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere, times: int
) -> None:
    """Otherwise the batch would open a transaction that no client ends (KIP-890). In the second
    case the log already has the marker, so no second one is appended. The repeated marker still
    makes the answer void."""
    for _ in range(times):
        late = producer.send(A, b"late")
        end_transaction(rig, producer)
        coordinator.answer()
        settle(rig)
        assert code_of(late) is ErrorCode.INVALID_TXN_STATE
    log = rig.broker.parts.replicas.find(*A).log
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset == 1
    assert not log.producer_state.verifications
    assert read_stable(rig, "t") == []


@pytest.mark.parametrize("comes_back", [False, True])
def test_who_has_lost_the_leadership_meanwhile_says_so(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere, comes_back: bool
) -> None:
    controller = Controller(rig)
    asked = producer.send(A, b"x")
    controller.take(A)
    if comes_back:
        controller.give_back(A)
    coordinator.answer()
    settle(rig)
    assert code_of(asked) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_nothing_is_written_for_a_connection_that_was_closed(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere
) -> None:
    asked = producer.send(A, b"x")
    asked.session.close("gone")
    coordinator.answer()
    settle(rig)
    assert end_of(rig) == 0


def test_a_request_is_one_question_and_each_partition_has_its_own_answer(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere
) -> None:
    request = producer.produce_request(A, b"a")
    more = producer.produce_request(B, b"b")
    request.topic_data[0].partition_data += more.topic_data[0].partition_data
    asked = rig.send(request, 9)
    assert coordinator.questions[0][1] == [A, B]
    coordinator.answer(p0=ErrorCode.INVALID_TXN_STATE, p1=ErrorCode.NONE)
    settle(rig)
    codes = [one.error_code for one in asked.answer.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]


# Offsets.


def send_offsets(rig: Rig, producer: TxnProducer, offset: int) -> Asked:
    return rig.send(producer.commit_request("g", {A: offset}), 3)


def offsets_code(asked: Asked) -> ErrorCode:
    return ErrorCode(asked.answer.topics[0].partitions[0].error_code)


def test_offsets_wait_for_the_coordinator_too(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere
) -> None:
    place = rig.broker.parts.groups.partition_of("g")
    begin = end_of(rig, place)
    first = send_offsets(rig, producer, 7)
    settle(rig)
    assert not first.is_answered() and end_of(rig, place) == begin
    assert coordinator.questions[0][1] == [place]
    coordinator.answer()
    settle(rig)
    assert offsets_code(first) is ErrorCode.NONE
    second = send_offsets(rig, producer, 8)
    assert not coordinator.questions
    settle(rig)
    assert offsets_code(second) is ErrorCode.NONE


def test_offsets_of_a_transaction_that_has_ended_meanwhile_are_refused(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere
) -> None:
    place = rig.broker.parts.groups.partition_of("g")
    assert place.topic == OFFSETS_TOPIC
    late = send_offsets(rig, producer, 7)
    end_transaction(rig, producer, place)
    coordinator.answer()
    settle(rig)
    assert offsets_code(late) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("comes_back", [False, True])
def test_offsets_are_refused_where_the_group_has_moved_meanwhile(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere, comes_back: bool
) -> None:
    """Kafka's producer would treat NOT_LEADER_OR_FOLLOWER as a fatal error here, so the code is
    NOT_COORDINATOR."""
    controller, place = Controller(rig), rig.broker.parts.groups.partition_of("g")
    asked = send_offsets(rig, producer, 7)
    controller.take(place)
    if comes_back:
        controller.give_back(place)
        rig.turn()
        assert not rig.broker.parts.groups.is_loading
    coordinator.answer()
    settle(rig)
    assert offsets_code(asked) is ErrorCode.NOT_COORDINATOR


def test_in_doubt_no_offsets_are_refused_by_what_the_log_holds(
    rig: Rig, producer: TxnProducer, coordinator: Elsewhere
) -> None:
    """The log of the current leader can have a marker that this log lacks. So this broker must not
    answer INVALID_TXN_STATE, which is fatal."""
    first = send_offsets(rig, producer, 7)
    coordinator.answer()
    settle(rig)
    assert offsets_code(first) is ErrorCode.NONE
    producer.producer_epoch += 1
    assert offsets_code(send_offsets(rig, producer, 8)) is ErrorCode.INVALID_TXN_STATE
    rig.broker.parts.replicas.place = Doubtful(rig.clock)
    assert offsets_code(send_offsets(rig, producer, 8)) is ErrorCode.NOT_COORDINATOR
