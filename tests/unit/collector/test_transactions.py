"""Stops, kills, aborts and taking overs: every line is committed once."""

from pathlib import Path

import pytest

from tests.unit.collector.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


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
