"""The effects of a single failed write on the log, its indexes and the next start."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from pytest import MonkeyPatch

from broker.storage import recovery
from broker.storage.errors import DiskError
from protocol.wire.records import iterate_batches, read_header
from tests.unit.storage.kit import EVERYTHING, NOW, TP, Node, batch, batches_of, values_of

SETTINGS = {"log.index.interval.bytes": 100, "log.segment.bytes": 700}


def stage(node: Node, values: Sequence[bytes]) -> None:
    for value in values:
        view = batch(value)
        node.log.append(view, read_header(view), 0, NOW)


def fail_write_number(node: Node, number: int, values: Sequence[bytes]) -> None:
    """Append each of `values`, and let only write number `number` to a log file fail."""
    writes = 0

    def refuses(path: str, operation: str) -> bool:
        nonlocal writes
        writes += operation == "write" and path.endswith(".log")
        return writes == number and operation == "write" and path.endswith(".log")

    stage(node, values)
    node.sim.refuses = refuses
    with pytest.raises(DiskError):
        node.log.write_staged(NOW)
    node.sim.refuses = None


def sizes(node: Node) -> int:
    """Return the total size of the log files without the zeros at the end of preallocated files.

    The last byte of every batch is a zero too, because its last record has no headers. So one byte
    per file is added again.
    """
    found = 0
    for name in node.names():
        if name.endswith(".log") and (data := node.sim.contents(node.path(name)).rstrip(b"\0")):
            found += len(data) + 1
    return found


def test_a_failed_write_is_cut_off_at_once() -> None:
    node = Node(SETTINGS)
    node.put(batch(b"good"))
    stage(node, [b"bad" * 20])
    node.sim.fail_at = node.sim.calls + 1
    with pytest.raises(DiskError):
        node.log.write_staged(NOW)
    assert sizes(node) == node.log.size_bytes
    assert values_of(node.log) == [b"good"]


def test_segments_of_a_failed_write_are_removed_at_once() -> None:
    node = Node(SETTINGS)
    node.put(batch(b"good"))
    fail_write_number(node, 3, [b"bad" * 100] * 6)
    assert [name for name in node.names() if name.endswith(".log")] == [f"{0:020d}.log"]
    assert sizes(node) == node.log.size_bytes
    assert len(node.log.segments) == 1


def test_nothing_is_written_over_left_overs_that_could_not_be_cut() -> None:
    node = Node(SETTINGS)
    node.put(batch(b"good"))
    stage(node, [b"bad" * 60])
    node.sim.fail_at, node.sim.fails_on = node.sim.calls + 1, True
    with pytest.raises(DiskError):
        node.log.write_staged(NOW)
    left = node.sim.contents(node.segment_path())[node.log.size_bytes :]
    assert left.rstrip(b"\0")
    stage(node, [b"no"])
    with pytest.raises(DiskError):
        node.log.write_staged(NOW)
    node.sim.fail_at = None
    node.put(batch(b"short"))
    assert sizes(node) == node.log.size_bytes
    assert values_of(node.log) == [b"good", b"short"]
    assert node.reopen().truncated == []


def test_indexes_and_boundaries_of_a_failed_write_are_forgotten() -> None:
    node = Node(SETTINGS)
    node.put(batch(b"good"))
    # The first segment takes some batches and is rolled. Then the write to the next segment fails.
    fail_write_number(node, 2, [b"bad%d" % number * 20 for number in range(9)])
    node.put(batch(*[b"wide"] * 12))
    for offset in range(node.log.log_end_offset):
        region = node.log.read(offset, EVERYTHING, EVERYTHING).region
        assert region is not None
        first, _ = next(iterate_batches(region.read()))
        assert first.base_offset <= offset <= first.last_offset
    for number in range(30):
        node.put(batch(b"%03d" % number * 15))
    node.flush()
    stored = batches_of(node.log)
    node.manager.close_clean()
    written = {
        name: bytes(node.sim.contents(node.path(name)))
        for name in node.names()
        if name.endswith("index")
    }
    for name in written:
        node.disk.unlink(node.path(name))
    node.reopen()
    assert batches_of(node.log) == stored
    for name, data in written.items():
        assert bytes(node.sim.contents(node.path(name))) == data, name


def test_recovered_records_survive_the_next_power_cut() -> None:
    for seed in range(30):
        node = Node(SETTINGS)
        for number in range(8):
            node.put(batch(b"%d" % number * 50))
        node.reopen()
        assert node.log.recovery_point == 8
        node.crash(random.Random(seed))
        assert len(values_of(node.log)) == 8


def test_a_power_cut_after_a_clean_start_is_not_taken_for_a_clean_stop() -> None:
    for seed in range(30):
        node = Node(SETTINGS)
        node.put(batch(b"a"))
        assert node.restart().was_clean
        node.put(batch(b"b"))
        report = node.crash(random.Random(seed))
        assert not report.was_clean
        assert TP not in report.offline


def test_kafka_10471_a_death_while_logs_are_loaded_is_not_taken_for_a_clean_stop() -> None:
    """The marker of a clean stop must be deleted before logs are loaded. Otherwise the next start
    would trust logs that the first start was changing when it died."""
    for is_power_cut in (False, True):
        node = Node(SETTINGS)
        node.put(batch(b"a"))
        node.manager.close_clean()
        with MonkeyPatch.context() as patch:
            patch.setattr(recovery, "load", dying)
            with pytest.raises(KeyboardInterrupt):
                node.reopen()
        report = node.crash(random.Random(1)) if is_power_cut else node.reopen()
        assert not report.was_clean
        assert values_of(node.log) == [b"a"]


def dying(*loaded: object) -> None:
    raise KeyboardInterrupt
