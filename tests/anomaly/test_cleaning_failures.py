"""Compaction on a failing disk and through power cuts never changes what a log's readers see.

Each call to the disk fails once, and a power cut comes at every point of a compaction. Afterwards
the log must open, each key must have its last value, and offsets must not have moved. Producers and
aborted transactions must be unchanged, and the next compaction must succeed.
"""

from __future__ import annotations

import random
from contextlib import suppress

from broker.storage.disk import DiskFile
from broker.storage.errors import DiskError
from broker.storage.log_cleaning import adopt_cleaned, cleaning_failed, plan_cleaning
from protocol.wire.records import iterate_records, read_header
from tests.harness.seed import seeded
from tests.unit.storage.kit import EVERYTHING, NOW, Node, batch, batches_of, records_of

MAP_BYTES = 1 << 20
TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": "900",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
SETTINGS = {"log.index.interval.bytes": 150}


def filled(chance: random.Random, count: int = 40) -> Node:
    """Return a log with few keys, an idempotent producer and aborted and committed transactions.
    About half of these logs have been compacted once."""
    is_cleaned = chance.random() < 0.5
    node = Node(SETTINGS, topic=TOPIC)
    sequence = 0
    for number in range(count):
        key = b"k%d" % chance.randint(0, 7)
        node.put(batch(b"%04d" % number * 9, key=key, producer=(3, 0, number)))
        if number % 5 == 0:
            view = batch(
                b"%04d" % number * 5, key=key, producer=(9, 0, sequence), is_transactional=True
            )
            node.put(view)
            sequence += 1
            node.log.append_marker(9, 0, number % 10 == 0, 0, 0, NOW)
            node.log.write_staged(NOW)
        if number == count // 2:
            node.flush()
            if is_cleaned:
                clean(node)
    node.flush()
    node.manager.checkpoint().perform()
    return node


def clean(node: Node) -> bool:
    """Compact once as the broker does. Return False if there was nothing to compact."""
    job = plan_cleaning(node.log, NOW, MAP_BYTES)
    if job is None:
        return False
    try:
        while not node.manager.clean(node.log, job):
            pass
    except DiskError:
        job.abandon()
        cleaning_failed(node.log, job)
        raise
    adopt_cleaned(node.log, job, NOW).perform()
    node.manager.checkpoint().perform()
    return True


def table(node: Node) -> dict[bytes | None, tuple[int, bytes | None]]:
    """Return the last committed record of each key, with its offset."""
    end_offset = node.log.log_end_offset
    aborted = [
        (one.producer_id, one.first_offset)
        for one in node.log.aborted_transactions(node.log.log_start_offset, end_offset)
    ]
    skipped: set[int] = set()
    found = {}
    for one in batches_of(node.log):
        header = read_header(one)
        skipped |= {number for number, first in aborted if first <= header.last_offset}
        aborted = [entry for entry in aborted if entry[1] > header.last_offset]
        if header.is_control:
            skipped.discard(header.producer_id)
            continue
        if header.producer_id in skipped and header.is_transactional:
            continue
        for record in iterate_records(one):
            found[record.key] = record.offset, record.value
    return found


def told(node: Node) -> tuple[object, ...]:
    log = node.log
    log.advance_high_watermark(EVERYTHING)
    producers = {
        number: (one.producer_epoch, one.batches[-1][1:4])
        for number, one in log.producer_state.producers.items()
    }
    return table(node), log.log_end_offset, log.last_stable_offset, producers


def leftovers(node: Node) -> list[str]:
    return [name for name in node.names() if name.endswith((".cleaned", ".swap", ".deleted"))]


def check(node: Node, before: tuple[object, ...], *context: object) -> None:
    assert told(node) == before, context
    offsets = [record.offset for record in records_of(node.log)]
    assert offsets == sorted(set(offsets)), context
    assert leftovers(node) == [], context
    # The producer must be able to continue with its next sequence, as if nothing had happened.
    known = node.log.producer_state.producers[3]
    next_sequence = known.batches[-1][1] + 1
    for number in range(20):
        node.put(batch(b"later" * 12, key=b"k1", producer=(3, 0, next_sequence + number)))
    node.flush()
    keys = table(node).keys()
    assert clean(node), context
    assert table(node).keys() == keys, context


def test_any_failing_call_leaves_the_log_as_it_was() -> None:
    chance = seeded("any_failing_call_leaves_the_log_as_it_was")
    failing = 0
    while True:
        failing += 1
        node = filled(random.Random(failing))
        before = told(node)
        failing_call = node.sim.calls + failing
        node.sim.fail_at = failing_call
        try:
            clean(node)
        except DiskError as error:
            if not error.is_flush:
                node.sim.fail_at = None
                assert told(node) == before, failing
        if node.sim.calls < failing_call:
            break
        node.sim.fail_at = None
        report = node.crash(chance) if failing % 2 else node.reopen()
        assert report.offline == {}, (failing, report)
        check(node, before, failing)
    assert failing > 60


class PowerCut(Exception):
    """Raised by the simulated disk at the moment of a power cut."""


def test_a_power_cut_at_any_point_changes_nothing_that_is_read() -> None:
    chance = seeded("a_power_cut_at_any_point_changes_nothing_that_is_read")
    cut_at = 0
    while True:
        cut_at += 1
        node = filled(random.Random(cut_at))
        before = told(node)
        last_call = node.sim.calls + cut_at

        def goes(path: str, operation: str, last: int = last_call, node: Node = node) -> bool:
            if node.sim.calls >= last:
                raise PowerCut(path, operation)
            return False

        node.sim.refuses = goes
        try:
            clean(node)
        except PowerCut:
            node.sim.refuses = None
        else:
            break
        report = node.crash(chance)
        assert report.offline == {}, (cut_at, report)
        check(node, before, cut_at)
    assert cut_at > 60


def test_a_power_cut_while_a_swap_is_finished_is_survived() -> None:
    chance = seeded("a_power_cut_while_a_swap_is_finished_is_survived")
    for cut_at in range(1, 40):
        node = filled(random.Random(1))
        before = told(node)
        job = plan_cleaning(node.log, NOW, MAP_BYTES)
        assert job is not None
        while not node.manager.clean(node.log, job):
            pass
        assert [name for name in node.names() if name.endswith(".log.swap")]
        last_call = node.sim.calls + cut_at

        def goes(path: str, operation: str, last: int = last_call, node: Node = node) -> bool:
            if node.sim.calls >= last:
                raise PowerCut(path, operation)
            return False

        node.sim.refuses = goes
        with suppress(PowerCut):
            node.reopen()
        node.sim.refuses = None
        node.manager.release()
        report = node.crash(chance)
        assert report.offline == {}, (cut_at, report)
        check(node, before, cut_at)


def test_readers_of_the_old_files_are_not_disturbed() -> None:
    """A fetch response must stay readable, because it keeps its file open while a compaction
    removes the segment."""
    node = filled(random.Random(3))
    found = node.log.read(0, EVERYTHING, EVERYTHING).region
    assert found is not None
    file: DiskFile = found.file
    data = found.read()
    assert clean(node)
    assert found.read() == data
    assert file.size_bytes() >= len(data)
