"""Opening a log after a clean stop, after a crash, and with damage at any place."""

from __future__ import annotations

import random

import pytest

from broker.storage.errors import DiskError
from broker.storage.log import Log
from broker.storage.recovery import LoadRules, load
from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import read_header
from tests.unit.protocol.examples import SEED
from tests.unit.storage.kit import (
    EVERYTHING,
    FOLDER,
    NOW,
    TP,
    Node,
    batch,
    batches_of,
    records_of,
    values_of,
)

DAY = 86_400_000
FINE = {"log.index.interval.bytes": 100, "log.segment.bytes": 600}


def filled(count: int = 20, settings: dict[str, object] | None = None) -> Node:
    node = Node(FINE if settings is None else settings)
    for number in range(count):
        node.put(
            batch(b"%03d" % number * 10, timestamp_ms=NOW + number, producer=(7, 0, number)),
            leader_epoch=number // 8,
        )
    return node


def index_files(node: Node) -> dict[str, bytes]:
    return {
        name: bytes(node.sim.contents(node.path(name)))
        for name in node.names()
        if name.endswith("index")
    }


def standing(log: Log) -> dict[str, object]:
    return {
        "start": log.log_start_offset,
        "end": log.log_end_offset,
        "size": log.size_bytes,
        "epochs": log.leader_epochs.entries,
        "producers": {
            number: (producer.producer_epoch, producer.batches)
            for number, producer in log.producer_state.producers.items()
        },
        "segments": [
            (one.base_offset, one.next_offset, one.largest_timestamp_ms, one.size_bytes)
            for one in log.segments
        ],
        "values": values_of(log),
        "newest": log.max_timestamp_record(EVERYTHING),
    }


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_changes_nothing(is_clean: bool) -> None:
    node = filled()
    node.flush()
    before = standing(node.log)
    report = node.restart() if is_clean else node.reopen()
    assert report.was_clean is is_clean
    assert (report.truncated, report.offline) == ([], {})
    assert standing(node.log) == before
    assert node.log.recovery_point == 20


def test_a_crash_of_the_process_alone_loses_nothing() -> None:
    node = filled()
    node.reopen()
    assert len(values_of(node.log)) == 20
    assert node.log.recovery_point == 20


def test_a_retry_is_recognised_after_every_kind_of_restart() -> None:
    node = filled()
    node.flush()
    for restart in (node.restart, node.reopen, node.restart):
        restart()
        for number in range(15, 20):
            again = batch(b"%03d" % number * 10, producer=(7, 0, number))
            (done,) = node.put(again, leader_epoch=2)
            assert (done.base_offset, done.is_duplicate) == (number, True)
        with pytest.raises(ApiError) as refusal:
            node.put(batch(b"gap", producer=(7, 0, 22)), leader_epoch=2)
        assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    node.put(batch(b"next", producer=(7, 0, 20)), leader_epoch=2)
    assert values_of(node.log)[-1] == b"next"


def test_a_retry_of_a_batch_the_log_stamped_gets_the_same_time_after_a_restart() -> None:
    node = Node({"log.message.timestamp.type": "LogAppendTime"})
    (first,) = node.put(batch(b"a", producer=(7, 0, 0)), now_ms=NOW + 3)
    node.flush()
    node.restart()
    (again,) = node.put(batch(b"a", producer=(7, 0, 0)), now_ms=NOW + 9)
    assert again.log_append_time_ms == first.log_append_time_ms == NOW + 3


