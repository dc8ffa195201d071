"""The sending half of a connection: order, large regions, slow peers, and the end."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.real import output
from broker.real.output import ConnectionOutput, OutputPorts, PeerTooSlow
from broker.storage.disk import FileRegion, OsDisk


class Disk:
    """A double of the disk. All regions are cold or none is, and the test completes the reads."""

    def __init__(self, *, is_cold: bool = False) -> None:
        self.is_all_cold = is_cold
        self.warming: list[tuple[int, int]] = []
        self.done: list[Callable[[], None]] = []

    def is_cold(self, region: FileRegion) -> bool:
        return self.is_all_cold

    def warm(self, region: FileRegion, done: Callable[[], None]) -> None:
        self.warming.append((region.position, len(region)))
        self.done.append(done)


MEMORY_BYTES_MAX = 8 << 20


class Wire:
    """A `ConnectionOutput` on one end of a socket pair. `read` empties the other end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, disk: Disk | None = None) -> None:
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.theirs.setblocking(False)
        self.drained = 0
        self.broken: list[Exception] = []
        ports = OutputPorts(
            loop, self._note_drained, self.broken.append, disk or Disk(), MEMORY_BYTES_MAX
        )
        self.output = ConnectionOutput(ours, ports)

    def _note_drained(self) -> None:
        self.drained += 1

    async def read(self, count: int) -> bytes:
        loop = asyncio.get_running_loop()
        data = bytearray()
        while len(data) < count:
            data += await loop.sock_recv(self.theirs, 1 << 20)
        return bytes(data)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def region(folder: Path, size_bytes: int) -> tuple[FileRegion, bytes]:
    content = os.urandom(size_bytes + 20)
    (folder / "segment").write_bytes(content)
    file = OsDisk().open(str(folder / "segment"))
    return FileRegion(file, 10, size_bytes), content[10 : 10 + size_bytes]


@pytest.mark.parametrize("size_bytes", [100, output.SENDFILE_BYTES_MIN, 3 << 20])
def test_regions_and_bytes_arrive_in_order(
    runner: asyncio.Runner, tmp_path: Path, size_bytes: int
) -> None:
    async def run() -> None:
        wire = Wire(asyncio.get_running_loop())
        part, content = region(tmp_path, size_bytes)
        wire.output.push([b"head", part, b"tail", part])
        wire.output.send()
        expected = b"head" + content + b"tail" + content
        assert await wire.read(len(expected)) == expected
        assert wire.output.send(), "all has left"
        wire.output.close()

    runner.run(run())


@pytest.mark.parametrize("size_bytes", [100, output.TURN_BYTES_MAX + 7])
def test_cold_regions_are_read_by_somebody_else_first(
    runner: asyncio.Runner, tmp_path: Path, size_bytes: int
) -> None:
    async def run() -> None:
        disk = Disk(is_cold=True)
        wire = Wire(asyncio.get_running_loop(), disk)
        part, content = region(tmp_path, size_bytes)
        wire.output.push([b"head", part, b"tail"])
        wire.output.send()
        received = await wire.read(4)
        for number in range(-(-size_bytes // output.TURN_BYTES_MAX)):
            while len(disk.done) == number:
                await asyncio.sleep(0)
            with pytest.raises(BlockingIOError):
                wire.theirs.recv(1)
            disk.done[number]()
            left = 4 + size_bytes - len(received)
            received += await wire.read(min(left, output.TURN_BYTES_MAX))
        received += await wire.read(4 + len(content) + 4 - len(received))
        assert received == b"head" + content + b"tail"
        assert sum(size for _, size in disk.warming) == size_bytes
        wire.output.close()

    runner.run(run())


def test_a_connection_that_ends_while_warming_is_left_alone(
    runner: asyncio.Runner, tmp_path: Path
) -> None:
    async def run() -> None:
        disk = Disk(is_cold=True)
        wire = Wire(asyncio.get_running_loop(), disk)
        part, _ = region(tmp_path, 1_000)
        wire.output.push([part])
        wire.output.send()
        wire.output.close()
        disk.done[0]()
        assert not wire.broken
        assert not wire.drained

    runner.run(run())


def test_a_slow_peer_gets_everything_in_the_end(runner: asyncio.Runner) -> None:
    async def run() -> None:
        wire = Wire(asyncio.get_running_loop())
        pieces: list[Any] = [bytes([number]) * 100_000 for number in range(40)]
        wire.output.push(pieces)
        assert not wire.output.send(), "the peer's window is full"
        assert await wire.read(4_000_000) == b"".join(pieces)
        assert wire.drained == 1
        wire.output.close()

    runner.run(run())


def test_a_peer_that_never_reads_is_given_up(runner: asyncio.Runner) -> None:
    async def run() -> None:
        wire = Wire(asyncio.get_running_loop())
        piece = bytes(1 << 20)
        with pytest.raises(PeerTooSlow):
            for _ in range(MEMORY_BYTES_MAX // len(piece) + 2):
                wire.output.push([piece])
        wire.output.close()

    runner.run(run())


def test_a_region_that_ends_early_breaks_the_connection(
    runner: asyncio.Runner, tmp_path: Path
) -> None:
    async def run() -> None:
        wire = Wire(asyncio.get_running_loop())
        for size_bytes in (100, output.SENDFILE_BYTES_MIN):
            part, _ = region(tmp_path, size_bytes)
            os.truncate(part.file.path, 0)
            wire.output.push([part])
            with pytest.raises(OSError, match="is shorter than the part"):
                wire.output.send()
            wire.output.close()
            wire = Wire(asyncio.get_running_loop())
        wire.output.close()

    runner.run(run())


def test_a_peer_that_has_gone_is_reported_once(runner: asyncio.Runner) -> None:
    async def run() -> None:
        wire = Wire(asyncio.get_running_loop())
        wire.output.push([bytes(4 << 20)])
        wire.output.send()
        wire.theirs.close()
        while not wire.broken:
            await asyncio.sleep(0)
        assert isinstance(wire.broken[0], ConnectionError)
        wire.output.close()

    runner.run(run())
