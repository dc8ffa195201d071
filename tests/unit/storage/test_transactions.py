"""Transactions in one log: the last stable offset, fencing, and the list of aborted
transactions."""

from __future__ import annotations

import pytest

from broker.storage.errors import DiskError
from broker.storage.known_producer import ActiveProducer
from broker.storage.markers import marker_of
from broker.storage.outcomes import AppendResult
from broker.storage.txn_index import AbortedRange
from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import Marker, check_batch, read_header
from tests.unit.storage.kit import EVERYTHING, NOW, Node, batch, batches_of

ONE, TWO = 11, 22


def put(
    node: Node, producer: int, sequence: int, *, epoch: int = 0, count: int = 1
) -> AppendResult:
    view = batch(*[b"v"] * count, producer=(producer, epoch, sequence), is_transactional=True)
    return node.put(view)[0]


def end(
    node: Node, producer: int, *, is_commit: bool, epoch: int = 0, coordinator_epoch: int = 0
) -> AppendResult:
    done = node.log.append_marker(producer, epoch, is_commit, coordinator_epoch, 0, NOW)
    node.log.write_staged(NOW)
    return done


def refusal(node: Node, view: memoryview) -> ErrorCode:
    before = (node.log.log_end_offset, node.log.producer_state.active())
    with pytest.raises(ApiError) as raised:
        node.put(view)
    assert (node.log.log_end_offset, node.log.producer_state.active()) == before
    return raised.value.code


def test_an_open_transaction_holds_readers_of_committed_data_at_its_first_offset() -> None:
    node = Node()
    node.put(batch(b"plain"))
    put(node, ONE, 0)
    put(node, ONE, 1)
    put(node, TWO, 0)
    node.flush()
    assert (node.log.high_watermark, node.log.last_stable_offset) == (4, 1)
    end(node, ONE, is_commit=True)
    node.flush()
    assert node.log.last_stable_offset == 3
    end(node, TWO, is_commit=True)
    node.flush()
    assert node.log.last_stable_offset == node.log.high_watermark == 6


def test_a_finished_transaction_counts_as_open_until_its_marker_is_committed() -> None:
    node = Node()
    put(node, ONE, 0)
    end(node, ONE, is_commit=True)
    node.log.advance_high_watermark(1)
    assert node.log.last_stable_offset == 0
    node.log.advance_high_watermark(2)
    assert node.log.last_stable_offset == 2


def test_the_last_stable_offset_is_never_below_the_logs_start() -> None:
    node = Node()
    put(node, ONE, 0)
    node.put(batch(b"a", b"b", b"c"))
    node.flush()
    node.log.advance_log_start(2)
    assert node.log.last_stable_offset == 2


def test_a_log_without_transactions_is_stable_up_to_the_high_watermark() -> None:
    """Pitfall 24: read_committed works on topics without transactions too."""
    node = Node()
    node.put(batch(b"a", b"b"))
    assert node.log.last_stable_offset == node.log.high_watermark == 0
    node.flush()
    assert node.log.last_stable_offset == 2
    assert node.log.aborted_transactions(0, 2) == []


def test_the_marker_is_a_control_batch_that_says_how_it_ended() -> None:
    node = Node()
    put(node, ONE, 0)
    end(node, ONE, is_commit=True, coordinator_epoch=3)
    put(node, ONE, 1)
    end(node, ONE, is_commit=False, coordinator_epoch=4)
    markers = [one for one in batches_of(node.log) if read_header(one).is_control]
    assert [marker_of(one) for one in markers] == [Marker(True, 3), Marker(False, 4)]
    for one in markers:
        header = check_batch(one)
        assert header.is_transactional
        assert (header.producer_id, header.base_sequence, header.max_timestamp) == (ONE, -1, NOW)


def test_aborted_transactions_are_listed_by_first_offset() -> None:
    """Pitfall 23: the list is sorted by first offset, although the transaction that began later was
    aborted first."""
    node = Node()
    put(node, ONE, 0)
    put(node, TWO, 0)
    put(node, ONE, 1)
    end(node, TWO, is_commit=False)
    end(node, ONE, is_commit=False)
    put(node, TWO, 1)
    end(node, TWO, is_commit=True)
    one, two = AbortedRange(ONE, 0), AbortedRange(TWO, 1)
    assert node.log.aborted_transactions(0, EVERYTHING) == [one, two]
    assert node.log.aborted_transactions(0, 1) == [one]
    assert node.log.aborted_transactions(3, 4) == [one, two]
    assert node.log.aborted_transactions(4, 7) == [one]
    assert node.log.aborted_transactions(5, 7) == []


