"""Group commit: the logs in each sync, and the effect of a failed sync."""

import asyncio
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from broker.real.warmer import Warmer
from broker.real.world import LoopWorld
from broker.replicas.flusher import FLUSH_THREADS, Flusher
from broker.storage.disk import FileRegion, OsDisk
from broker.storage.errors import DiskError
from broker.storage.flush import FlushTarget
from broker.storage.log import Log

# The doubles inherit from a class that can be compiled. The flusher itself is not compiled.
pytestmark = pytest.mark.interpreted


class SlowTarget(FlushTarget):
    """A sync that ends when the test says so."""

    def __init__(self, log: "FakeLog", end_offset: int) -> None:
        self.log = log
        self.end_offset = end_offset

    def perform(self) -> None:
        self.log.syncs += 1
        assert self.log.may_end.wait(20)
        if self.log.error is not None:
            raise self.log.error


class FakeLog(Log):
    """A double of a log that has only the three methods which the flusher calls."""

    def __init__(self) -> None:
        self.end = 0
        self.recovery_point = 0
        self.syncs = 0
        self.may_end = threading.Event()
        self.error: DiskError | None = None
        self.refused = 0
        self.is_out_of_reach = False

    def flush_target(self) -> FlushTarget | None:
        if self.is_out_of_reach:
            raise DiskError("f", "open", errno.EMFILE)
        return SlowTarget(self, self.end) if self.recovery_point < self.end else None

    def flush_refused(self, target: FlushTarget) -> None:
        self.refused += 1

    def flushed(self, target: FlushTarget) -> int:
        self.recovery_point = max(self.recovery_point, target.end_offset)
        return self.recovery_point


def _die(reason: str) -> NoReturn:
    raise AssertionError(reason)


