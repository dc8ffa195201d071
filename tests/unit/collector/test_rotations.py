"""Rotations while the collector is in the middle of a scan, a read or a comparison.

Each test has the number of the scenario that it varies. Scans are composed by hand from what they
would have seen at different moments.
"""

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.types import TopicPartition
from tests.unit.collector.test_scenarios_copies import compress, copy, read_only, truncate
from tests.unit.collector.world import EVENTS, LOOK_MS, World


@pytest.fixture(params=[{}, EVENTS], ids=["lines", "events"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    return World(tmp_path, **request.param)


@pytest.mark.parametrize(
    ("name", "seen_bytes"), [("a.1", None), ("a.1", 0), ("a.1", 1500), ("b1", None)]
)
@pytest.mark.parametrize("is_down", [False, True], ids=["running", "restarted"])
def test_15_so_it_is_if_all_of_it_happens_while_names_are_looked_at(
    world: World, is_down: bool, name: str, seen_bytes: int | None
) -> None:
    """logrotate copies and truncates within a millisecond. The scan saw the copy before it was
    complete, or not at all, and the original after it was truncated."""
    world.write(10, "a")
    world.look()
    world.write(10, "a")
    world.look()
    if is_down:
        world.down()
        world.up()
    world.write(10, "a")
    if seen_bytes is not None:
        world.path(name).write_bytes(world.path("a").read_bytes()[:seen_bytes])
    before = world.walker.scan()
    copy(world, "a", name)
    truncate(world, "a")
    world.write(5, "a")
    after = world.walker.scan()
    late = [one for one in after.seen if one.path.endswith("/a")]
    early = [one for one in before.seen if not one.path.endswith("/a")]
    scan = replace(after, seen=(*early, *late))
    world.feeder.wake(world.feeder.reader.judge(scan, world.now_ms))
    world.read()
    world.look()
    world.quiet()
    world.expect(35, copytruncated=1, lost_possible=0)


def test_17_a_copy_waits_though_its_original_is_rewritten_while_they_are_compared(
    world: World,
) -> None:
    world.write(40, "a")
    world.look()
    world.handles.close_all()
    copy(world, "a", "a.1")
    scan = world.walker.scan()
    truncate(world, "a")
    world.write(30, "a")
    world.feeder.wake(world.feeder.reader.judge(scan, world.now_ms))
    world.read()
    world.look()
    world.expect(70, copytruncated=1, lost_possible=0, new=1)


@pytest.mark.parametrize("truncated", ["before it is compared", "later"])
def test_17_a_copy_waits_though_it_has_more_than_was_seen_of_its_original(
    world: World, truncated: str
) -> None:
    """A scan visits one file after the other, while the writer keeps appending."""
    world.write(20, "a")
    world.look()
    early = world.walker.scan().seen
    world.write(10, "a")
    copy(world, "a", "a.1")
    late = world.walker.scan()
    scan = replace(late, seen=(*early, *(one for one in late.seen if one.path.endswith("a.1"))))
    if truncated != "later":
        truncate(world, "a")
    world.feeder.wake(world.feeder.reader.judge(scan, world.now_ms))
    world.read()
    if truncated == "later":
        world.look()
        truncate(world, "a")
    world.write(5, "a")
    world.look()
    world.expect(35, copytruncated=1, lost_possible=0, new=1)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file's turn come as late as with hundreds of other files."""
    monkeypatch.setattr("collector.feeder.LIVE_TURNS", 1)


def read_while_written(world: World, name: str, turns_before: int) -> None:
    """Append ten lines before each step of the collector, except before the first `turns_before`
    steps."""
    for turn in range(40):
        if turn >= turns_before:
            world.write(10, name)
        world.scan()
        world.feeder.step(world.now_ms)
        world.now_ms += LOOK_MS
    world.look()
    world.quiet()


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("turns_before", range(6))
def test_36h_an_archive_is_known_though_the_new_file_is_read_on_past_its_original(
    world: World, turns_before: int
) -> None:
    """The archive's name also fits the new file `a`, which grows during the comparison."""
    world.write(100, "a")
    world.look()
    world.down()
    world.write(20, "a")
    world.move("a", "a.1")
    compress(world, "a.1")
    world.write(80, "a")
    world.up()
    read_while_written(world, "a", turns_before)
    world.expect(600 - 10 * turns_before, archive_continued=1)


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("turns_before", range(6))
def test_36i_an_archive_is_known_though_its_original_is_read_on_past_it(
    world: World, turns_before: int
) -> None:
    """`gzip -k` compresses a file that is written all the time, so the original has more lines."""
    world.write(100, "a")
    world.look()
    world.write(10, "a")
    world.look()
    compress(world, "a", keep=True)
    read_while_written(world, "a", turns_before)
    world.expect(510 - 10 * turns_before, archive_done=1)


@pytest.mark.parametrize("ending", [None, "look", "deleted", "down"])
def test_36e_a_compressed_copy_that_is_older_is_done(world: World, ending: str | None) -> None:
    """copytruncate compresses the copy. The writer appends between copy and truncation, so the copy
    is older than the original."""
    for _ in range(5):
        world.write(10, "a")
        world.look()
    data = world.path("a").read_bytes()
    world.write(3, "a")
    world.look()
    if ending == "down":
        world.down()
    world.path("a.1.gz").write_bytes(gzip.compress(data))
    if ending == "look":
        world.look()
    if ending == "deleted":
        world.path("a").unlink()
        world.look()
    else:
        truncate(world, "a")
    world.write(5, "a")
    if ending == "down":
        world.up()
    world.look()
    world.quiet()
    world.expect(58, archive_done=1)
    world.down()
    world.up()
    world.look()
    world.expect(58)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "archive"])
