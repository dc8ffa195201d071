"""Scenarios of files that are copied, truncated and compressed, in a real folder.

The numbers are those of the project's list of scenarios.
"""

import gzip
import os
import shutil
from pathlib import Path

import pytest

from collector.config.settings import COPY_QUIET_MS, DRAIN_QUIET_MS
from collector.identity.sightings import State
from collector.status import originals_of
from tests.unit.collector.world import EVENTS, LOOK_MS, World


@pytest.fixture(params=[{}, EVENTS], ids=["lines", "events"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    return World(tmp_path, **request.param)


def copy(world: World, source: str, target: str) -> None:
    shutil.copyfile(world.path(source), world.path(target))


def truncate(world: World, name: str, size: int = 0) -> None:
    os.truncate(world.path(name), size)


def compress(world: World, name: str, *, keep: bool = False) -> None:
    world.path(f"{name}.gz").write_bytes(gzip.compress(world.path(name).read_bytes()))
    if not keep:
        world.path(name).unlink()


def test_14_a_copy_made_by_copytruncate_is_not_sent_again(world: World) -> None:
    world.write(20, "a")
    world.look()
    copy(world, "a", "a.1")
    truncate(world, "a")
    world.write(5, "a")
    world.look()
    world.expect(25, copytruncated=1, lost_possible=0)


def test_15_the_rest_is_read_from_the_copy(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.write(10, "a")
    copy(world, "a", "a.1")
    truncate(world, "a")
    world.write(5, "a")
    world.look()
    world.expect(35, copytruncated=1, lost_possible=0)
    assert set(world.keys) == {b"a"}


def test_16_the_same_while_down_and_regrown_past_the_position(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.down()
    world.write(10, "a")
    copy(world, "a", "a.1")
    truncate(world, "a")
    world.write(40, "a")
    world.up()
    world.look()
    world.expect(70, copytruncated=1, lost_possible=0)


def test_17_a_copy_that_takes_its_time_waits_beside_its_original(world: World) -> None:
    world.write(20, "a")
    world.look()
    content = world.path("a").read_bytes()
    for part in range(0, 2000, 250):
        world.append("a.1", content[part : part + 250])
        world.now_ms += 1000
        world.look()
    truncate(world, "a")
    world.write(5, "a")
    world.look()
    world.expect(25, copytruncated=1, copy_held=1, lost_possible=0)


def test_18_a_copy_older_than_the_position_is_done(world: World) -> None:
    world.write(20, "a")
    world.look()
    copy(world, "a", "a.1")
    world.write(3, "a")
    world.look()
    truncate(world, "a")
    world.write(5, "a")
    world.look()
    world.expect(28, copytruncated=1, lost_possible=0)
    world.down()
    world.up()
    world.look()
    world.expect(28)


def test_19_lines_between_copy_and_truncation_may_be_lost_and_that_is_counted(
    world: World,
) -> None:
    world.write(20, "a")
    world.look()
    copy(world, "a", "a.1")
    world.write(3, "a")
    world.scan()
    truncate(world, "a")
    world.write(5, "a")
    world.look()
    assert len(world.lines) == 25
    assert world.count("lost_possible") == 1


def test_25_a_tail_lost_in_a_power_cut_is_not_read_again(world: World) -> None:
    world.write(1000, "a")
    world.look()
    world.down()
    truncate(world, "a", 95_050)
    world.up()
    world.look()
    world.append("a", b"X\n")
    world.look()
    world.expect(1001, shrunk=1, lost_possible=0)
    assert world.lines[-1].endswith(b"X")
    assert len(world.lines[-1]) == 51


def test_26_a_file_replaced_by_a_longer_copy_of_itself_goes_on(world: World) -> None:
    world.write(20, "a")
    world.look()
    copy(world, "a", "a.tmp")
    world.write(10, "a.tmp")
    world.look()
    world.move("a.tmp", "a")
    world.look()
    world.expect(30, replaced_same_head=1, lost_possible=0)


def test_26b_what_the_replaced_file_still_held_is_read_first(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.write(4, "a")
    copy(world, "a", "a.tmp")
    world.write(10, "a.tmp")
    world.move("a.tmp", "a")
    world.look()
    world.look()
    world.expect(34, replaced_same_head=1, lost_possible=0)


def test_35_the_compressed_copy_of_a_rotated_file_is_done(world: World) -> None:
    world.write(20, "a")
    world.move("a", "a.1")
    world.look()
    compress(world, "a.1")
    world.look()
    world.quiet()
    world.expect(20, archive_done=1, lost_possible=0)
    world.down()
    world.move("a.1.gz", "a.2.gz")
    world.up()
    world.look()
    world.expect(20, renamed=1)


def test_36_compressed_while_down_it_is_read_from_the_position_on(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.down()
    world.write(10, "a")
    world.move("a", "a.1")
    compress(world, "a.1")
    world.up()
    world.look()
    world.quiet()
    world.expect(30, archive_continued=1)
    assert world.numbers == list(range(1, 31))
    assert set(world.keys) == {b"a"}


def test_36b_copied_truncated_and_compressed_between_two_looks(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.write(10, "a")
    copy(world, "a", "a.1")
    truncate(world, "a")
    compress(world, "a.1")
    world.write(5, "a")
    world.look()
    world.quiet()
    world.expect(35, archive_continued=1, lost_possible=0)


def test_36c_a_compressed_copy_beside_its_original_is_not_counted(world: World) -> None:
    world.write(20, "a")
    world.look()
    compress(world, "a", keep=True)
    world.look()
    world.expect(20, archive_done=1)
    world.write(5, "a")
    world.look()
    world.expect(25)


def test_36d_an_archive_of_other_lines_counts(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.path("a.1.gz").write_bytes(gzip.compress(world.new_lines(20)))
    world.look()
    world.expect(40, archive_done=0)


def test_43_a_copy_left_quiet_beside_its_original_is_a_file_of_its_own(world: World) -> None:
    world.write(20, "a")
    world.look()
    copy(world, "a", "a.1")
    world.look()
    assert len(world.lines) == 20
    world.now_ms += COPY_QUIET_MS
    world.look()
    assert len(world.lines) == 40
    assert (world.count("copy_held"), world.count("new"), world.count("copy_done")) == (1, 2, 0)


def test_a_copy_at_the_name_of_a_deleted_file_is_not_counted_twice(world: World) -> None:
    world.write(20, "a.1")
    world.write(20, "a")
    world.look()
    world.path("a.1").unlink()
    copy(world, "a", "a.1")
    world.look()
    truncate(world, "a")
    world.write(5, "a")
    world.look()
    world.quiet()
    world.expect(45, copytruncated=1, deleted=1, lost_possible=0)


def test_a_file_deleted_after_it_was_copied_is_not_counted_twice(world: World) -> None:
    world.write(20, "a")
    world.look()
    copy(world, "a", "a.1")
    world.path("a").unlink()
    world.look()
    world.quiet()
    world.expect(20, copy_done=1, deleted=1)


def test_an_edit_before_the_position_makes_a_copy_another_file(world: World) -> None:
    world.write(200, "a")
    world.look()
    content = bytearray(world.path("a").read_bytes())
    content[9_000] = ord("7")
    world.path("a.1").write_bytes(bytes(content))
    truncate(world, "a")
    world.look()
    assert len(world.lines) == 400
    assert world.count("truncated") == 1


def read_only(world: World, count: int, name: str) -> None:
    """Append lines and let the collector read them, without a transaction that has them."""
    world.write(count, name)
    world.scan()
    world.feeder.step(world.now_ms)
    world.now_ms += LOOK_MS
    world.feeder.step(world.now_ms)


def test_a_copy_is_done_when_the_lines_it_holds_are_committed_and_not_before(world: World) -> None:
    """Row 8b. A broker refuses lines that are left only in the copy, and then the collector is
    killed."""
    world.write(20, "a")
    world.look()
    read_only(world, 10, "a")
    copy(world, "a", "a.1")
    read_only(world, 3, "a")
    world.abort(is_refused=True)
    truncate(world, "a")
    world.write(5, "a")
    world.scan()  # finds that the original was truncated
    world.scan()  # decides about the copy
    assert world.states()["a.1"] is State.ROTATED
    world.commit()
    world.kill()
    world.up()
    world.look()
    assert sorted(world.numbers) == [*range(1, 31), *range(34, 39)]


def test_the_copy_of_a_deleted_file_is_done_when_its_lines_are_committed(world: World) -> None:
    """Row 18, with a deleted original instead of a truncated one."""
    world.write(20, "a")
    world.look()
    read_only(world, 10, "a")
    world.abort(is_refused=True)
    copy(world, "a", "a.1")
    world.path("a").unlink()
    for _ in range(3):
        world.scan()
        world.feeder.step(world.now_ms)
        world.now_ms += DRAIN_QUIET_MS
    assert world.count("copy_done") == 1
    world.commit()
    world.kill()
    world.up()
    world.look()
    assert world.numbers == list(range(1, 31))


@pytest.mark.parametrize("later", ["trial", "taken away"])
def test_a_copy_is_done_also_after_its_transaction_failed(world: World, later: str) -> None:
    world.write(20, "a")
    world.look()
    copy(world, "a", "a.1")
    world.write(3, "a")
    world.look()
    truncate(world, "a")
    world.write(5, "a")
    world.scan()  # finds that the original was truncated
    world.scan()  # decides about the copy
    world.feeder.step(world.now_ms)
    assert world.count("copytruncated") == 1
    if later == "trial":
        world.abort(is_refused=True)
        world.commit()
        world.now_ms += 60_000
        world.feeder.outbox.begin(world.now_ms)
        world.commit()
    else:
        world.start_over()
    world.look()
    world.expect(28)
    world.down()
    world.up()
    world.look()
    world.expect(28)


@pytest.mark.parametrize("lives", [1, 8, 30])
def test_an_archives_name_is_read_however_often_its_original_restarted(
    world: World, lives: int
) -> None:
    """The original was truncated several times at different lengths. The file with the archive's
    name equals none of them, so it is read."""
    lengths = range(11, 11 + lives)
    for length in lengths:
        world.write(length, "a")
        world.look()
        truncate(world, "a")
        world.look()
    world.write(60, "a.1")
    world.look()
    world.expect(sum(lengths) + 60, truncated=lives, copy_done=0)


def test_43b_a_copy_that_counts_is_named_with_its_original(tmp_path: Path) -> None:
    """Case 23: only the content shows that the file is a copy, and two small files can have equal
    content. So its lines are sent, and the original is named."""
    world = World(tmp_path)
    world.write(10, "a")
    world.look()
    world.append("a.bak", world.path("a").read_bytes())
    world.append("b", world.path("a").read_bytes()[:-100] + world.new_lines(1))
    world.look()
    known = world.registry.generations
    copies = originals_of(known.values())
    assert {known[name].path[-5:]: path[-2:] for name, path in copies.items()} == {"a.bak": "/a"}
    assert len(world.lines) == 30
    world.write(1, "a.bak")
    world.look()
    assert originals_of(known.values()) == {}
    world.handles.close_all()
