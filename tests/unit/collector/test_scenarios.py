"""Scenarios of files that grow, move, shrink and are deleted, in a real folder.

The numbers are those of the project's list of scenarios. `tests/house/test_scenarios` checks that
none is missing. Copies (14 to 19, 25, 26, 35, 36, 43) are in `test_scenarios_copies`, after-ingest
actions (33) in `test_ingested`, random programs (39) in `test_model`. Number 13 is a live test.
Number 40, with two collectors of which one is frozen, is a crash test.
"""

import gzip
import os
import shutil
from pathlib import Path

import pytest

from collector.identity.sightings import State
from collector.status import held_deleted
from tests.unit.collector.world import EVENTS, World


@pytest.fixture(params=[{}, EVENTS], ids=["lines", "events"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    return World(tmp_path, **request.param)


def test_01_lines_are_sent_once(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.look()
    world.expect(20, new=1, lines_total=20)
    assert world.numbers == list(range(1, 21))


def test_02_half_a_line_waits_for_its_end(world: World) -> None:
    world.write(5, "a")
    world.append("a", b"half")
    world.look()
    world.append("a", b"rest\n")
    world.look()
    world.expect(6, unfinished_sent=0)
    assert world.lines[-1] == b"halfrest"


def test_03_half_a_line_of_a_deleted_file_is_sent_marked(world: World) -> None:
    world.write(5, "a")
    world.append("a", b"half")
    world.look()
    world.path("a").unlink()
    world.look()
    world.quiet()
    world.expect(6, unfinished_sent=1, deleted=1)
    assert world.lines[-1] == b"half"
    assert len(world.handles) == 0


def test_04_an_empty_file_is_read_from_its_first_line(world: World) -> None:
    world.path("a").touch()
    world.look()
    world.append("a", b"ten bytes\n")
    world.look()
    world.expect(1, new=1)


def test_05_files_with_the_same_banner_are_two_files(world: World) -> None:
    banner = b"".join(b"banner %093d\n" % i for i in range(20))
    for name in ("a", "b"):
        world.append(name, banner)
    world.write(5, "a")
    world.write(5, "b")
    world.look()
    assert len(world.lines) == 50
    assert world.count("new") == 2


def test_06_a_hundred_files_of_the_same_line(world: World) -> None:
    for index in range(100):
        world.append(f"b{index:02}", b"started\n")
    world.look()
    assert world.lines == [b"started"] * 100
    assert world.count("new") == 100


def test_07_a_rename_is_followed(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.move("a", "a.1")
    world.write(5, "a")
    world.look()
    world.expect(25, renamed=1, new=2)


def test_08_the_rest_of_a_renamed_file_keeps_its_key(world: World) -> None:
    world.write(20, "a")
    world.look()
    with world.path("a").open("ab") as old_writer:
        world.write(10, "a")
        world.move("a", "a.1")
        world.write(5, "a")
        old_writer.write(world.new_lines(3))
    world.look()
    world.expect(38, renamed=1)
    assert set(world.keys) == {b"a"}


def test_09_a_file_moved_away_is_read_to_its_end(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.write(10, "a")
    world.move("a", "elsewhere")
    world.write(5, "a")
    world.look()
    world.quiet()
    world.expect(35, moved_out=1, lost_possible=0)
    assert len(world.handles) == 1


def test_09b_a_file_moved_away_and_back_goes_on(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.move("a", "elsewhere")
    world.look()
    world.quiet()
    assert world.states() == {"a": State.MOVED_OUT}
    world.write(3, "elsewhere")
    world.move("elsewhere", "a.1")
    world.look()
    world.expect(23, moved_out=1, renamed=1, new=1)


def test_10_a_file_moved_away_while_down_is_gone(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.down()
    world.write(10, "a")
    world.move("a", "elsewhere")
    world.write(5, "a")
    world.up()
    world.look()
    world.expect(25, gone_while_down=1)


def test_11_a_rotation_of_two_while_down(world: World) -> None:
    world.write(20, "a.1")
    world.write(20, "a")
    world.look()
    world.down()
    world.write(10, "a")
    world.move("a.1", "a.2")
    world.move("a", "a.1")
    world.write(5, "a")
    world.up()
    world.look()
    world.expect(55, renamed=2, new=1)


def test_12_three_rotations_between_two_scans(world: World) -> None:
    world.write(10, "a")
    world.look()
    for _ in range(3):
        world.write(10, "a")
        for index in (2, 1):
            if world.path(f"a.{index}").exists():
                world.move(f"a.{index}", f"a.{index + 1}")
        world.move("a", "a.1")
    world.write(10, "a")
    world.look()
    world.expect(50, renamed=1, new=4)


def test_20_a_hole_at_the_start_after_truncation_is_skipped(world: World) -> None:
    world.write(20, "a")
    world.look()
    with world.path("a").open("r+b") as writer:
        writer.truncate(0)
        writer.seek(1900)
        writer.write(world.new_lines(5))
    world.look()
    world.expect(25, nul_bytes_skipped=1900)


def test_21_truncation_begins_a_new_generation(world: World) -> None:
    world.write(20, "a")
    world.look()
    os.truncate(world.path("a"), 0)
    world.write(5, "a")
    world.look()
    world.expect(25, truncated=1, lost_possible=1)


def test_22_truncated_and_regrown_past_the_position(world: World) -> None:
    world.write(20, "a")
    world.look()
    os.truncate(world.path("a"), 0)
    world.write(30, "a")
    world.look()
    world.expect(50, rewritten=1, lost_possible=1)


def test_22b_a_rewrite_is_noticed_before_a_byte_of_it_is_sent(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.path("a").write_bytes(b"x" * 50 + world.new_lines(30))
    (generation,) = world.registry.generations.values()
    world.feeder.wake([generation])
    world.read()
    assert len(world.lines) == 20
    assert world.feeder.reader.wants_scan
    world.look()
    assert world.count("rewritten") == 1
    assert len(world.lines) == 50


def test_23_overwritten_with_lines_of_the_same_length(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.path("a").write_bytes(world.new_lines(20))
    world.look()
    world.expect(40, rewritten=1)


def test_24_the_same_bytes_again_look_like_nothing(world: World) -> None:
    data = world.write(20, "a")
    world.look()
    world.path("a").write_bytes(data)
    world.look()
    world.expect(20, new=1, rewritten=0, truncated=0)


def test_27_a_file_replaced_by_rename_is_another_file(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.write(10, "a")
    world.path("x").write_bytes(world.new_lines(20))
    world.move("x", "a")
    world.look()
    world.expect(50, replaced=1)


def test_28_an_edited_file_is_counted_as_new(world: World) -> None:
    data = world.write(20, "a")
    world.look()
    world.path("x").write_bytes(data[:1000] + data[1100:].replace(b"\n", b".\n"))
    world.move("x", "a")
    world.look()
    assert len(world.lines) == 39
    assert world.count("replaced") == 1


def test_28b_a_file_whose_first_line_was_taken_away_is_not(world: World) -> None:
    data = world.write(20, "a")
    world.look()
    world.path("x").write_bytes(data[100:])
    world.move("x", "a")
    world.look()
    world.expect(20, replaced=0, trimmed=1, lost_possible=0)


def test_29_a_reused_inode_is_told_by_its_birth(world: World) -> None:
    world.write(20, "a")
    world.look()
    before = world.path("a").stat().st_ino
    world.handles.close_all()
    for attempt in range(50):
        world.path("a").unlink()
        world.write(0, "a")
        if world.path("a").stat().st_ino == before:
            break
        world.path(f"x{attempt}").touch()
    else:
        pytest.skip("this file system does not reuse inodes")
    world.write(30, "a")
    world.look()
    assert len(world.lines) == 50
    assert world.count("inode_reused") + world.count("rewritten") == 1


def test_29b_the_same_file_dropped_again_is_counted_again(world: World) -> None:
    data = world.write(20, "a")
    world.look()
    world.path("a").unlink()
    world.look()
    world.quiet()
    world.append("a", data)
    world.look()
    assert len(world.lines) == 40


def test_30_a_deleted_file_is_drained(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.write(10, "a")
    size_bytes = world.path("a").stat().st_size
    world.path("a").unlink()
    world.look()
    assert held_deleted(world.registry.generations.values()) == (1, size_bytes)
    world.quiet()
    world.expect(30, deleted=1)
    assert len(world.handles) == 0
    assert held_deleted(world.registry.generations.values()) == (0, 0)


def test_30b_a_file_without_a_name_is_not_closed_for_want_of_handles(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open_files = 2
    world.up()
    world.write(5, "a")
    world.append("a", b"half")
    world.look()
    world.path("a").unlink()
    world.look()
    for name in ("b1", "b2", "b3"):
        world.write(5, name)
    world.look()
    world.quiet()
    assert b"half" in world.lines
    assert len(world.lines) == 21


def test_31_a_file_deleted_while_down_is_gone_and_forgotten(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.down()
    world.write(10, "a")
    world.path("a").unlink()
    world.up()
    world.look()
    world.expect(20, gone_while_down=1)
    assert world.registry.forget(world.now_ms + 1, 3_600_000) == []
    assert world.registry.forget(world.now_ms + 3_600_000, 3_600_000) == ["g1"]
    assert world.registry.generations == {}


def test_32_links_are_names_of_one_file(world: World) -> None:
    world.write(20, "a")
    os.link(world.path("a"), world.path("b"))
    world.path("cur").symlink_to("a")
    world.look()
    world.path("cur").unlink()
    world.write(5, "b2")
    world.path("cur").symlink_to("b2")
    world.look()
    world.expect(25, new=2)
    assert world.count("linked") >= 2


def test_34_another_device_number_is_the_same_file(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.down()
    device = b'"device":%d' % world.path("a").stat().st_dev
    (name, value) = next(iter(world.stored.items()))
    assert device in value
    world.stored[name] = value.replace(device, b'"device":1')
    world.write(5, "a")
    world.up()
    world.look()
    world.expect(25, renumbered=1, new=0)


def test_37_a_growing_archive_waits_until_it_is_whole(world: World) -> None:
    data = gzip.compress(world.new_lines(100))
    third = len(data) // 3
    for start in (0, third):
        world.append("b.gz", data[start : start + third])
        world.look()
        assert world.lines == []
    world.kill()
    world.up()
    world.append("b.gz", data[2 * third :])
    world.look()
    world.expect(100, new=1)


def test_38_a_damaged_archive_gives_what_precedes_the_damage(world: World) -> None:
    whole = gzip.compress(world.new_lines(3000) + b"no line end")
    world.path("b.gz").write_bytes(whole + b"\x1f\x8b\x07" + bytes(2000) + whole)
    world.look()
    assert world.numbers == list(range(1, 3001))
    assert world.count("files_damaged") == 1
    assert world.count("dead_lettered") == 1
    assert world.sent[-1] == ("millrace.dead-letters", b"no line end")


def test_38b_damage_in_the_middle_is_noticed_late_but_noticed(world: World) -> None:
    plain = b"".join(os.urandom(50).hex().encode()[:99] + b"\n" for _ in range(3000))
    data = bytearray(gzip.compress(plain))
    middle = len(data) // 2
    data[middle : middle + 4000] = b"\xff" * 4000
    world.path("b.gz").write_bytes(data)
    world.look()
    # Deflate has no checksum per block, so damaged data may still decode. The checksum at the end
    # of the member fails.
    assert world.lines[:1400] == plain.split(b"\n")[:1400]
    assert world.count("files_damaged") == 1


def test_41_a_copy_under_an_unrelated_name_counts(world: World) -> None:
    world.write(20, "a.log")
    world.look()
    shutil.copy(world.path("a.log"), world.path("a-2.log"))
    world.look()
    assert len(world.lines) == 40
    assert world.count("new") == 2


def test_42_workers_with_the_same_banner(world: World) -> None:
    banner = b"".join(b"banner %d\n" % i for i in range(5))
    names = ("a.log", "a-w2.log", "a.3.log")
    for name in names:
        world.append(name, banner)
    world.look()
    for name in names:
        world.write(5, name)
    world.look()
    assert len(world.lines) == 30
    assert world.count("new") == 3
    assert world.count("lost_possible") == 0


def test_start_end_takes_only_what_comes_after_the_first_look(tmp_path: Path) -> None:
    world = World(tmp_path, start="end")
    old = world.write(20, "a")
    world.append("a", b"0")
    world.path("b.gz").write_bytes(gzip.compress(old))
    world.look()
    assert world.lines == []
    world.append("a", b"00\n")
    world.write(3, "a")
    world.write(2, "b1")
    world.look()
    assert sorted(world.numbers) == [0, 21, 22, 23, 24, 25]
    world.down()
    world.up()
    world.write(1, "a")
    world.look()
    assert world.numbers[-1] == 26
    assert len(world.lines) == 7


def test_an_unreadable_file_is_shown_and_tried_again(world: World) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    world.write(5, "a")
    world.path("a").chmod(0)
    world.look()
    (generation,) = world.registry.generations.values()
    assert "Permission denied (owner uid" in generation.error
    world.path("a").chmod(0o600)
    world.now_ms += 1000
    world.look()
    world.expect(5)
    assert generation.error == ""


def test_an_archive_resumed_half_way_gives_the_rest(world: World) -> None:
    world.path("b.gz").write_bytes(gzip.compress(world.new_lines(80_000)))
    world.scan()
    while len(world.lines) < 8000:
        world.feeder.step(world.now_ms)
        world.commit()
    assert len(world.lines) < 80_000
    world.feeder.step(world.now_ms)
    world.send(everything=True)
    world.kill()
    world.up()
    world.look()
    assert world.numbers == list(range(1, 80_001))


def test_members_are_read_one_after_another(world: World) -> None:
    world.path("b.gz").write_bytes(
        gzip.compress(world.new_lines(3)) + gzip.compress(world.new_lines(3)) + b"\0" * 100
    )
    world.look()
    assert world.numbers == [1, 2, 3, 4, 5, 6]
    assert world.count("files_damaged") == 0
