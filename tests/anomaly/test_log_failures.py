"""The log on a disk whose calls fail, on a disk that is full at every byte, and through power cuts.

As in SQLite's tests, a scenario runs with its n-th call failing, for n = 1, 2, 3, ... until no call
fails. Three things must always hold. Acknowledged (flushed) records are unchanged and at their
offsets. There are no records that were never appended. The log accepts more records afterwards.
"""

from __future__ import annotations

import pytest

from broker.storage.errors import CorruptionError, DiskError
from broker.storage.log_manager import LogManager
from broker.storage.producer_state import BATCHES_KEPT
from protocol.errors import ApiError
from protocol.wire.records import read_header
from tests.harness.seed import seeded
from tests.unit.storage.kit import (
    DIRECTORY_ID,
    NOW,
    TOPIC_ID,
    TP,
    Node,
    batch,
    batches_of,
    retain,
    values_of,
)

SETTINGS = {"log.index.interval.bytes": 150, "log.segment.bytes": 700}


class Writer:
    """Appends numbered records to a log. It remembers which records must exist and which may
    exist."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.acknowledged: list[bytes] = []
        """The values below the end offset of the last flush, in the order of their offsets."""
        self.written: list[bytes] = []
        """The values of all successful writes, in the order of their offsets."""
        self.attempted: set[bytes] = set()
        self._next = 0

    def write(self, count: int = 1) -> None:
        """Append some batches together. Raises DiskError if no batch was written."""
        values = [b"%06d" % (self._next + number) * 12 for number in range(count)]
        self._next += count
        self.attempted.update(values)
        log = self.node.log
        before = standing(self.node)
        for value in values:
            view = batch(value)
            log.append(view, read_header(view), 0, NOW)
        try:
            log.write_staged(NOW)
        except DiskError:
            assert standing(self.node) == before
            raise
        self.written += values

    def flush(self) -> None:
        target = self.node.log.flush_target()
        if target is None:
            return
        target.perform()
        self.node.log.flushed(target)
        assert self.node.log.recovery_point == len(self.written)
        self.acknowledged = self.written.copy()

    def check(self) -> None:
        """Check the records of the reopened log, and continue with what was found."""
        found = [value or b"" for value in values_of(self.node.log)]
        assert found[: len(self.acknowledged)] == self.acknowledged
        assert self.attempted.issuperset(found)
        assert len(set(found)) == len(found)
        offsets = [read_header(one).base_offset for one in batches_of(self.node.log)]
        assert offsets == list(range(self.node.log.log_end_offset))
        assert self.node.log.recovery_point == self.node.log.log_end_offset
        self.acknowledged = found.copy()
        self.written = found.copy()


def standing(node: Node) -> tuple[object, ...]:
    log = node.log
    return log.log_end_offset, log.size_bytes, log.recovery_point, len(log.segments)


def scenario(writer: Writer) -> None:
    """Write, roll, flush, apply retention and write checkpoints in a fixed order."""
    node = writer.node
    for number in range(12):
        writer.write(1 + number % 3)
        if number % 3 == 2:
            writer.flush()
        if number % 5 == 4:
            node.manager.checkpoint().perform()


def test_any_one_failing_call_leaves_a_sound_log() -> None:
    """After the n-th call has failed, the writer continues as the broker does, and then the power
    is cut."""
    chance = seeded("any_one_failing_call_leaves_a_sound_log")
    failing = 0
    while True:
        failing += 1
        node = Node(SETTINGS)
        writer = Writer(node)
        failing_call = node.sim.calls + failing
        node.sim.fail_at = failing_call
        try:
            scenario(writer)
        except DiskError as error:
            if not error.is_flush:
                # Only a failed flush ends the log's life. After any other failure the log accepts
                # more batches.
                node.sim.fail_at = None
                writer.write(2)
                writer.flush()
        if node.sim.calls < failing_call:
            break
        node.sim.fail_at = None
        report = node.crash(chance)
        assert report.offline == {}, (failing, report)
        writer.check()
        writer.write(3)
        writer.flush()
        assert node.restart().was_clean
        writer.check()
    assert failing > 50


def test_a_disk_that_refuses_everything_for_a_while_leaves_a_sound_log() -> None:
    for failing in range(1, 60):
        node = Node(SETTINGS)
        writer = Writer(node)
        node.sim.fail_at, node.sim.fails_on = node.sim.calls + failing, True
        refused = 0
        for number in range(12):
            try:
                writer.write(1 + number % 3)
            except DiskError:
                refused += 1
            if refused == 3:
                node.sim.fail_at = None
        node.sim.fail_at = None
        writer.write()
        writer.flush()
        assert [value or b"" for value in values_of(node.log)] == writer.written
        node.reopen()
        writer.check()


def test_any_failing_call_while_opening_is_survived_by_opening_again() -> None:
    chance = seeded("any_failing_call_while_opening_is_survived_by_opening_again")
    node = Node(SETTINGS)
    writer = Writer(node)
    scenario(writer)
    node.sim.contents(node.log.segments.active.log_path)[-5:] = b"torn!"
    for failing in range(1, 200):
        node.manager.release()
        node.sim.fail_at = node.sim.calls + failing
        try:
            node.manager = LogManager(node.disk, node.config, DIRECTORY_ID)
            report = node.manager.open_all(NOW)
        except DiskError:
            node.sim.locked.clear()
            report = None
        is_through = node.sim.calls < node.sim.fail_at
        node.sim.fail_at = None
        if report is not None and is_through:
            break
        if failing % 2:
            node.sim.crash(chance)
            node.sim.locked.clear()
    else:
        raise AssertionError("opening never came through")
    node.reopen()
    writer.check()
    assert failing > 10


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_a_disk_that_is_full_at_any_byte_leaves_a_sound_log(step: int) -> None:
    """A write fails on a full disk without losing records, and writes resume once there is space.
    Trying every byte takes most of a minute, so only the long form does. The short form steps by a
    prime below the size of a batch, so each batch is cut at a different byte.
    """
    # An upper bound for the bytes of the twelve writes: two batches each, with their index entries.
    needed = 12 * 2 * 150
    for room in range(0, needed, step):
        node = Node(SETTINGS)
        writer = Writer(node)
        writer.write(2)
        writer.flush()
        node.sim.capacity_bytes = node.sim.used_bytes() + room
        full = 0
        for number in range(12):
            try:
                writer.write(1 + number % 3)
            except DiskError as error:
                assert error.is_full
                full += 1
        writer.flush()
        assert [value or b"" for value in values_of(node.log)] == writer.written
        if full:
            with pytest.raises(DiskError):
                writer.write(40)
        node.sim.capacity_bytes = None
        writer.write(3)
        writer.flush()
        node.reopen()
        writer.check()


def test_power_cuts_at_random_lose_nothing_acknowledged() -> None:
    """Each random history of a log ends with a power cut or a restart at a random moment."""
    chance = seeded("power_cuts_at_random_lose_nothing_acknowledged")
    for run in range(40):
        node = Node(SETTINGS)
        writer = Writer(node)
        for _ in range(8):
            for _ in range(chance.randint(0, 15)):
                act = chance.choices(["write", "flush", "checkpoint"], [5, 3, 1])[0]
                if act == "write":
                    writer.write(chance.randint(1, 4))
                elif act == "flush":
                    writer.flush()
                else:
                    node.manager.checkpoint().perform()
            report = node.crash(chance) if chance.random() < 0.8 else node.restart()
            assert report.offline == {}, (run, report)
            writer.check()
            again = values_of(node.log)
            assert node.reopen().truncated == []
            assert values_of(node.log) == again


def test_power_cuts_forget_no_producer_of_an_acknowledged_batch() -> None:
    chance = seeded("power_cuts_forget_no_producer_of_an_acknowledged_batch")
    for run in range(30):
        node = Node(SETTINGS)
        acknowledged: dict[int, int] = {}
        written: dict[int, int] = {}
        for _ in range(chance.randint(1, 30)):
            producer = chance.randint(1, 3)
            sequence = written.get(producer, -1) + 1
            node.put(batch(b"x" * 40, producer=(producer, 0, sequence)))
            written[producer] = sequence
            if chance.random() < 0.4:
                node.flush()
                acknowledged = written.copy()
        node.crash(chance)
        for producer, last in acknowledged.items():
            for sequence in range(max(last - 1, 0), last + 1):
                one = batch(b"x" * 40, producer=(producer, 0, sequence))
                try:
                    (done,) = node.put(one)
                except ApiError:
                    # The sequence is too old: the log remembers only the last batches of a
                    # producer, and batches that were written but not acknowledged can have survived
                    # too.
                    assert written[producer] - sequence >= BATCHES_KEPT
                    continue
                assert done.is_duplicate, (run, producer, sequence)


def test_a_deletion_cut_short_never_brings_half_a_partition_back() -> None:
    chance = seeded("a_deletion_cut_short_never_brings_half_a_partition_back")
    for _ in range(60):
        node = Node(SETTINGS)
        writer = Writer(node)
        scenario(writer)
        if chance.random() < 0.5:
            node.manager.checkpoint().perform()
        node.sim.fail_at = node.sim.calls + chance.randint(1, 12)
        try:
            dropped = node.manager.delete(TP)
            if dropped is not None:
                dropped.perform()
        except DiskError:
            pass
        node.sim.fail_at = None
        node.crash(chance)
        assert node.manager.offline == {}
        if node.manager.get(TP) is None:
            node.log = node.manager.create(TP, TOPIC_ID, node.log_config, NOW)
            node.put(batch(b"new"))
            assert values_of(node.log) == [b"new"]
        else:
            writer.check()


def test_retention_cut_short_leaves_no_gap() -> None:
    chance = seeded("retention_cut_short_leaves_no_gap")
    for run in range(80):
        node = Node(SETTINGS, topic={"retention.bytes": "1500"})
        writer = Writer(node)
        scenario(writer)
        scenario(writer)
        writer.flush()
        node.log.advance_high_watermark(node.log.recovery_point)
        end = node.log.log_end_offset
        node.sim.fail_at = node.sim.calls + chance.randint(1, 30)
        try:
            dropped = retain(node, NOW)
            if dropped is not None and chance.random() < 0.7:
                dropped.perform()
            if chance.random() < 0.5:
                node.manager.checkpoint().perform()
        except DiskError:
            pass
        node.sim.fail_at = None
        start = node.log.log_start_offset
        try:
            report = node.crash(chance)
        except CorruptionError as error:
            raise AssertionError(f"run {run}") from error
        assert report.offline == {}, (run, report)
        assert node.log.log_end_offset == end
        assert node.log.log_start_offset <= start
        found = values_of(node.log)
        assert found == writer.written[node.log.log_start_offset :]