def test_aborted_transactions_are_found_in_later_segments() -> None:
    node = Node(topic={"segment.bytes": "200"})
    put(node, ONE, 0)
    for _ in range(8):
        node.put(batch(b"x" * 50))
    end(node, ONE, is_commit=False)
    assert len(node.log.segments) > 4
    assert node.log.aborted_transactions(0, 1) == [AbortedRange(ONE, 0)]
    assert node.log.aborted_transactions(2, 4) == [AbortedRange(ONE, 0)]


def test_a_plain_batch_in_an_open_transaction_is_refused() -> None:
    node = Node()
    put(node, ONE, 0)
    view = batch(b"v", producer=(ONE, 0, 1))
    assert refusal(node, view) is ErrorCode.INVALID_TXN_STATE
    end(node, ONE, is_commit=True)
    assert node.put(batch(b"v", producer=(ONE, 0, 1)))[0].base_offset == 2


def test_a_newer_epoch_waits_for_the_marker_that_ends_the_old_transaction() -> None:
    """Pitfall 25: consumers match aborted transactions by producer id only. So the new epoch must
    wait for the marker."""
    node = Node()
    put(node, ONE, 0)
    newer = batch(b"v", producer=(ONE, 1, 0), is_transactional=True)
    assert refusal(node, newer) is ErrorCode.INVALID_TXN_STATE
    end(node, ONE, is_commit=False, epoch=1)
    assert put(node, ONE, 0, epoch=1).base_offset == 2
    assert node.log.aborted_transactions(0, EVERYTHING) == [AbortedRange(ONE, 0)]


def test_a_marker_keeps_the_sequences_of_its_epoch() -> None:
    node = Node()
    put(node, ONE, 0, count=3)
    end(node, ONE, is_commit=True)
    assert refusal(node, batch(b"v", producer=(ONE, 0, 5), is_transactional=True)) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert put(node, ONE, 3).base_offset == 4


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_commit", [False, True])
def test_a_batch_of_a_transaction_that_has_ended_is_not_taken_for_a_copy(
    is_commit: bool, is_restarted: bool
) -> None:
    """librdkafka continues its sequences after the last acknowledged batch. So after an abort,
    other records can have the sequences of unacknowledged ones. The log must not acknowledge them
    as repeated."""
    node = Node()
    put(node, ONE, 0)
    first = put(node, ONE, 1, count=2)
    repeated = put(node, ONE, 1, count=2)
    assert (repeated.is_duplicate, repeated.base_offset) == (True, first.base_offset)
    end(node, ONE, is_commit=is_commit)
    if is_restarted:
        node.restart()
    again = batch(b"other", b"records", producer=(ONE, 0, 1), is_transactional=True)
    assert refusal(node, again) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    put(node, ONE, 3)
    assert refusal(node, again) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(node, ONE, 3).is_duplicate


def test_a_marker_of_a_newer_epoch_fences_the_old_one_and_starts_at_zero() -> None:
    node = Node()
    put(node, ONE, 0)
    end(node, ONE, is_commit=False, epoch=1)
    old = batch(b"v", producer=(ONE, 0, 1), is_transactional=True)
    assert refusal(node, old) is ErrorCode.INVALID_PRODUCER_EPOCH
    ahead = batch(b"v", producer=(ONE, 1, 4), is_transactional=True)
    assert refusal(node, ahead) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    node.flush()
    node.restart()
    assert refusal(node, ahead) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(node, ONE, 0, epoch=1).base_offset == 2


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_producer_of_which_only_a_marker_is_known_may_go_on_anywhere(is_restarted: bool) -> None:
    """Retention may have deleted the producer's data. If the broker demanded sequence 0, the
    producer could never continue."""
    node = Node()
    end(node, ONE, is_commit=True)
    node.flush()
    if is_restarted:
        node.restart()
    assert put(node, ONE, 7).base_offset == 1
    assert refusal(node, batch(b"v", producer=(ONE, 0, 9), is_transactional=True)) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


