"""Log files are preallocated, so that an fsync does not have to update the file size."""

from __future__ import annotations

import pytest

from broker.storage.errors import DiskError
from broker.storage.segment import AHEAD_BYTES
from broker.storage.walk import WINDOW_BYTES, end_of_data
from tests.unit.storage.kit import TP, Node, batch, values_of

SMALL = {"segment.bytes": "400"}


def file_bytes(node: Node, base_offset: int = 0) -> int:
    return len(node.sim.contents(node.segment_path(base_offset)))


def synced(count: int, topic: dict[str, str] | None = None) -> Node:
    """Return a running broker whose batches are all below the recovery point."""
    node = Node(topic=topic)
    for number in range(count):
        node.put(batch(b"%03d" % number * 10, producer=(7, 0, number)))
    node.flush()
    node.manager.checkpoint().perform()
    return node


def test_most_writes_leave_the_size_of_the_file_alone() -> None:
    node = synced(1)
    size_bytes = file_bytes(node)
    assert size_bytes == node.log.size_bytes + AHEAD_BYTES
    sizes = set()
    while node.log.size_bytes + 200 < size_bytes:
        node.put(batch(b"x" * 10_000))
        sizes.add(file_bytes(node))
    assert len(sizes) == 2
    assert max(sizes) == file_bytes(node) > node.log.size_bytes


def test_a_log_that_is_synced_by_the_clock_is_not_stretched() -> None:
    node = Node(topic={"flush.messages": str(2**63 - 1)})
    node.put(batch(b"a"))
    assert file_bytes(node) == node.log.size_bytes
    node.topic = {}
    node.log.use(node.log_config)
    node.put(batch(b"b"))
    assert file_bytes(node) == node.log.size_bytes + AHEAD_BYTES


def test_a_file_that_is_done_with_ends_with_its_last_batch() -> None:
    node = synced(6, SMALL)
    first, active = next(iter(node.log.segments)), node.log.segments.active
    assert first is not active
    assert file_bytes(node) == first.size_bytes
    assert file_bytes(node, active.base_offset) > active.size_bytes
    assert node.restart().truncated == []
    assert file_bytes(node, active.base_offset) == active.size_bytes


def test_a_killed_broker_leaves_zeros_and_they_are_no_torn_tail() -> None:
    node = synced(3)
    node.put(batch(b"written, not synced"))
    before, size_bytes = values_of(node.log), node.log.size_bytes
    assert file_bytes(node) > size_bytes
    report = node.reopen()
    assert report.truncated == []
    assert values_of(node.log) == before
    assert file_bytes(node) == size_bytes
    node.put(batch(b"and on"))
    node.reopen()
    assert values_of(node.log) == [*before, b"and on"]


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("is_closed_segment", [False, True])
def test_zeros_that_could_not_be_cut_off_are_cut_off_by_the_next_start(
    *, is_clean: bool, is_closed_segment: bool
) -> None:
    node = synced(6, SMALL)
    values = values_of(node.log)
    segment = next(iter(node.log.segments)) if is_closed_segment else node.log.segments.active
    if is_clean:
        node.manager.close_clean()
    del node.sim.contents(segment.log_path)[segment.size_bytes :]
    node.sim.contents(segment.log_path).extend(bytes(AHEAD_BYTES))
    report = node.reopen()
    assert report.was_clean is is_clean
    assert (report.truncated, report.offline) == ([], {})
    assert values_of(node.log) == values
    # The zeros are gone, although recovery does not read the batches below the recovery point.
    assert len(node.sim.contents(segment.log_path)) == segment.size_bytes


def test_zeros_below_the_recovery_point_are_damage() -> None:
    node = synced(3)
    content = node.sim.contents(node.segment_path())
    third = node.log.segments.active.locate(2)
    content[third:] = bytes(len(content) - third)
    before = bytes(content)
    assert TP in node.reopen().offline
    assert bytes(node.sim.contents(node.segment_path())) == before


