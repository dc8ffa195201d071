"""The wake-up, on a real folder: events in, changed paths out, in the loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from collector.fingerprint import FileId
from collector.watch import Watch


class Ears:
    """What the watch told."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.scans = 0
        self.told = asyncio.Event()

    def hear(self, paths: frozenset[str], names_changed: bool) -> None:
        self.paths |= {Path(path).name for path in paths}
        self.scans += names_changed
        self.told.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.told.clear()
                await self.told.wait()


def watched(work: Callable[[Watch, Ears], Awaitable[None]]) -> None:
    async def run() -> None:
        ears = Ears()
        watch = Watch(asyncio.get_running_loop(), ears.hear)
        watch.start()
        try:
            await work(watch, ears)
        finally:
            watch.stop()

    asyncio.run(run())


def folders(path: Path) -> dict[str, tuple[FileId, bool]]:
    found = path.stat()
    return {str(path): (FileId(found.st_dev, found.st_ino), True)}


def test_changes_below_a_folder_are_told(tmp_path: Path) -> None:
    async def work(watch: Watch, ears: Ears) -> None:
        watch.sync(folders(tmp_path))
        (tmp_path / "a").write_text("x")
        await ears.until(lambda: "a" in ears.paths and ears.scans > 0)
        scans = ears.scans
        ears.paths.clear()
        with (tmp_path / "a").open("a") as writer:
            writer.write("more")
        await ears.until(lambda: "a" in ears.paths)
        assert ears.scans == scans
        (tmp_path / "a").rename(tmp_path / "b")
        await ears.until(lambda: "b" in ears.paths and ears.scans > scans)

    watched(work)


def test_a_folder_made_anew_is_watched_again(tmp_path: Path) -> None:
    async def work(watch: Watch, ears: Ears) -> None:
        folder = tmp_path / "w"
        folder.mkdir()
        watch.sync(folders(folder))
        folder.rename(tmp_path / "old")
        folder.mkdir()
        watch.sync(folders(folder))
        (folder / "a").write_text("x")
        await ears.until(lambda: "a" in ears.paths)

    watched(work)


def test_a_folder_that_cannot_be_watched_is_named(tmp_path: Path) -> None:
    async def work(watch: Watch, ears: Ears) -> None:
        watch.sync({str(tmp_path / "none"): (FileId(1, 2), True)})
        assert "No such file" in watch.problems[str(tmp_path / "none")]
        watch.sync({})
        assert watch.problems == {}

    watched(work)


def test_a_lost_event_queue_asks_for_a_scan(tmp_path: Path) -> None:
    async def work(watch: Watch, ears: Ears) -> None:
        logging.getLogger("watchdog.observers.inotify_c").warning("Inotify queue overflowed; …")
        await ears.until(lambda: ears.scans == 1)
        assert watch.overflows == 1

    watched(work)
