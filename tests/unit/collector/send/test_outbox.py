"""The outbox limits batches, keeps their order, and holds them in memory until they are committed.
A failing partition does not stop the others."""

from collector.config.settings import BACKFILL_WINDOW, PARTITION_WINDOW, RETRY_MS
from collector.send.outbox import BatchedPiece, SendBatch, SendQueues
from collector.text.encode import Piece, encode
from collector.text.lines import Block
from collector.timing.schedule import ReadQueue
from protocol.types import TopicPartition
from tests.unit.collector.blocks import blocks_of, values_of

P = TopicPartition("t", 0)
Q = TopicPartition("t", 1)
DEAD = TopicPartition("dead", 0)
KEY = b"k"


class Sender:
    """An outbox whose batch limit can change. The test takes its batches."""

    def __init__(self, limit: int = 1000, bytes_max: int = 1 << 20):
        self.limit = limit
        self.outbox = SendQueues(lambda topic: self.limit, bytes_max)

    def offer(
        self,
        block: Block,
        read_queue: ReadQueue = ReadQueue.LIVE,
        place: TopicPartition = P,
        partition: TopicPartition | None = None,
    ) -> Block | None:
        """Put the block into the outbox. Return the part that did not fit."""
        partition = partition or place
        rest: Block | None = block
        while rest is not None:
            taken, rest = self.outbox.fit(place, partition, Piece(KEY, rest), read_queue)
            if taken is None:
                return rest
            self.outbox.put(place, partition, BatchedPiece("g", taken))
        return None

    def take(self, *, everything: bool = True) -> list[SendBatch]:
        return self.outbox.take(everything=everything)

    def commit(self, batches: list[SendBatch]) -> None:
        for batch in batches:
            self.outbox.acknowledged(batch)
            self.outbox.settled(batch)

    def abort(self, batches: list[SendBatch], *suspects: TopicPartition, now_ms: int = 0) -> None:
        for batch in batches:
            self.outbox.given_back(batch, was_acknowledged=False)
        for place in suspects:
            self.outbox.suspect(place, now_ms)


def lines(first: int, count: int) -> Block:
    (block,) = blocks_of(b"".join(b"%06d\n" % i for i in range(first, first + count)))
    return block


def values(batches: list[SendBatch]) -> list[int]:
    return [
        int(value or b"")
        for batch in batches
        for _, value in values_of([entry.piece for entry in batch.entries])
    ]


def test_only_full_batches_leave_before_the_transaction_is_ended() -> None:
    sender = Sender(limit=200)
    assert sender.offer(lines(0, 20)) is None
    full = sender.take(everything=False)
    assert full
    assert all(batch.encoded_bytes_max > 150 for batch in full)
    rest = sender.take()
    assert values(full + rest) == list(range(20))
    assert sender.take() == []


def test_batches_stay_below_the_limit_and_the_window_is_bounded() -> None:
    sender = Sender(limit=200)
    rest = sender.offer(lines(0, 500))
    assert rest is not None
    sent = sender.take(everything=False)
    assert len(sent) == PARTITION_WINDOW
    for batch in sent:
        assert len(encode([entry.piece for entry in batch.entries]).payload) <= 200
    assert not sender.outbox.has_room(P, ReadQueue.LIVE)
    found = list(sent)
    while rest is not None:
        for batch in sent:
            sender.outbox.acknowledged(batch)
        rest = sender.offer(rest)
        sent = sender.take(everything=False)
        found += sent
    found += sender.take()
    assert values(found) == list(range(500))


def test_backfill_leaves_room_for_live_lines() -> None:
    sender = Sender(limit=200)
    assert sender.offer(lines(0, 500), ReadQueue.BACKFILL) is not None
    assert len(sender.take(everything=False)) == BACKFILL_WINDOW
    assert not sender.outbox.has_room(P, ReadQueue.BACKFILL)
    assert sender.outbox.has_room(P, ReadQueue.LIVE)


