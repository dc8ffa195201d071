"""The collector's limits: known files, open files, and folders that disappear and come back."""

import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collector.descriptors import OTHERS_MAX, room_for
from collector.identity.sightings import State
from tests.unit.collector.world import World


def test_more_files_than_may_be_open_are_all_read_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open_files = 8
    world.up()
    for turn in range(3):
        for number in range(40):
            world.append(f"a{number}", b"%d of %d\n" % (turn, number))
        world.look()
        assert len(world.handles) <= 8
    world.expect(120, new=40)


def test_ten_thousand_files_are_open_at_once_where_the_system_allows_it() -> None:
    """The test runs in a separate process with the descriptor limit of a shell (1024)."""
    program = (
        "import os, resource, sys\n"
        "from collector.descriptors import room_for\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))\n"
        "room = room_for(10_000)\n"
        "held = [os.open(sys.executable, os.O_RDONLY) for _ in range(room)]\n"
        "print(room, len(held))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    room = 10_000 if hard == resource.RLIM_INFINITY else min(10_000, hard - OTHERS_MAX)
    assert done.stdout.split() == [str(room), str(room)]


def test_with_a_low_hard_limit_fewer_are_open() -> None:
    program = (
        "import resource\n"
        "from collector.descriptors import room_for\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, 400))\n"
        "print(room_for(10_000), *resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [str(400 - OTHERS_MAX), "400", "400"]
    assert room_for(8) == 8


@pytest.mark.parametrize("is_held", [True, False])
def test_a_folder_that_vanishes_and_returns_is_read_on(tmp_path: Path, is_held: bool) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    world = World(folder)
    world.write(5, "a")
    world.write(5, "b")
    world.look()
    if not is_held:
        world.handles.close_all()
    elsewhere = tmp_path / "elsewhere"
    folder.rename(elsewhere)
    world.look()
    world.quiet()
    assert {state.has_ended for state in world.states().values()} == {True}
    with (elsewhere / "a").open("ab") as out:
        out.write(world.new_lines(5))
    elsewhere.rename(folder)
    world.look()
    world.write(2, "b")
    world.look()
    world.expect(17, lost_possible=0)
    assert set(world.states().values()) == {State.LIVE}


def test_a_recreated_folder_gives_new_lines_only_once(tmp_path: Path) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    world = World(folder)
    world.write(5, "a")
    world.look()
    shutil.rmtree(folder)
    world.look()
    world.quiet()
    folder.mkdir()
    world.write(5, "a")
    world.look()
    world.expect(10, lost_possible=0)


@pytest.mark.slow
def test_a_hundred_thousand_files_are_known(tmp_path: Path) -> None:
    """All files are read once. A scan without changes, and a start, take seconds."""
    count = 100_000
    world = World(tmp_path)
    for number in range(count):
        descriptor = os.open(tmp_path / f"a{number}", os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, b"%d\n" % number)
        os.close(descriptor)
    world.look()
    assert sorted(world.numbers) == list(range(count))
    begun_s = time.perf_counter()
    world.scan()
    assert time.perf_counter() - begun_s < 5
    world.down()
    begun_s = time.perf_counter()
    world.up()
    world.scan()
    assert time.perf_counter() - begun_s < 60
    world.read()
    world.append("a77", b"100000\n")
    world.look()
    assert sorted(world.numbers) == list(range(count + 1))