class Bench:
    """A flusher, and its reports."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        world = LoopWorld(loop, _die, 1 << 20, 1 << 20)
        self.flushed: list[Log] = []
        noted: Any = SimpleNamespace(flushed=self.flushed.append)
        self.failed: list[Exception] = []
        self.took_ns: list[int] = []
        self.refused: list[Log] = []
        self.flusher = Flusher(
            world,
            self.failed.append,
            self.took_ns.append,
            lambda log, error: self.refused.append(log),
        )
        self.flusher.report_to(noted)

    async def begin(self, log: FakeLog) -> None:
        """Mark a log for a sync, and wait until the sync has started."""
        self.flusher.mark(log)
        async with asyncio.timeout(20):
            while not log.syncs:
                await asyncio.sleep(0)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.flushed) + len(self.failed) < count:
                await asyncio.sleep(0)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_hears_how_the_syncs_under_way_have_ended(
    runner: asyncio.Runner, fails: bool
) -> None:
    """`stop` returns the result, because a stopped loop gets no report. A second sync of the file
    would succeed although the first one failed."""

    async def run() -> None:
        bench = Bench(asyncio.get_running_loop())
        log = FakeLog()
        log.end = 1
        log.error = DiskError("f", "fdatasync") if fails else None
        await bench.begin(log)
        threading.Timer(0.05, log.may_end.set).start()
        assert bench.flusher.stop() is not fails

    runner.run(run())


def test_a_stop_does_not_wait_for_ever(
    runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.replicas.flusher.STOP_S_MAX", 0.05)

    async def run() -> None:
        bench = Bench(asyncio.get_running_loop())
        log = FakeLog()
        log.end = 1
        await bench.begin(log)
        assert not bench.flusher.stop()
        log.may_end.set()

    runner.run(run())


def test_a_log_that_is_kept_apart_holds_up_no_other_one(runner: asyncio.Runner) -> None:
    """This holds even if all other workers are busy: neither kind of log waits for a worker of the
    other."""

    async def run() -> None:
        bench = Bench(asyncio.get_running_loop())
        copied, *others = logs = [FakeLog() for _ in range(FLUSH_THREADS + 2)]
        bench.flusher.keep_apart(copied, True)
        for log in logs:
            log.end = 1
            if log is not copied:
                log.may_end.set()
            bench.flusher.mark(log)
        await bench.until(len(others))
        assert copied.syncs == 1
        assert set(bench.flushed) == set(others)
        # `copied` is marked again during its own sync, and `others[0]` is kept apart as well.
        copied.end = 2
        others[0].end = 2
        bench.flusher.keep_apart(others[0], True)
        bench.flusher.mark(copied)
        bench.flusher.mark(others[0])
        copied.may_end.set()
        await bench.until(len(others) + 3)
        assert (copied.recovery_point, others[0].recovery_point) == (2, 2)
        # `copied` is synced together with the others again.
        bench.flusher.keep_apart(copied, False)
        copied.end = 3
        bench.flusher.mark(copied)
        await bench.until(len(others) + 4)
        assert bench.flusher.is_idle
        assert bench.flusher.stop()

    runner.run(run())


def test_what_is_written_during_a_sync_shares_the_next(runner: asyncio.Runner) -> None:
    async def run() -> None:
        bench = Bench(asyncio.get_running_loop())
        log = FakeLog()
        log.end = 1
        await bench.begin(log)
        for end in (2, 3, 4):
            log.end = end
            bench.flusher.mark(log)
        assert log.recovery_point == 0
        log.may_end.set()
        await bench.until(2)
        assert log.syncs == 2
        assert len(bench.took_ns) == 2 and min(bench.took_ns) > 0
        assert log.recovery_point == 4
        assert bench.flusher.is_idle
        bench.flusher.stop()

    runner.run(run())


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_log_waits_for_a_descriptor(
    runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch, is_planned: bool
) -> None:
    """The log is synced once a descriptor is free. In the meantime other logs are synced, and a
    waiter for idle files does not wait for this log."""
    monkeypatch.setattr("broker.replicas.flusher.RETRY_MS", 10)

    async def run() -> None:
        bench = Bench(asyncio.get_running_loop())
        short, other = FakeLog(), FakeLog()
        for log in (short, other):
            log.end = 1
            log.may_end.set()
        if is_planned:
            short.error = DiskError("f", "sync folder", errno.EMFILE)
        else:
            short.is_out_of_reach = True
        bench.flusher.mark(short)
        async with asyncio.timeout(20):
            while len(bench.refused) < 2:
                await asyncio.sleep(0)
        assert short.recovery_point == 0
        assert short.refused == (len(bench.refused) if is_planned else 0)
        assert not bench.flusher.is_idle
        drained: list[bool] = []
        bench.flusher.drain([short], lambda: drained.append(True))
        bench.flusher.mark(other)
        await bench.until(1)
        assert bench.flushed == [other]
        async with asyncio.timeout(20):
            while not drained:
                await asyncio.sleep(0)
        short.error, short.is_out_of_reach = None, False
        await bench.until(2)
        assert bench.flushed == [other, short]
        assert short.recovery_point == 1
        assert not bench.failed
        assert bench.flusher.stop()

    runner.run(run())


def test_what_cannot_be_opened_for_another_reason_ends_the_process(runner: asyncio.Runner) -> None:
    async def run() -> None:
        bench = Bench(asyncio.get_running_loop())
        log = FakeLog()
        log.end = 1
        log.may_end.set()
        log.error = DiskError("f", "sync folder", errno.ENOENT)
        bench.flusher.mark(log)
        await bench.until(1)
        assert bench.failed == [log.error]
        bench.flusher.stop()

    runner.run(run())


def test_many_logs_are_synced_side_by_side(runner: asyncio.Runner) -> None:
    async def run() -> None:
        bench = Bench(asyncio.get_running_loop())
        logs = [FakeLog() for _ in range(10)]
        for log in logs:
            log.end = 1
            bench.flusher.mark(log)
        slow = logs[0]
        for log in logs[1:]:
            log.may_end.set()
        async with asyncio.timeout(20):
            while not slow.syncs or not any(one.recovery_point for one in logs):
                await asyncio.sleep(0)
        slow.may_end.set()
        await bench.until(10)
        assert set(bench.flushed) == set(logs)
        bench.flusher.stop()

    runner.run(run())


def test_a_log_without_anything_new_is_not_synced(runner: asyncio.Runner) -> None:
    async def run() -> None:
        bench = Bench(asyncio.get_running_loop())
        log = FakeLog()
        bench.flusher.mark(log)
        await asyncio.sleep(0)
        assert bench.flusher.is_idle
        assert not log.syncs

    runner.run(run())


def test_a_refused_sync_is_reported_and_counts_for_nothing(runner: asyncio.Runner) -> None:
    async def run() -> None:
        bench = Bench(asyncio.get_running_loop())
        log = FakeLog()
        log.end = 1
        log.error = DiskError("log", "fdatasync")
        log.may_end.set()
        bench.flusher.mark(log)
        await bench.until(1)
        assert bench.failed == [log.error]
        assert log.recovery_point == 0
        assert not bench.flushed

    runner.run(run())


def test_a_drain_waits_for_the_sync_under_way_and_lets_none_begin(
    runner: asyncio.Runner,
) -> None:
    async def run() -> None:
        bench = Bench(asyncio.get_running_loop())
        log, other = FakeLog(), FakeLog()
        log.end = other.end = 1
        drained: list[int] = []
        bench.flusher.drain([log, other], lambda: drained.append(-1))
        assert drained == [-1]
        await bench.begin(log)
        log.end = 2
        bench.flusher.mark(log)
        bench.flusher.drain([log, other], lambda: drained.append(log.syncs))
        bench.flusher.mark(other)
        other.may_end.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (drained, other.syncs) == ([-1], 0)
        log.may_end.set()
        await bench.until(3)
        # A log that was marked during the drain is synced afterwards.
        assert drained == [-1, 1]
        assert (log.recovery_point, other.recovery_point) == (2, 1)
        bench.flusher.stop()

    runner.run(run())


def test_the_warmer_reads_regions_and_reports(runner: asyncio.Runner, tmp_path: Path) -> None:
    async def run() -> None:
        warmer = Warmer(asyncio.get_running_loop())
        (tmp_path / "log").write_bytes(bytes(700_000))
        file = OsDisk().open(str(tmp_path / "log"))
        inside, beyond = FileRegion(file, 10, 600_000), FileRegion(file, 650_000, 900_000)
        assert not warmer.is_cold(inside)
        assert not warmer.is_cold(FileRegion(file, 0, 0))
        for region in (inside, beyond):
            done = asyncio.Event()
            warmer.warm(region, done.set)
            async with asyncio.timeout(20):
                await done.wait()
        warmer.stop()

    runner.run(run())
