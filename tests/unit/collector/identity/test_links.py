"""Folders behind symbolic links are scanned. Each real folder is scanned once, and loops are not
followed."""

import asyncio
import os
from pathlib import Path

from collector.identity.files import Walker
from collector.identity.watch import Watch
from tests.unit.collector.identity.test_files import file_id, walker
from tests.unit.collector.identity.test_watch import Ears, watched
from tests.unit.collector.world import World


def write(path: Path, text: str = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(walk: Walker, folder: Path) -> list[str]:
    scan = walk.scan()
    assert scan.is_complete, scan.problems
    return sorted(os.path.relpath(seen.path, folder) for seen in scan.seen)


def test_a_folder_behind_a_link_is_read_once_over_restarts(tmp_path: Path) -> None:
    """The folder is a release folder with a link `current`, as in many deployments."""
    write(tmp_path / "rel1" / "app.log", "a\n")
    world = World(write(tmp_path / "watched" / "x").parent, ["current/**", "**"])
    (world.folder / "x").unlink()
    (world.folder / "current").symlink_to(tmp_path / "rel1")
    world.look()
    assert world.lines == [b"a"]
    world.down()
    world.up()
    world.look()
    assert world.lines == [b"a"]


def test_a_link_that_leads_to_the_next_release_loses_and_doubles_nothing(tmp_path: Path) -> None:
    for release in ("rel1", "rel2"):
        write(tmp_path / release / "app.log", f"{release}\n")
    folder = tmp_path / "watched"
    folder.mkdir()
    world = World(folder, ["**"])
    link = folder / "current"
    link.symlink_to(tmp_path / "rel1")
    world.look()
    with (tmp_path / "rel1" / "app.log").open("a") as out:
        out.write("late\n")
    link.unlink()
    link.symlink_to(tmp_path / "rel2")
    world.look()
    assert sorted(world.lines) == [b"late", b"rel1", b"rel2"]
    link.unlink()
    link.symlink_to(tmp_path / "rel1")
    world.look()
    world.quiet()
    assert sorted(world.lines) == [b"late", b"rel1", b"rel2"]


def test_a_real_folder_is_read_under_its_own_name(tmp_path: Path) -> None:
    write(tmp_path / "rel1" / "app.log")
    (tmp_path / "current").symlink_to("rel1")
    (tmp_path / "a-second").symlink_to(tmp_path / "current")
    assert names(walker(tmp_path, "**"), tmp_path) == ["rel1/app.log"]
    assert names(walker(tmp_path, "*/app.log"), tmp_path) == ["rel1/app.log"]


def test_two_links_to_one_folder_outside_are_read_once(tmp_path: Path) -> None:
    write(tmp_path / "srv" / "app.log")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").symlink_to("../srv")
    (tmp_path / "in" / "b").symlink_to("../srv")
    assert names(walker(tmp_path, "in/**"), tmp_path) == ["in/a/app.log"]


def test_a_name_that_only_the_link_has_is_matched(tmp_path: Path) -> None:
    """The real folder is scanned too, but no glob matches its real path."""
    write(tmp_path / "app" / "v1" / "x.log")
    (tmp_path / "app" / "cur").symlink_to("v1")
    assert names(walker(tmp_path, "*/cur/*.log"), tmp_path) == ["app/cur/x.log"]
    assert names(walker(tmp_path, "**/cur/*.log"), tmp_path) == ["app/cur/x.log"]


def test_another_input_has_the_file_by_its_real_name(tmp_path: Path) -> None:
    write(tmp_path / "b" / "x.log")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to("../b")
    (seen,) = walker(tmp_path, "a/**", "b/**").scan().seen
    assert (seen.path, seen.input_index) == (str(tmp_path / "b" / "x.log"), 1)


def test_loops_of_links_end_and_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a" / "x.log")
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "a" / "root").symlink_to("/")
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "a" / "b").mkdir()
    (tmp_path / "c").mkdir()
    (tmp_path / "a" / "b" / "to-c").symlink_to(tmp_path / "c")
    (tmp_path / "c" / "to-b").symlink_to(tmp_path / "a" / "b")
    write(tmp_path / "c" / "y.log")
    walk = walker(tmp_path, "**")
    assert names(walk, tmp_path) == ["a/x.log", "c/y.log"]
    passed = [text.partition(":")[0] for text in walk.scan().passed]
    assert passed == [str(tmp_path / "a" / "root"), str(tmp_path / "a" / "up")]


def test_folders_that_all_link_to_each_other_are_each_read_once(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for one in range(8):
        write(outside / str(one) / "x.log")
        for other in range(8):
            (outside / str(one) / f"to{other}").symlink_to(outside / str(other))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(outside / "0")
    found = walker(tmp_path, "in/**").scan().seen
    assert len(found) == len({seen.file for seen in found}) == 8


def test_a_link_that_leads_nowhere_is_named_and_breaks_no_scan(tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(tmp_path / "gone")
    scan = walker(tmp_path, "**").scan()
    assert (scan.seen, scan.is_complete) == ((), True)
    assert "leads nowhere" in scan.passed[0]


def test_links_are_excluded_by_their_names(tmp_path: Path) -> None:
    """For example, Kubernetes mounts a ConfigMap through a link `..data` to a hidden folder."""
    write(tmp_path / "..2024" / "app.log")
    (tmp_path / "..data").symlink_to("..2024")
    (tmp_path / "app.log").symlink_to("..data/app.log")
    assert names(walker(tmp_path, "**"), tmp_path) == ["app.log"]


def test_folders_behind_links_are_watched(tmp_path: Path) -> None:
    write(tmp_path / "srv" / "deep" / "app.log")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("../srv")
    walk = walker(tmp_path / "in", "**")
    walk.scan()
    roots = walk.roots()
    assert roots[str(tmp_path / "in" / "link")] == (file_id(tmp_path / "srv"), True)

    async def work(watch: Watch, ears: Ears) -> None:
        watch.sync(roots, 0)
        assert watch.problems == {}
        write(tmp_path / "srv" / "new.log")
        write(tmp_path / "srv" / "deep" / "app.log", "more\n")
        await ears.until(lambda: {"new.log", "app.log"} <= ears.paths)

    watched(work)


def test_the_paths_that_a_watch_tells_are_those_that_a_scan_finds(tmp_path: Path) -> None:
    write(tmp_path / "srv" / "app.log")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("../srv")
    walk = walker(tmp_path / "in", "**")
    (seen,) = walk.scan().seen
    told: set[str] = set()

    async def run() -> None:
        changed = asyncio.Event()

        def hear(paths: frozenset[str], names_changed: bool) -> None:
            told.update(paths)
            changed.set()

        watch = Watch(asyncio.get_running_loop(), hear)
        watch.start()
        try:
            watch.sync(walk.roots(), 0)
            write(tmp_path / "srv" / "app.log", "more\n")
            async with asyncio.timeout(10):
                while seen.path not in told:
                    changed.clear()
                    await changed.wait()
        finally:
            watch.stop()

    asyncio.run(run())
