"""Batches: bounded, in order, nothing dropped when one is refused."""

from collector.config import BACKFILL_WINDOW, LINGER_MS, PARTITION_WINDOW
from collector.delivery import Delivery
from collector.encode import Piece, encode
from collector.fingerprint import Evidence
from collector.lines import Block
from collector.outbox import Batch, Entry, Outbox
from collector.schedule import Lane
from protocol.types import TopicPartition
from tests.unit.collector.blocks import blocks_of, values_of

P = TopicPartition("t", 0)
KEY = b"k"


class Sender:
    """An outbox whose limit can change, and the lines that went into it."""

    def __init__(self, limit: int = 1000, bytes_max: int = 1 << 20):
        self.limit = limit
        self.outbox = Outbox(lambda topic: self.limit, bytes_max)
        self.delivery = Delivery(Evidence())
        self.sealed: list[Batch] = []

    def offer(self, block: Block, lane: Lane = Lane.LIVE, now_ms: int = 0) -> Block | None:
        rest: Block | None = block
        while rest is not None:
            taken, rest = self.outbox.fit(P, Piece(KEY, rest), lane)
            if taken is not None:
                span = self.delivery.send(Evidence(taken.block.end), taken.block.count)
                self.outbox.put(P, Entry("g", span, taken))
            batches = self.outbox.seal(now_ms)
            self.sealed += batches
            if taken is None and not batches:
                return rest
        return None

    def acknowledge(self, batch: Batch) -> None:
        self.outbox.settled(batch)
        for entry in batch.entries:
            self.delivery.acknowledge(entry.span)


def lines(first: int, count: int) -> Block:
    (block,) = blocks_of(b"".join(b"%06d\n" % i for i in range(first, first + count)))
    return block


def values(batches: list[Batch]) -> list[int]:
    return [
        int(value or b"")
        for batch in batches
        for _, value in values_of([entry.piece for entry in batch.entries])
    ]


def test_the_first_line_goes_at_once_and_the_next_after_the_linger() -> None:
    sender = Sender()
    sender.offer(lines(0, 1), now_ms=1000)
    assert values(sender.sealed) == [0]
    sender.offer(lines(1, 1), now_ms=1001)
    sender.offer(lines(2, 1), now_ms=1002)
    assert len(sender.sealed) == 1
    assert sender.outbox.deadline_ms == 1000 + LINGER_MS
    sender.sealed += sender.outbox.seal(1000 + LINGER_MS)
    assert values(sender.sealed[1:]) == [1, 2]
    assert sender.outbox.deadline_ms is None


def test_batches_stay_below_the_limit_and_the_window_is_bounded() -> None:
    sender = Sender(limit=200)
    rest = sender.offer(lines(0, 500))
    assert rest is not None
    assert len(sender.sealed) == PARTITION_WINDOW
    for batch in sender.sealed:
        assert len(encode([entry.piece for entry in batch.entries]).payload) <= 200
    assert not sender.outbox.has_room(P, Lane.LIVE)
    while rest is not None:
        for batch in sender.sealed[-PARTITION_WINDOW:]:
            sender.acknowledge(batch)
        rest = sender.offer(rest, now_ms=0)
    assert values(sender.sealed) == list(range(len(values(sender.sealed))))


def test_backfill_leaves_room_for_live_lines() -> None:
    sender = Sender(limit=200)
    assert sender.offer(lines(0, 500), Lane.BACKFILL) is not None
    assert BACKFILL_WINDOW <= len(sender.sealed) < PARTITION_WINDOW
    assert not sender.outbox.has_room(P, Lane.BACKFILL)
    sender.sealed += sender.outbox.seal(0)
    assert sender.outbox.has_room(P, Lane.LIVE)


def test_bytes_in_flight_are_bounded() -> None:
    sender = Sender(limit=10_000, bytes_max=1000)
    sender.offer(lines(0, 200))
    assert not sender.outbox.has_room(P, Lane.LIVE)
    sender.acknowledge(sender.sealed[0])
    assert sender.outbox.is_empty
    assert sender.outbox.has_room(P, Lane.LIVE)


def test_a_refused_batch_goes_again_in_order_before_anything_else() -> None:
    sender = Sender()
    for number in range(4):
        sender.offer(lines(number, 1), now_ms=number * 100)
    first, second, third, fourth = sender.sealed
    sender.outbox.refused(fourth, 300)
    sender.outbox.refused(second, 300)
    assert not sender.outbox.has_room(P, Lane.LIVE)
    assert sender.outbox.fit(P, Piece(KEY, lines(4, 1)), Lane.LIVE)[0] is None
    sender.acknowledge(first)
    assert sender.outbox.seal(10_000) == []
    sender.outbox.refused(third, 310)
    assert sender.outbox.refused_partitions() == [P]
    assert sender.outbox.seal(301) == []
    assert values(sender.outbox.seal(10_000)) == [1, 2, 3]
    assert sender.delivery.lines == 1
    sender.acknowledge(second)
    sender.acknowledge(third)
    sender.acknowledge(fourth)
    assert sender.delivery.lines == 4
    assert sender.outbox.is_empty


def test_a_batch_too_large_for_a_new_limit_is_cut_smaller() -> None:
    sender = Sender(limit=2000)
    sender.offer(lines(0, 100))
    (long_line,) = blocks_of(b"x" * 700 + b"\n")
    sender.offer(long_line, now_ms=100)
    big, single = sender.sealed
    sender.limit = 300
    sender.outbox.refused(big, 200)
    sender.outbox.refused(single, 200)
    again: list[Batch] = []
    while batches := sender.outbox.seal(100_000):
        for batch in batches:
            assert len(encode([entry.piece for entry in batch.entries]).payload) <= 300
            sender.acknowledge(batch)
        again += batches
    found = [v or b"" for b in again for _, v in values_of([e.piece for e in b.entries])]
    assert [int(value) for value in found[:100]] == list(range(100))
    assert b"".join(found[100:]) == b"x" * 700
    assert sender.delivery.outstanding == 0
    assert sender.delivery.lines == 101
    assert sender.outbox.is_empty
