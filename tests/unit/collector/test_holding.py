"""Files that are rotated away while a collector does not know its positions yet."""

from pathlib import Path

import pytest

from collector.identity import holding
from collector.identity.checkpoints import decode
from collector.identity.holding import HeldFiles
from tests.unit.collector.world import EVENTS, World


class HoldingWorld(World):
    """A world whose collector starts while the brokers are away."""

    def begin_without_brokers(self) -> None:
        """Start the collector. It knows no positions yet."""
        stored, self.stored = self.stored, {}
        self.up()
        self.stored = stored
        self.held = HeldFiles(self.handles)
        self.note()

    def note(self) -> None:
        """Scan once more while the brokers are away."""
        self.held.note(self.walker.scan())

    def brokers_return(self) -> None:
        """Read the stored positions, and go on."""
        self.registry.start_over(decode(name, value) for name, value in self.stored.items())
        self.handles.keep(self.registry.files())
        self.held.replay(self.registry, lambda scan: self.feeder.reader.judge(scan, self.now_ms))
        self.look()
        self.quiet()


@pytest.fixture(params=[{}, EVENTS], ids=["lines", "events"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> HoldingWorld:
    return HoldingWorld(tmp_path, **request.param)


def test_a_file_that_is_deleted_before_the_brokers_return_is_read(world: HoldingWorld) -> None:
    world.write(20, "a")
    world.begin_without_brokers()
    world.write(5, "a")
    world.path("a").unlink()
    world.brokers_return()
    assert world.numbers == list(range(1, 26))
    assert len(world.handles) == 0


def test_several_rotations_lose_nothing_and_repeat_nothing(world: HoldingWorld) -> None:
    world.write(10, "a")
    world.look()
    world.down()
    world.write(5, "a")
    world.begin_without_brokers()
    for _ in range(3):
        world.path("a").unlink()
        world.write(4, "a")
        world.note()
    world.write(3, "a")
    world.brokers_return()
    assert sorted(world.numbers) == list(range(1, 31))


def test_a_file_that_is_only_renamed_is_read_once(world: HoldingWorld) -> None:
    world.write(10, "a")
    world.look()
    world.down()
    world.begin_without_brokers()
    world.write(5, "a")
    world.move("a", "a.1")
    world.write(2, "a")
    world.note()
    world.brokers_return()
    assert sorted(world.numbers) == list(range(1, 18))
    world.write(1, "a")
    world.look()
    assert sorted(world.numbers) == list(range(1, 19))


def test_no_more_files_are_held_than_may_be_open(world: HoldingWorld) -> None:
    world.open_files = 8
    for index in range(20):
        world.write(1, f"a{index}")
    world.begin_without_brokers()
    assert len(world.handles.by_file()) == 8
    world.brokers_return()
    assert sorted(world.numbers) == list(range(1, 21))


def test_held_files_that_no_input_reads_any_more_are_closed(world: HoldingWorld) -> None:
    world.write(1, "a")
    world.begin_without_brokers()
    assert len(world.handles.by_file()) == 1
    world.held.replay(world.registry, lambda scan: None)
    assert world.handles.by_file() == {}


@pytest.mark.parametrize("rotates", [False, True])
def test_an_unfinished_line_that_goes_away_is_no_lost_line(
    world: HoldingWorld, rotates: bool
) -> None:
    """A program shows its progress at the end of a file and takes it back. The stored scan has the
    larger size."""
    world.write(10, "a")
    world.write(10, "b")
    world.look()
    world.down()
    size = world.path("a").stat().st_size
    world.append("a", b"progress " + b"." * 200)
    world.begin_without_brokers()
    with world.path("a").open("r+b") as file:
        file.truncate(size)
    world.write(1, "a")
    if rotates:
        world.path("b").unlink()
        world.write(1, "b")
    world.brokers_return()
    assert sorted(world.numbers) == list(range(1, 23 if rotates else 22))
    assert world.registry.counters["lost_possible"] == 0


def test_scans_take_a_bounded_memory(world: HoldingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that only a scan beyond the limit finds is not held, and its lines are lost with it.
    Files that stay are read as ever."""
    monkeypatch.setattr(holding, "SIGHTINGS_MAX", 2)
    world.write(10, "a")
    world.begin_without_brokers()
    world.write(5, "b")
    world.note()
    world.write(5, "b2")
    world.path("b").unlink()
    world.brokers_return()
    assert sorted(world.numbers) == [*range(1, 11), *range(16, 21)]
