"""Amend the stored states of files: which files are selected, which are refused, and the effect."""

import gzip
from pathlib import Path

import pytest

from collector.amending import Amended, Amendment, amended, chosen
from collector.identity.checkpoints import Checkpoint, decode, decode_key
from collector.naming import is_meant
from tests.unit.collector.world import INSTANCE, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def amend(world: World, wanted: str, what: Amendment) -> dict[str, str | None]:
    """Stop the collector and amend its files. Return the selected files, each with the reason why
    it was not amended, or None."""
    world.down()
    stored: list[Checkpoint] = [decode(name, value) for name, value in world.stored.items()]
    present = {seen.path: seen.file for seen in world.walker.scan().seen}
    found: list[Amended] = chosen(stored, present, wanted, what)
    for key, value in amended(INSTANCE, found, what, world.now_ms).items():
        name = decode_key(key, INSTANCE)
        assert name is not None
        if value is None:
            del world.stored[name]
        else:
            world.stored[name] = value
    world.up()
    return {Path(one.checkpoint.path).name: one.refusal for one in found}


def test_a_file_is_read_from_its_start_once_more(world: World) -> None:
    world.write(5, "a")
    world.write(5, "b")
    world.look()
    assert amend(world, "a", Amendment.AGAIN) == {"a": None}
    world.write(1, "a")
    world.look()
    assert sorted(world.numbers) == sorted([*range(1, 11), *range(1, 6), 11])
    assert world.keys.count(b"a") == 11


def test_so_is_an_archive_though_it_is_a_copy(world: World) -> None:
    world.write(20, "a")
    world.move("a", "a.1")
    world.look()
    world.path("a.1.gz").write_bytes(gzip.compress(world.path("a.1").read_bytes()))
    world.path("a.1").unlink()
    world.look()
    world.quiet()
    assert len(world.lines) == 20
    found = amend(world, "a.1.gz", Amendment.AGAIN)
    assert found == {"a.1.gz": None}
    world.look()
    assert len(world.lines) == 40
    world.down()
    world.up()
    world.look()
    assert len(world.lines) == 40


def test_one_that_starts_at_the_end_is_read_from_its_start_then(tmp_path: Path) -> None:
    world = World(tmp_path, start="end")
    world.write(5, "a")
    world.look()
    world.write(2, "a")
    world.look()
    assert world.numbers == [6, 7]
    amend(world, "a", Amendment.AGAIN)
    world.look()
    assert world.numbers == [6, 7, *range(1, 8)]


def test_what_is_there_is_not_forgotten_and_what_is_gone_not_read_again(world: World) -> None:
    world.write(5, "a")
    world.write(5, "b")
    world.look()
    world.path("b").unlink()
    world.look()
    world.quiet()
    refusals = amend(world, "*", Amendment.FORGET)
    assert refusals["b"] is None
    assert "`" in str(refusals["a"]) and "collector again" in str(refusals["a"])
    assert [decode(name, value).path for name, value in world.stored.items()] == [
        str(world.path("a"))
    ]
    world.look()
    world.expect(10)


def test_a_file_that_is_gone_cannot_be_read_again(world: World) -> None:
    world.write(5, "a")
    world.look()
    world.path("a").unlink()
    assert "the file is gone" in str(amend(world, "a", Amendment.AGAIN)["a"])


def test_another_file_at_the_name_is_not_the_one_that_is_known(world: World) -> None:
    world.write(5, "a")
    world.look()
    world.down()
    world.path("b-new").write_bytes(world.new_lines(5))
    world.move("b-new", "a")
    world.up()
    assert amend(world, "a", Amendment.FORGET) == {"a": None}


@pytest.mark.parametrize(
    ("path", "wanted", "expected"),
    [
        ("/w/a.log", "/w/a.log", True),
        ("/w/a.log", "a.log", True),
        ("/w/aa.log", "a.log", False),
        ("/w/a.log", "*.log", True),
        (None, "*", False),
    ],
)
def test_who_is_meant(path: str | None, wanted: str, expected: bool) -> None:
    assert is_meant(path, wanted) is expected