@pytest.mark.parametrize("is_down", [False, True], ids=["running", "restarted"])
def test_18b_an_older_copy_is_known_though_all_was_read_in_one_go(
    world: World, packed: bool, is_down: bool
) -> None:
    data = world.write(1500, "a")
    world.write(300, "a")
    world.look()
    if is_down:
        world.down()
    name = "a.1.gz" if packed else "a.1"
    world.path(name).write_bytes(gzip.compress(data) if packed else data)
    truncate(world, "a")
    world.write(5, "a")
    if is_down:
        world.up()
    world.look()
    world.quiet()
    world.expect(1805)


def test_36f_it_is_noted_when_its_lines_are_committed_and_not_before(world: World) -> None:
    """A broker refuses lines that are left only in the copy, and then the collector is killed. The
    copy must not count as done before these lines are committed."""
    world.feeder._partition_of = lambda topic, key: TopicPartition(topic, len(key) % 2)
    for _ in range(3):
        world.write(10, "a")
        world.look()
    read_only(world, 10, "a")
    data = world.path("a").read_bytes()
    read_only(world, 3, "a")
    world.abort(is_refused=True)
    world.path("a.1.gz").write_bytes(gzip.compress(data))
    truncate(world, "a")
    for _ in range(5):
        world.scan()
        world.feeder.step(world.now_ms)
        world.now_ms += LOOK_MS
    world.commit()
    world.kill()
    world.up()
    world.look()
    assert world.numbers == list(range(1, 41)), "of the last three there is no file any more"


def test_36g_an_archive_that_only_begins_like_the_file_counts(world: World) -> None:
    world.write(10, "a")
    world.look()
    head = world.path("a").read_bytes()
    for _ in range(5):
        world.write(10, "a")
        world.look()
    world.path("a.1.gz").write_bytes(gzip.compress(head + world.new_lines(30)))
    world.look()
    world.quiet()
    assert sorted(world.numbers) == sorted([*range(1, 91), *range(1, 11)])


def test_the_next_copy_may_have_the_inode_of_the_one_before(world: World) -> None:
    """delaycompress frees the inode of `a.1`, and file systems reuse it for the next `a.1`."""
    world.write(20, "a")
    world.look()
    copy(world, "a", "a.1")
    truncate(world, "a")
    world.write(5, "a")
    world.look()
    known = world.registry.at_path(str(world.path("a.1")))
    assert known is not None
    if known.birth_ns is None:
        pytest.skip("this file system does not tell when a file was born")
    compress(world, "a.1", keep=True)
    world.path("a.1.gz").rename(world.path("a.2.gz"))
    world.look()
    # Reuse the same file as the next copy, with a birth time that differs from the stored one. Only
    # that shows that it is another file.
    known.birth_ns -= 1
    world.handles.close(known.name)
    world.path("a.1").write_bytes(world.path("a").read_bytes())
    truncate(world, "a")
    world.write(3, "a")
    world.feeder.wake([known])  # as for a file event, before any scan
    world.read()
    world.look()
    world.quiet()
    world.expect(28, copytruncated=2, lost_possible=0)


def test_23b_so_it_is_when_an_event_comes_before_the_next_look(world: World) -> None:
    world.write(20, "a")
    world.look()
    (known,) = world.registry.generations.values()
    world.path("a").write_bytes(world.new_lines(20))
    later_ns = world.path("a").stat().st_mtime_ns + 1
    os.utime(world.path("a"), ns=(later_ns, later_ns))
    world.feeder.wake([known])
    world.read()
    world.look()
    world.expect(40, rewritten=1, lost_possible=1)


@pytest.mark.parametrize("count", [10, 30], ids=["shorter", "longer"])
def test_a_file_rewritten_and_deleted_before_a_look_is_done_with(world: World, count: int) -> None:
    world.write(20, "a")
    world.look()
    truncate(world, "a")
    world.write(count, "a")
    world.path("a").unlink()
    world.look()
    world.quiet()
    world.expect(20, deleted=1, lost_possible=1)
    assert len(world.handles) == 0


def test_lines_truncated_before_they_were_read_are_said_to_be_lost(world: World) -> None:
    """All sent lines are unchanged, but a scan saw more bytes than the file has after the
    truncation."""
    world.write(20, "a")
    world.scan()
    truncate(world, "a")
    world.write(5, "a")
    world.look()
    world.look()
    assert world.numbers == [21, 22, 23, 24, 25]
    world.expect(5, lost_possible=1)


def test_so_they_are_when_a_part_of_them_is_left(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.write(20, "a")
    world.scan()
    truncate(world, "a", 2_500)
    world.look()
    world.expect(25, lost_possible=1)


def test_lines_copied_before_they_were_truncated_unread_are_not_lost(world: World) -> None:
    world.write(20, "a")
    world.scan()
    copy(world, "a", "a.1")
    truncate(world, "a")
    world.write(5, "a")
    world.look()
    world.expect(25, lost_possible=0)


def test_a_copy_beside_an_original_whose_turn_has_not_come_waits_for_it(world: World) -> None:
    """Row 17. The original was not read yet, so nothing can be compared. Without waiting, both
    files would be read."""
    world.write(20, "a")
    world.scan_for("b")
    copy(world, "a", "a.1")
    world.scan_for("a.1")
    world.read()
    assert world.lines == []
    world.look()
    truncate(world, "a")
    world.write(5, "a")
    world.look()
    world.expect(25, copytruncated=1, lost_possible=0)


def test_the_copy_of_an_original_that_was_truncated_unread_is_read(world: World) -> None:
    world.write(20, "a")
    world.scan_for("b")
    copy(world, "a", "a.1")
    world.scan_for("a.1")
    truncate(world, "a")
    world.write(5, "a")
    world.look()
    world.quiet()
    world.expect(25, lost_possible=0)