def test_a_tail_torn_at_any_byte_is_cut_at_the_last_whole_batch() -> None:
    node = filled(3, {})
    node.flush()
    node.manager.checkpoint().perform()
    good = values_of(node.log)
    start = node.log.size_bytes
    node.put(batch(b"the last one", producer=(7, 0, 3)))
    whole = bytes(node.sim.contents(node.segment_path())[: node.log.size_bytes])
    for size in range(start, len(whole)):
        for junk in (b"", bytes(len(whole) - size), b"\xff" * (len(whole) - size)):
            torn = whole[:size] + junk
            if torn == whole:
                continue
            node.sim.contents(node.segment_path())[:] = torn
            report = node.reopen()
            assert report.offline == {}
            assert values_of(node.log) == good
            assert node.log.size_bytes == start
            assert len(node.sim.contents(node.segment_path())) == start
            # Zeros after the last batch are preallocated space, so they do not count as lost bytes.
            lost = max(len(torn.rstrip(b"\0")) - start, 0)
            assert [one[1] for one in report.truncated] == ([lost] if lost else [])
            assert node.reopen().truncated == []
    node.sim.contents(node.segment_path())[:] = whole
    node.reopen()
    assert values_of(node.log) == [*good, b"the last one"]


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_a_refused_write_left_below_a_refused_segment_is_checked(is_whole: bool) -> None:
    """A full disk refused a part of a batch, and then the new segment for it. After the power cut,
    the disk has neither the truncation of the old segment nor the removal of the new one."""
    node = filled(3, {})
    node.flush()
    node.manager.checkpoint().perform()
    good, start = values_of(node.log), node.log.size_bytes
    node.put(batch(b"the fourth", producer=(7, 0, 3)))
    if not is_whole:
        node.sim.contents(node.segment_path())[node.log.size_bytes - 1] ^= 1
    node.disk.open(node.segment_path(3), create=True)
    assert node.reopen().offline == {}
    assert values_of(node.log) == ([*good, b"the fourth"] if is_whole else good)
    assert is_whole or node.log.size_bytes == start
    node.flush()
    assert node.reopen().offline == {}


def test_a_flipped_bit_above_the_recovery_point_cuts_from_there() -> None:
    node = filled(20)
    node.flush()
    node.manager.checkpoint().perform()
    for number in range(20, 40):
        node.put(batch(b"%03d" % number * 10, producer=(7, 0, number)), leader_epoch=2)
    holder = next(one for one in node.log.segments if one.base_offset <= 27 < one.next_offset)
    position = holder.locate(27)
    node.sim.contents(holder.log_path)[position + 70] ^= 1
    report = node.reopen()
    assert node.log.log_end_offset == 27
    assert len(report.truncated) == 1
    assert "checksum" in report.truncated[0][2]
    assert standing(node.log)["epochs"] == [(0, 0), (1, 8), (2, 16)]
    (done,) = node.put(batch(b"again", producer=(7, 0, 27)), leader_epoch=2)
    assert not done.is_duplicate
    node.flush()
    node.reopen()
    assert values_of(node.log)[-1] == b"again"


@pytest.mark.parametrize("is_clean", [True, False])
def test_damage_below_the_recovery_point_is_reported_and_kept(is_clean: bool) -> None:
    node = filled(20)
    node.flush()
    node.manager.close_clean()
    if not is_clean:
        node.disk.unlink(f"{FOLDER}/.kafka_cleanshutdown")
    last = node.log.segments.active
    # Damage the length field. After a clean stop recovery skips the checksums but still reads
    # headers.
    node.sim.contents(last.log_path)[8] ^= 0x40
    damaged = {name: bytes(node.sim.contents(node.path(name))) for name in node.names()}
    report = node.reopen()
    assert TP in report.offline
    assert node.manager.get(TP) is None
    assert node.manager.offline[TP] == report.offline[TP]
    assert str(last.base_offset) in report.offline[TP]
    after = {name: bytes(node.sim.contents(node.path(name))) for name in node.names()}
    assert after == damaged
    assert TP in node.reopen().offline


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_shorter_than_its_recovery_point_is_damage(is_clean: bool) -> None:
    node = filled(20)
    node.flush()
    node.manager.close_clean()
    if not is_clean:
        node.disk.unlink(f"{FOLDER}/.kafka_cleanshutdown")
    active = node.log.segments.active
    del node.sim.contents(active.log_path)[active.locate(active.next_offset - 1) :]
    report = node.reopen()
    assert "ends at offset 19" in report.offline[TP]


def test_a_missing_segment_is_damage() -> None:
    node = filled(20)
    node.flush()
    node.manager.checkpoint().perform()
    middle = list(node.log.segments)[1]
    node.disk.unlink(middle.log_path)
    assert "expected" in node.reopen().offline[TP]