def test_markers_of_the_past_are_refused() -> None:
    node = Node()
    put(node, ONE, 0, epoch=2)
    with pytest.raises(ApiError) as fenced:
        end(node, ONE, is_commit=True, epoch=1)
    assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    end(node, ONE, is_commit=True, epoch=2, coordinator_epoch=5)
    with pytest.raises(ApiError) as replaced:
        end(node, ONE, is_commit=True, epoch=2, coordinator_epoch=4)
    assert replaced.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert node.log.log_end_offset == 2


def test_a_marker_repeated_ends_nothing_more() -> None:
    node = Node()
    put(node, ONE, 0)
    for _ in range(2):
        end(node, ONE, is_commit=False)
    end(node, TWO, is_commit=False)
    assert node.log.aborted_transactions(0, EVERYTHING) == [AbortedRange(ONE, 0)]


def test_active_producers_are_described() -> None:
    node = Node()
    node.put(batch(b"v", b"v", producer=(7, 3, 0), timestamp_ms=NOW - 5))
    put(node, ONE, 0)
    end(node, ONE, is_commit=True, coordinator_epoch=9)
    put(node, ONE, 1)
    end(node, TWO, is_commit=True)
    assert node.log.producer_state.active() == [
        ActiveProducer(7, 3, 1, NOW - 5, -1, -1),
        ActiveProducer(ONE, 0, 1, NOW, 9, 4),
        ActiveProducer(TWO, 0, -1, NOW, 0, -1),
    ]


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    node = Node({"producer.id.expiration.ms": 1000})
    put(node, ONE, 0)
    node.put(batch(b"v", producer=(7, 0, 0)))
    node.log.producer_state.expire(NOW + 5000)
    assert [one.producer_id for one in node.log.producer_state.active()] == [ONE]
    end(node, ONE, is_commit=True)
    node.log.producer_state.expire(NOW + 5000)
    assert node.log.producer_state.active() == []


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_that_cannot_be_written_leaves_the_transaction_open(is_commit: bool) -> None:
    node = Node()
    put(node, ONE, 0)
    before = node.log.producer_state.active()
    node.sim.refuses = lambda path, operation: operation == "write" and path.endswith(".log")
    with pytest.raises(DiskError):
        end(node, ONE, is_commit=is_commit, coordinator_epoch=1)
    with pytest.raises(DiskError):
        put(node, TWO, 0)
    node.sim.refuses = None
    assert node.log.producer_state.active() == before
    node.flush()
    assert node.log.last_stable_offset == 0
    assert node.log.aborted_transactions(0, EVERYTHING) == []
    end(node, ONE, is_commit=is_commit)
    node.flush()
    assert node.log.last_stable_offset == 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_transactions_survive_a_restart(is_clean: bool) -> None:
    node = Node(topic={"segment.bytes": "300"})
    put(node, ONE, 0)
    put(node, TWO, 0)
    end(node, ONE, is_commit=False, coordinator_epoch=2)
    for number in range(1, 6):
        put(node, TWO, number)
    node.flush()
    before = node.log.producer_state.active()
    if is_clean:
        node.restart()
    else:
        node.reopen()
    node.log.advance_high_watermark(EVERYTHING)
    assert node.log.producer_state.active() == before
    assert node.log.last_stable_offset == 1
    assert node.log.aborted_transactions(0, EVERYTHING) == [AbortedRange(ONE, 0)]
    end(node, TWO, is_commit=False, coordinator_epoch=2)
    assert len(node.log.aborted_transactions(0, EVERYTHING)) == 2


def test_the_broker_may_write_transactional_batches_itself() -> None:
    """The broker appends offsets that are committed in a transaction. The log checks their epochs
    but not their sequences."""
    node = Node()
    for _ in range(2):
        view = batch(b"offset", producer=(ONE, 4, 0), is_transactional=True)
        node.log.append_own(view, read_header(view), 0, NOW)
        node.log.write_staged(NOW)
    node.flush()
    assert (node.log.log_end_offset, node.log.last_stable_offset) == (2, 0)
    view = batch(b"offset", producer=(ONE, 3, 0), is_transactional=True)
    with pytest.raises(ApiError) as fenced:
        node.log.append_own(view, read_header(view), 0, NOW)
    assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_what_ended_below_the_high_watermark_is_stable_after_a_truncation() -> None:
    node = Node()
    put(node, ONE, 0)
    end(node, ONE, is_commit=True)
    node.flush()
    node.put(batch(b"a"), batch(b"b"))
    node.truncate(3)
    assert node.log.last_stable_offset == node.log.high_watermark == 2
