"""Producer snapshots and transaction indexes: when they are written, trusted, rejected and
rebuilt."""

from __future__ import annotations

import random
import struct

import pytest

from broker.storage import producer_snapshot, txn_index
from broker.storage.errors import DiskError
from broker.storage.producer_snapshot import ProducerSnapshot, SnapshotEntry
from broker.storage.producer_state import BATCHES_KEPT, ProducerStateManager
from broker.storage.txn_index import AbortedEntry
from protocol.wire.crc32c import crc32c
from protocol.wire.records import read_header
from tests.unit.storage.kit import EVERYTHING, MANY, NOW, Node, batch, retain, values_of

DAY = 86_400_000
SMALL = {"log.segment.bytes": 600, "log.index.interval.bytes": 100}


def entry(producer: int, epoch: int, sequence: int, offset: int, *, txn: int = -1) -> SnapshotEntry:
    return SnapshotEntry(producer, epoch, sequence, offset, 0, NOW, -1, txn)


def packed(*entries: SnapshotEntry) -> bytes:
    body = struct.pack(">i", len(entries))
    body += b"".join(struct.pack(">qhiqiqiq", *one) for one in entries)
    return struct.pack(">hI", 1, crc32c(body)) + body


def lived(node: Node, count: int = 40) -> None:
    """Append batches of two idempotent producers, and of a third whose transactions commit, abort
    and stay open."""
    for number in range(count):
        value = b"%03d" % number * 10
        node.put(batch(value, producer=(number % 2, 0, number // 2)))
        if number % 4 == 0:
            node.put(batch(value, producer=(9, 0, number // 4), is_transactional=True))
        if number % 8 == 7 and number < count - 1:
            node.log.append_marker(9, 0, number % 16 == 7, number // 8, 0, NOW)
            node.log.write_staged(NOW)
    node.flush()


def told(node: Node) -> tuple[object, ...]:
    log = node.log
    log.advance_high_watermark(EVERYTHING)
    return (
        {number: one.batches for number, one in log.producer_state.producers.items()},
        sorted(log.producer_state.active()),
        log.last_stable_offset,
        [log.aborted_transactions(start, EVERYTHING) for start in range(0, log.log_end_offset, 5)],
    )


def files(node: Node, *suffixes: str) -> dict[str, bytes]:
    return {
        name: bytes(node.sim.contents(node.path(name)))
        for name in node.names()
        if name.endswith(suffixes)
    }


def test_a_snapshot_is_kafkas_file() -> None:
    state = ProducerStateManager(DAY, MANY)
    header = read_header(batch(b"a", b"b", producer=(7, 3, 4), timestamp_ms=NOW))
    state.update(header, 100, NOW, NOW)
    data = ProducerSnapshot(state, 102).encode()
    assert data == packed(SnapshotEntry(7, 3, 5, 101, 1, NOW, -1, -1))
    assert producer_snapshot.decode(data) == [SnapshotEntry(7, 3, 5, 101, 1, NOW, -1, -1)]


def test_a_snapshot_brings_back_all_batches() -> None:
    state = ProducerStateManager(DAY, MANY)
    count = BATCHES_KEPT + 2
    for number in range(count):
        state.update(read_header(batch(b"a", producer=(7, 0, number))), number, NOW, NOW)
    data = ProducerSnapshot(state, count).encode()
    back = producer_snapshot.restore(producer_snapshot.decode(data), DAY, MANY, NOW)
    assert back.producers[7].batches == state.producers[7].batches


def test_how_many_producers_a_log_remembers_is_a_setting_of_the_node() -> None:
    node = Node({"max.producers.per.partition": 3})

    def remembered(*new: int) -> list[int]:
        for producer_id in new:
            node.put(batch(b"v", producer=(producer_id, 0, 0)))
        node.flush()
        return list(node.log.producer_state.producers)

    assert remembered(1, 2, 3, 4) == [2, 3, 4]
    node.reopen()
    assert remembered(5) == [3, 4, 5]
    node.restart()
    assert remembered(6) == [4, 5, 6]
    node.truncate(5)
    assert remembered(7, 8, 9, 10) == [8, 9, 10]


def test_pitfall_44_a_snapshot_is_reloaded_in_the_order_of_epochs() -> None:
    """The entry with the newest epoch counts, whatever the order in the file is."""
    rows = [entry(7, 2, 0, 50, txn=50), entry(7, 1, 9, 40), entry(7, 2, 1, 51, txn=50)]
    for order in (rows, rows[::-1], rows[1:] + rows[:1]):
        state = producer_snapshot.restore(producer_snapshot.decode(packed(*order)), DAY, MANY, NOW)
        assert state.producers[7].producer_epoch == 2
        assert [one[1] for one in state.producers[7].batches] == [0, 1]
        assert state.transactions.open == {7: 50}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        packed(entry(7, 0, 0, 0))[:-1],
        packed(entry(7, 0, 0, 0)) + b"\0",
        b"\0\2" + packed(entry(7, 0, 0, 0))[2:],
        packed(entry(7, 0, 0, 0))[:-1] + b"\1",
    ],
)
def test_a_damaged_snapshot_is_no_snapshot(data: bytes) -> None:
    with pytest.raises(ValueError):
        producer_snapshot.decode(data)


def test_a_transaction_index_is_kafkas_file() -> None:
    entries = [AbortedEntry(7, 10, 14, 12), AbortedEntry(8, 12, 19, 20)]
    data = txn_index.encode(entries)
    assert data == b"".join(struct.pack(">hqqqq", 0, *one) for one in entries)
    assert txn_index.decode(data, 10, 20) == entries
    for wrong in (data[:-1], b"\0\1" + data[2:], data[34:] + data[:34]):
        with pytest.raises(ValueError):
            txn_index.decode(wrong, 10, 20)
    for base_offset, next_offset in ((15, 20), (10, 19)):
        with pytest.raises(ValueError):
            txn_index.decode(data, base_offset, next_offset)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_by_snapshot_equals_one_by_the_batches(is_clean: bool) -> None:
    node = Node(SMALL)
    lived(node)
    before = told(node)
    written = files(node, ".txnindex")
    assert len(written) > 1
    node.manager.checkpoint().perform()
    for _ in range(2):
        if is_clean:
            node.restart()
            assert not any(one.was_walked for one in node.log.segments)
        else:
            node.reopen()
            assert sum(one.was_walked for one in node.log.segments) == 1
        assert told(node) == before
    for name in node.names():
        if name.endswith(".snapshot"):
            node.disk.unlink(node.path(name))
    node.reopen()
    assert all(one.was_walked for one in node.log.segments)
    assert told(node) == before
    assert files(node, ".txnindex") == written


@pytest.mark.parametrize("damage", ["flipped", "short", "empty"])
@pytest.mark.parametrize("which", ["newest", "all"])
def test_a_damaged_snapshot_is_rebuilt_from_the_batches(damage: str, which: str) -> None:
    node = Node(SMALL)
    lived(node)
    before = told(node)
    node.manager.close_clean()
    names = sorted(files(node, ".snapshot"))
    for name in names if which == "all" else names[-1:]:
        content = node.sim.contents(node.path(name))
        if damage == "flipped":
            content[-3] ^= 1
        else:
            del content[0 if damage == "empty" else len(content) // 2 :]
    node.reopen()
    assert told(node) == before
    node.restart()
    assert told(node) == before
    assert not any(one.was_walked for one in node.log.segments)


@pytest.mark.parametrize("damage", ["short", "moved", "empty"])
def test_a_damaged_transaction_index_is_rebuilt_from_the_batches(damage: str) -> None:
    node = Node(SMALL)
    lived(node)
    before = told(node)
    node.manager.close_clean()
    written = files(node, ".txnindex")
    for name in written:
        content = node.sim.contents(node.path(name))
        if damage == "short":
            del content[-1:]
        elif damage == "moved":
            content[18] ^= 1
        else:
            content.clear()
    node.reopen()
    assert told(node) == before
    assert files(node, ".txnindex") == written


def test_snapshots_go_with_their_segments_and_strays_at_the_next_start() -> None:
    node = Node(SMALL, topic={"retention.bytes": "1500", "file.delete.delay.ms": "0"})
    for number in range(40):
        node.put(batch(b"%03d" % number * 10, producer=(1, 0, number)))
        node.flush()
    node.restart()
    node.put(batch(b"more", producer=(1, 0, 40)))
    node.flush()
    dropped = retain(node, NOW)
    assert dropped is not None
    dropped.perform()
    node.restart()
    bases = {f"{one.base_offset:020d}.snapshot" for one in node.log.segments}
    # The snapshot of the earlier stop is removed, because it neither belongs to a segment nor is
    # the newest.
    assert f"{40:020d}.snapshot" not in files(node, ".snapshot")
    assert set(files(node, ".snapshot")) - bases == {f"{41:020d}.snapshot"}


def test_a_snapshot_below_the_first_segment_is_not_believed() -> None:
    """There can have been markers between the snapshot and the first segment, in segments that are
    deleted. So the snapshot can name a transaction that has ended."""
    node = Node(SMALL, topic={"retention.bytes": "1500", "file.delete.delay.ms": "0"})
    node.put(batch(b"v", producer=(9, 0, 0), is_transactional=True))
    for number in range(20):
        node.put(batch(b"%03d" % number * 10, producer=(1, 0, number)))
    node.log.append_marker(9, 0, True, 0, 0, NOW)
    node.log.write_staged(NOW)
    for number in range(20, 60):
        node.put(batch(b"%03d" % number * 10, producer=(1, 0, number)))
        node.flush()
    stale = next(name for name in files(node, ".snapshot"))
    data = node.disk.read_all(node.path(stale))
    dropped = retain(node, NOW)
    assert dropped is not None
    dropped.perform()
    node.manager.close_clean()
    for name in files(node, ".snapshot"):
        node.disk.unlink(node.path(name))
    node.disk.replace(node.path(stale), data, is_durable=True)
    node.reopen()
    assert node.log.producer_state.transactions.open == {}
    assert stale not in files(node, ".snapshot")


def test_a_snapshot_beyond_the_end_is_not_believed() -> None:
    node = Node(SMALL)
    lived(node, 20)
    node.manager.checkpoint().perform()
    node.truncate(15)
    node.manager.checkpoint().perform()
    assert all(int(name[:20]) <= 15 for name in files(node, ".snapshot"))
    node.restart()
    assert node.log.log_end_offset == 15


def test_producers_of_a_failed_roll_are_not_remembered() -> None:
    node = Node(SMALL)
    for number in range(40):
        view = batch(b"%03d" % number * 10, producer=(1, 0, number))
        node.log.append(view, read_header(view), 0, NOW)
    node.sim.refuses = lambda path, operation: operation == "write" and path.endswith(".log")
    with pytest.raises(DiskError):
        node.log.write_staged(NOW)
    node.sim.refuses = None
    node.put(batch(b"only", producer=(1, 0, 0)))
    node.flush()
    assert not [name for name in files(node, ".snapshot") if int(name[:20]) > 1]
    node.restart()
    assert values_of(node.log) == [b"only"]


def test_an_index_that_cannot_be_written_is_not_trusted() -> None:
    """The disk is full when the transaction index is written. No snapshot may be written then,
    because a snapshot makes the next start trust the index."""
    node = Node(SMALL)
    node.sim.refuses = lambda path, operation: operation == "write" and "txnindex" in path
    lived(node)
    before = told(node)
    assert not files(node, ".snapshot")
    node.manager.checkpoint().perform()
    node.sim.refuses = None
    node.reopen()
    assert told(node) == before


def test_a_producer_whose_batches_were_dropped_survives_a_power_cut() -> None:
    for seed in range(40):
        node = Node(topic={"segment.bytes": "200"})
        node.put(batch(b"of the producer", producer=(7, 0, 0)))
        node.put(batch(b"unrelated" * 10))
        node.flush()
        node.log.advance_log_start(1)
        node.manager.checkpoint().perform()
        assert node.log.segments.last_base_offset == 1
        node.crash(random.Random(seed))
        assert node.log.segments.start_offset == 1
        (retry,) = node.put(batch(b"of the producer", producer=(7, 0, 0)))
        assert retry.is_duplicate, seed


def test_what_retention_has_dropped_is_not_waited_for() -> None:
    """A flush must not wait for the transaction index of a deleted segment, or for a snapshot below
    the log start."""
    node = Node(SMALL, topic={"retention.bytes": "0"})
    node.sim.refuses = lambda path, operation: ".txnindex" in path
    lived(node)
    for _ in range(8):
        node.put(batch(b"x" * 200))
    node.log.advance_high_watermark(EVERYTHING)
    assert retain(node, NOW) is not None
    node.sim.refuses = None
    node.flush()
    assert node.log.flush_target() is None
    bases = {f"{one.base_offset:020d}" for one in node.log.segments}
    assert {name.partition(".")[0] for name in files(node, ".txnindex", ".snapshot")} <= bases
    node.restart()
    assert len(files(node, ".snapshot")) == 1
