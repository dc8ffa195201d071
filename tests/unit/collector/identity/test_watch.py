"""The watch for changes in a real folder: it reports changed paths to the event loop."""

import asyncio
import errno
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from watchdog.observers.inotify_c import InotifyFD

from collector.identity.watch import RETRY_MS, Watch
from collector.text.fingerprint import FileId


class Ears:
    """Records what the watch reports."""

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
        watch.sync(folders(tmp_path), 0)
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


def test_a_recreated_folder_is_watched_again(tmp_path: Path) -> None:
    async def work(watch: Watch, ears: Ears) -> None:
        folder = tmp_path / "w"
        folder.mkdir()
        watch.sync(folders(folder), 0)
        folder.rename(tmp_path / "old")
        folder.mkdir()
        watch.sync(folders(folder), 0)
        (folder / "a").write_text("x")
        await ears.until(lambda: "a" in ears.paths)

    watched(work)


def test_a_folder_that_cannot_be_watched_is_named(tmp_path: Path) -> None:
    async def work(watch: Watch, ears: Ears) -> None:
        watch.sync({str(tmp_path / "none"): (FileId(1, 2), True)}, 0)
        assert "No such file" in watch.problems[str(tmp_path / "none")]
        watch.sync({}, 0)
        assert watch.problems == {}

    watched(work)


def test_a_lost_event_queue_asks_for_a_scan(tmp_path: Path) -> None:
    async def work(watch: Watch, ears: Ears) -> None:
        logging.getLogger("watchdog.observers.inotify_c").warning("Inotify queue overflowed; …")
        await ears.until(lambda: ears.scans == 1)
        assert watch.overflows == 1

    watched(work)


LIMITED = """
import pathlib, sys
from tests.unit.collector.identity.test_watch import few_watches
few_watches(pathlib.Path(sys.argv[1]))
"""


def few_watches(folder: Path) -> None:
    """Run in a new user namespace, because the limit on watches then applies to this process
    alone."""
    limit = Path("/proc/sys/user/max_inotify_watches")
    limit.write_text("3")
    for index in range(6):
        (folder / f"{index}").mkdir()

    async def work(watch: Watch, ears: Ears) -> None:
        watch.sync(folders(folder), 0)
        (text,) = watch.problems.values()
        assert text.startswith("4 folders below are not watched, for example "), text
        assert text.endswith("inotify watch limit reached"), text
        limit.write_text("100")
        watch.sync(folders(folder), RETRY_MS - 1)
        assert watch.problems
        watch.sync(folders(folder), RETRY_MS)
        assert not watch.problems
        (folder / "5" / "a").write_text("x")
        await ears.until(lambda: "a" in ears.paths)

    watched(work)


def test_a_watch_limit_that_is_reached_below_a_folder_is_told(tmp_path: Path) -> None:
    alone = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")
    done = subprocess.run(
        [*alone, sys.executable, "-c", LIMITED, str(tmp_path)],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def refuse() -> int:
    """Refuse an inotify instance, as watchdog does when the kernel has given all."""
    raise OSError(errno.EMFILE, "inotify instance limit reached")


def test_a_host_without_a_free_inotify_instance_is_watched_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many programs of one user can use up fs.inotify.max_user_instances, which is often 128."""

    async def work(watch: Watch, ears: Ears) -> None:
        watch.sync(folders(tmp_path), 0)
        reason = "inotify instance limit reached: raise fs.inotify.max_user_instances"
        assert watch.problems == {str(tmp_path): reason}
        monkeypatch.undo()
        watch.sync(folders(tmp_path), RETRY_MS - 1)
        assert watch.problems
        watch.sync(folders(tmp_path), RETRY_MS)
        assert not watch.problems
        (tmp_path / "a").write_text("x")
        await ears.until(lambda: "a" in ears.paths)

    monkeypatch.setattr(InotifyFD, "_create_inotify_fd", staticmethod(refuse))
    watched(work)


def test_a_watch_that_never_began_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(watch: Watch, ears: Ears) -> None:
        watch.sync(folders(tmp_path), 0)

    monkeypatch.setattr(InotifyFD, "_create_inotify_fd", staticmethod(refuse))
    watched(work)