def test_a_missing_first_segment_is_damage() -> None:
    node = filled(20)
    node.flush()
    node.manager.close_clean()
    first = next(iter(node.log.segments))
    node.disk.unlink(first.log_path)
    assert "the log start offset is 0" in node.reopen().offline[TP]


def test_all_segments_missing_is_damage() -> None:
    node = filled(20)
    node.flush()
    node.manager.checkpoint().perform()
    for segment in node.log.segments:
        node.disk.unlink(segment.log_path)
    assert "has no segments" in node.reopen().offline[TP]


def test_rebuilt_indexes_equal_the_written_ones() -> None:
    node = filled(60)
    node.flush()
    node.manager.close_clean()
    written = index_files(node)
    assert sum(len(data) for data in written.values()) > 100
    for suffix in (".index", ".timeindex"):
        for name in written:
            if name.endswith(suffix):
                node.disk.unlink(node.path(name))
    node.reopen()
    assert index_files(node) == written


@pytest.mark.parametrize("damage", ["cut", "longer", "flipped", "empty"])
def test_a_damaged_index_is_rebuilt(damage: str) -> None:
    node = filled(60)
    node.flush()
    node.manager.close_clean()
    written = index_files(node)
    for name, data in written.items():
        content = node.sim.contents(node.path(name))
        if damage == "cut":
            del content[len(content) // 2 :]
        elif damage == "longer":
            content.extend(b"\0\0\0")
        elif damage == "flipped" and data:
            content[-1] ^= 0x3F
        elif damage == "empty":
            content.clear()
    node.reopen()
    assert index_files(node) == written
    assert [record.offset for record in records_of(node.log)] == list(range(60))


def walked(node: Node) -> list[bool]:
    return [segment.was_walked for segment in node.log.segments]


def test_a_clean_start_takes_every_segment_by_its_index_files() -> None:
    node = filled(60)
    node.flush()
    before = standing(node.log)
    for _ in range(3):
        node.restart()
        assert not any(walked(node))
        assert standing(node.log) == before
    # Later index entries must not depend on how the segment was opened.
    other = filled(60)
    for one in (node, other):
        for number in range(60, 75):
            view = batch(b"%03d" % number * 10, timestamp_ms=NOW + number, producer=(7, 0, number))
            one.put(view, leader_epoch=7)
        one.flush()
        one.restart()
    assert index_files(node) == index_files(other)


def test_a_start_after_a_crash_walks_from_the_snapshot_below_the_recovery_point() -> None:
    node = filled(60)
    node.flush()
    node.manager.checkpoint().perform()
    before = standing(node.log)
    node.reopen()
    assert walked(node) == [False] * (len(node.log.segments) - 1) + [True]
    assert standing(node.log) == before


@pytest.mark.parametrize("damage", ["missing", "short", "flipped", "stale", "longer"])
def test_an_index_must_prove_itself(damage: str) -> None:
    node = filled(60)
    node.flush()
    node.manager.close_clean()
    written = index_files(node)
    index = node.segment_path(0, ".index")
    content = node.sim.contents(index)
    if damage == "missing":
        node.disk.unlink(index)
        node.disk.unlink(node.segment_path(0, ".timeindex"))
    elif damage == "short":
        del content[8:]
    elif damage == "flipped":
        content[-5] ^= 0xFF
    elif damage == "stale":
        del node.sim.contents(node.segment_path(0, ".timeindex"))[-12:]
    else:
        content.extend(b"\0\0\0\x7f\0\0\0\x7f")
    node.reopen()
    assert [record.offset for record in records_of(node.log)] == list(range(60))
    first = next(iter(node.log.segments))
    assert first.was_walked
    assert index_files(node) == written


def test_a_missing_or_damaged_epoch_file_is_rebuilt_from_the_headers() -> None:
    node = filled(30)
    node.flush()
    node.manager.close_clean()
    path = node.path("leader-epoch-checkpoint")
    written = bytes(node.sim.contents(path))
    for damage in (b"", b"0\n5\n0 0\n", b"0\n1\n0 0\n"):
        node.sim.contents(path)[:] = damage
        node.reopen(NOW)
        assert node.log.leader_epochs.entries == [(0, 0), (1, 8), (2, 16), (3, 24)]
        node.manager.close_clean()
        assert bytes(node.sim.contents(path)) == written
        node.disk.unlink(path)
        node.reopen(NOW)
        assert node.log.leader_epochs.entries == [(0, 0), (1, 8), (2, 16), (3, 24)]
        node.manager.close_clean()


def test_an_epoch_that_goes_back_is_not_believed() -> None:
    node = filled(10, {})
    node.manager.checkpoint().perform()
    position = node.log.segments.active.locate(9)
    # The checksum does not cover the leader epoch.
    node.sim.contents(node.segment_path())[position + 12 : position + 16] = bytes(4)
    report = node.reopen()
    assert node.log.log_end_offset == 9
    assert "epoch" in report.truncated[0][2]


def test_left_overs_are_tidied_away() -> None:
    node = filled(5, {})
    node.flush()
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000099.index",
        "00000000000000000099.timeindex",
        "leader-epoch-checkpoint.tmp",
    ):
        node.disk.open(node.path(name), create=True).write([b"x"], 0)
    node.disk.open(node.path("notes.txt"), create=True)
    node.reopen()
    assert set(node.names()) == {
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "notes.txt",
        "partition.metadata",
    }
    assert len(values_of(node.log)) == 5