def test_a_write_refused_takes_the_zeros_with_it() -> None:
    node = synced(2)
    size_bytes = node.log.size_bytes
    node.sim.refuses = lambda path, operation: operation == "write" and path.endswith(".log")
    with pytest.raises(DiskError):
        node.put(batch(b"refused"))
    node.sim.refuses = None
    assert file_bytes(node) == size_bytes
    node.put(batch(b"taken"))
    assert values_of(node.log)[-1] == b"taken"
    assert file_bytes(node) == node.log.size_bytes + AHEAD_BYTES


def test_a_stretch_takes_nothing_of_a_disk_that_is_nearly_full() -> None:
    node = synced(1)
    node.sim.capacity_bytes = node.sim.used_bytes() + 10_000
    written = 0
    with pytest.raises(DiskError):
        while True:
            node.put(batch(b"%04d" % written * 100))
            written += 1
    assert written > 10
    node.sim.capacity_bytes = None
    node.put(batch(b"the last"))
    assert len(values_of(node.log)) == written + 2


def test_the_end_of_data_is_found_across_windows() -> None:
    node = Node()
    file = node.disk.open("/data/file", create=True)
    file.write([b"abc"], 10)
    file.truncate(3 * WINDOW_BYTES)
    assert end_of_data(file, 0, 3 * WINDOW_BYTES) == 13
    assert end_of_data(file, 13, 3 * WINDOW_BYTES) == 13
    file.write([b"z"], 2 * WINDOW_BYTES + 5)
    assert end_of_data(file, 13, 3 * WINDOW_BYTES) == 2 * WINDOW_BYTES + 6
    assert end_of_data(file, 13, 2 * WINDOW_BYTES) == 13
    assert end_of_data(file, 13, 9 * WINDOW_BYTES) == 2 * WINDOW_BYTES + 6


def test_a_disk_that_refuses_to_cut_zeros_off_does_not_hold_up_a_clean_stop() -> None:
    node = synced(3)
    values = values_of(node.log)
    node.sim.refuses = lambda path, operation: operation == "truncate" and path.endswith(".log")
    node.manager.close_clean()
    node.sim.refuses = None
    report = node.reopen()
    assert (report.was_clean, report.truncated, report.offline) == (True, [], {})
    assert values_of(node.log) == values
    assert file_bytes(node) == node.log.size_bytes


@pytest.mark.parametrize("rolls", [False, True])
def test_a_stop_over_half_a_batch_that_cannot_be_cut_off_is_not_clean(*, rolls: bool) -> None:
    """The batch looks whole by its header, because the preallocated zeros follow it. So the next
    start must check it."""
    node = synced(3, SMALL if rolls else None)
    values = values_of(node.log)
    half_written: list[str] = []

    def refuses(path: str, operation: str) -> bool:
        """Refuse the first write to a log file, and then every operation that would undo it."""
        if operation == "write" and path.endswith(".log"):
            half_written.append(path)
        is_undone = operation in ("truncate", "unlink") and path in half_written
        return path.endswith(".log") and (operation == "write" or is_undone)

    node.sim.refuses = refuses
    with pytest.raises(DiskError):
        node.put(batch(b"half" * 75))
    assert half_written == [node.segment_path(3 if rolls else 0)]
    with pytest.raises(DiskError):
        node.manager.close_clean()
    node.sim.refuses = None
    report = node.reopen()
    assert (report.was_clean, report.offline) == (False, {})
    assert values_of(node.log) == values
    node.put(batch(b"on"))
    node.flush()
    assert node.restart().was_clean
    assert values_of(node.log) == [*values, b"on"]


def test_a_stop_cuts_off_what_an_earlier_write_has_left() -> None:
    node = synced(3)
    values = values_of(node.log)
    node.sim.refuses = lambda path, operation: (
        operation in ("write", "truncate") and path.endswith(".log")
    )
    with pytest.raises(DiskError):
        node.put(batch(b"half" * 75))
    node.sim.refuses = None
    report = node.restart()
    assert (report.was_clean, report.truncated, report.offline) == (True, [], {})
    assert values_of(node.log) == values
