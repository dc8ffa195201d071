"""Stops, kills, aborts and takeovers of a collector: every line is committed once.

Other tests here are about byte-order marks, file names that are not text, and symbolic links.
"""

import os
from pathlib import Path

import pytest

from tests.unit.collector.world import EVENTS, World


@pytest.fixture(params=[{}, EVENTS], ids=["lines", "events"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    return World(tmp_path, **request.param)


def test_a_stopped_collector_goes_on_where_it_was(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.down()
    world.write(7, "a")
    world.up()
    world.look()
    assert world.numbers == list(range(1, 28))
    assert world.count("new") == 0


def test_a_killed_collector_sends_nothing_twice(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.write(5, "a")
    world.scan()
    world.feeder.step(world.now_ms)
    world.send(everything=True)
    world.kill()
    world.up()
    world.look()
    assert world.numbers == list(range(1, 26))


def test_an_aborted_transaction_is_sent_again_once(world: World) -> None:
    world.write(20, "a")
    world.scan()
    world.feeder.step(world.now_ms)
    world.abort()
    world.write(5, "a")
    world.path("a").rename(world.path("a.1"))
    world.write(5, "a")
    world.look()
    assert world.numbers == list(range(1, 31))


def test_who_starts_over_goes_on_from_what_is_stored_with_handles_kept(world: World) -> None:
    world.write(20, "a")
    world.look()
    world.write(10, "a")
    world.write(3, "b")
    world.scan()
    world.feeder.step(world.now_ms)
    world.send(everything=True)
    world.path("a").unlink()
    world.path("b").unlink()
    world.start_over()
    world.look()
    world.quiet()
    assert sorted(world.numbers) == list(range(1, 34))
    assert len(world.handles) == 0


def test_a_byte_order_mark_is_no_part_of_a_line(world: World) -> None:
    world.append("a", b"\xef\xbb")
    world.look()
    world.append("a", b"\xbfone\ntwo\n\xef\xbb\xbfthree\n")
    world.look()
    assert world.lines == [b"one", b"two", b"three"]
    world.down()
    world.up()
    world.append("a", b"four\n")
    world.look()
    assert world.lines[3:] == [b"four"]


def test_names_that_differ_in_bytes_that_are_no_text_have_keys_of_their_own(world: World) -> None:
    for name in (b"a\xff", b"a\xfe"):
        (world.folder / os.fsdecode(name)).write_bytes(world.new_lines(1))
    world.look()
    assert sorted(key or b"" for key in world.keys) == [b"a\\xfe", b"a\\xff"]


def test_a_symlink_that_leads_to_itself_leaves_the_scan_complete(world: World) -> None:
    world.path("b").symlink_to("b")
    world.write(1, "a")
    found = world.walker.scan()
    assert found.is_complete
    assert [Path(seen.path).name for seen in found.seen] == ["a"]