def test_segments_below_the_log_start_are_not_needed() -> None:
    node = filled(30)
    node.flush()
    node.log.advance_log_start(20)
    node.manager.checkpoint().perform()
    oldest = next(iter(node.log.segments))
    node.disk.unlink(oldest.log_path)
    node.reopen()
    assert node.log.log_start_offset == 20
    assert node.log.segments.start_offset <= 20
    assert len(values_of(node.log, 20)) == 10


def test_large_batches_are_walked_and_checked() -> None:
    node = Node()
    for number in range(4):
        node.put(batch(bytes([number]) * 700_000))
    node.put(batch(b"small"))
    node.flush()
    before = batches_of(node.log)
    node.reopen()
    assert batches_of(node.log) == before
    node.put(batch(b"big" * 200_000))
    node.sim.contents(node.segment_path())[node.log.size_bytes - 1] ^= 1
    node.reopen()
    assert batches_of(node.log) == before


def test_an_empty_folder_is_an_empty_log() -> None:
    node = Node()
    node.disk.make_folder("/data/other-0")
    rules = LoadRules(
        log_start_offset=0,
        recovery_point=0,
        epochs=[],
        interval_bytes=4096,
        expiration_ms=1,
        producer_count_max=1,
        is_clean=False,
        now_ms=NOW,
    )
    for _ in range(2):
        loaded = load(node.disk, "/data/other-0", rules)
        assert (loaded.log_start_offset, loaded.recovery_point) == (0, 0)
        assert [one.base_offset for one in loaded.segments] == [0]


def test_headers_say_what_was_stored() -> None:
    node = filled(20)
    node.flush()
    node.reopen()
    heads = [read_header(one) for one in batches_of(node.log)]
    assert [head.base_offset for head in heads] == list(range(20))
    assert [head.partition_leader_epoch for head in heads] == [n // 8 for n in range(20)]


def test_what_a_refused_write_left_in_a_segment_that_was_closed_then_does_not_come_back() -> None:
    """The first batch of a write fits into the segment. The second needs a new segment and is
    refused, so both are removed. The next write begins a segment at the offset of the first
    batch."""
    for seed in range(SEED, SEED + 40):
        node = Node(topic={"segment.bytes": "400"})
        node.put(batch(b"a" * 200))
        node.flush()
        node.sim.refuses = lambda path, operation: (
            operation == "write" and path.endswith(("1.log", "2.log"))
        )
        with pytest.raises(DiskError):
            node.put(batch(b"b" * 30), batch(b"c" * 300))
        node.sim.refuses = None
        node.put(batch(b"d" * 300))
        node.flush()
        node.manager.checkpoint().perform()
        report = node.crash(random.Random(seed))
        assert report.offline == {}, f"MILLRACE_SEED={seed}"
        assert values_of(node.log) == [b"a" * 200, b"d" * 300]