def test_bytes_are_held_until_the_commit() -> None:
    sender = Sender(limit=10_000, bytes_max=1000)
    sender.offer(lines(0, 200))
    assert not sender.outbox.has_room(P, ReadQueue.LIVE)
    batches = sender.take()
    for batch in batches:
        sender.outbox.acknowledged(batch)
    assert not sender.outbox.has_room(P, ReadQueue.LIVE)
    for batch in batches:
        sender.outbox.settled(batch)
    assert sender.outbox.is_empty
    assert sender.outbox.has_room(P, ReadQueue.LIVE)


def test_an_aborted_transaction_goes_again_in_order_before_anything_else() -> None:
    sender = Sender(limit=200)
    sender.offer(lines(0, 30))
    sent = sender.take()
    sender.offer(lines(30, 5))
    sender.outbox.acknowledged(sent[0])
    sender.outbox.given_back(sent[0], was_acknowledged=True)
    for batch in reversed(sent[1:]):
        sender.outbox.given_back(batch, was_acknowledged=False)
    assert not sender.outbox.has_room(P, ReadQueue.LIVE)
    assert sender.offer(lines(99, 1)) is not None
    again = sender.take()
    assert values(again) == list(range(35))
    # Abort the second transaction as well. It also has the lines that were not in the first one.
    sender.abort(again)
    assert sender.outbox.has_given_back
    last = sender.take()
    assert values(last) == list(range(35))
    sender.commit(last)
    assert sender.outbox.is_empty


def test_dead_letters_share_the_fate_of_their_lane() -> None:
    sender = Sender()
    sender.offer(lines(0, 1))
    sender.offer(lines(1, 1), partition=DEAD)
    sender.offer(lines(2, 1), place=Q)
    sent = sender.take()
    assert {(batch.place, batch.partition) for batch in sent} == {(P, P), (P, DEAD), (Q, Q)}
    sender.abort(sent, P, now_ms=0)
    sender.outbox.begin(0)
    assert values(sender.take()) == [2]
    sender.outbox.begin(RETRY_MS[0])
    assert sender.outbox.is_trial
    assert sorted(values(sender.take())) == [0, 1]


def test_a_suspect_lane_is_tried_alone_and_the_others_between() -> None:
    sender = Sender()
    sender.offer(lines(0, 1))
    sender.offer(lines(1, 1), place=Q)
    sender.abort(sender.take(), P, now_ms=0)
    assert sender.outbox.suspects() == [P]
    assert sender.outbox.retry_at_ms == RETRY_MS[0]
    assert not sender.outbox.covers(P)
    assert not sender.outbox.has_room(P, ReadQueue.LIVE)
    sender.outbox.begin(RETRY_MS[0])
    trial = sender.take()
    assert (values(trial), sender.outbox.covers(P), sender.outbox.covers(Q)) == ([0], True, False)
    sender.abort(trial, P, now_ms=RETRY_MS[0])
    sender.outbox.begin(10**6)
    assert not sender.outbox.is_trial, "the others were not heard yet"
    sender.commit(sender.take())
    sender.outbox.begin(10**6)
    sender.commit(sender.take())
    assert sender.outbox.suspects() == []
    assert sender.outbox.is_empty
    assert sender.outbox.has_room(P, ReadQueue.LIVE)


def test_a_batch_too_large_for_a_new_limit_is_cut_smaller() -> None:
    sender = Sender(limit=2000)
    sender.offer(lines(0, 100))
    (long_line,) = blocks_of(b"x" * 700 + b"\n")
    sender.offer(long_line)
    sent = sender.take()
    sender.limit = 300
    sender.abort(sent, P, now_ms=0)
    sender.outbox.begin(10**6)
    again = sender.take()
    for batch in again:
        assert len(encode([entry.piece for entry in batch.entries]).payload) <= 300
    found = [v or b"" for b in again for _, v in values_of([e.piece for e in b.entries])]
    assert [int(value) for value in found[:100]] == list(range(100))
    assert b"".join(found[100:]) == b"x" * 700
    sender.commit(again)
    assert sender.outbox.is_empty
