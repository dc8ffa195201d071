"""TLS links on real sockets, with both loops, against Python's own blocking TLS."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from broker.real import tls_link
from broker.real.handshakes import UNDER_WAY_MAX
from broker.storage.disk import FileRegion, OsDisk
from broker.world import End
from tests.harness.certificates import TestAuthority
from tests.unit.broker.real.test_dialling import LOOPBACK, PATIENCE_S, Heard, until
from tests.unit.broker.real.tls_world import (
    FRAME_BYTES_MAX,
    UNREAD_BYTES_MAX,
    Listening,
    frame,
    in_thread,
    received,
)


def test_frames_go_both_ways(runner: asyncio.Runner, authority: TestAuthority) -> None:
    async def run() -> None:
        there = Listening(authority)
        client = await there.client()
        client.sendall(frame(b"ask"))
        await until(lambda: there.made[0].frames)
        assert there.made[0].frames == [b"ask"]
        there.made[0].link.send([frame(b"told")])
        assert await received(client, 8) == frame(b"told")
        client.close()
        await until(lambda: there.made[0].ends)
        assert there.made[0].ends == [End.EOF]
        there.close()

    runner.run(run())


def test_large_frames_and_regions_of_files(
    runner: asyncio.Runner, authority: TestAuthority, tmp_path: Path
) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "segment").write_bytes(b"before" + content + b"behind")
    file = OsDisk().open(str(tmp_path / "segment"))

    async def run() -> None:
        there = Listening(authority)
        client = await there.client()
        body = os.urandom(FRAME_BYTES_MAX)
        await in_thread(lambda: client.sendall(frame(body)))
        await until(lambda: there.made[0].frames)
        assert there.made[0].frames == [body]
        small = FileRegion(file, 0, 6)
        link = there.made[0].link
        link.send([b"head", FileRegion(file, 6, len(content)), small, body[:300_000]])
        wanted = b"head" + content + b"before" + body[:300_000]
        assert await received(client, len(wanted)) == wanted
        await until(lambda: not link.is_stalled)
        client.close()
        there.close()

    runner.run(run())


def test_frames_that_come_together_with_the_end_of_the_handshake(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    """A client may send frames together with the end of its handshake, even more bytes than a
    handshake may have."""
    bodies = [bytes([number]) * 50_000 for number in range(8)]

    def talk(client: socket.socket) -> None:
        context = ssl.create_default_context(cafile=authority.file)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname=LOOPBACK)
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                client.sendall(outgoing.read())
                incoming.write(client.recv(10_000))
            else:
                break
        whole = memoryview(b"".join(frame(body) for body in bodies))
        while whole:
            whole = whole[tls.write(whole) :]
        client.sendall(outgoing.read())

    async def run() -> None:
        there = Listening(authority)
        with there.plain() as client:
            await in_thread(lambda: talk(client))
            await until(lambda: len(there.made[0].frames) == len(bodies) or there.made[0].ends)
            assert there.made[0].frames == bodies
        there.close()

    runner.run(run())


def test_a_region_longer_than_its_file_ends_the_link(
    runner: asyncio.Runner, authority: TestAuthority, tmp_path: Path
) -> None:
    (tmp_path / "segment").write_bytes(b"short")
    file = OsDisk().open(str(tmp_path / "segment"))

    async def run() -> None:
        there = Listening(authority)
        client = await there.client()
        await until(lambda: there.made[0].link)
        there.made[0].link.send([FileRegion(file, 0, 100)])
        await until(lambda: there.made[0].ends)
        assert there.made[0].ends == [End.CLOSED]
        client.close()
        there.close()

    runner.run(run())


class Paused(Heard):
    """A receiver that takes one frame and pauses, as a busy session does."""

    def take(self, frames: Iterator[memoryview]) -> None:
        one = next(frames, None)
        if one is not None:
            self.frames.append(bytes(one))
            self.link.pause()


def test_pitfall_29_frames_that_wait_are_served_while_the_socket_is_silent(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    """All frames came in one read. The socket reports nothing more, but each frame must be
    served."""

    async def run() -> None:
        there = Listening(authority, receiver=Paused)
        client = await there.client()
        bodies = [bytes([number]) * 3_000 for number in range(60)]
        await in_thread(lambda: client.sendall(b"".join(frame(body) for body in bodies)))
        await until(lambda: there.made[0].frames)
        receiver = there.made[0]
        for number in range(1, len(bodies)):
            receiver.take(receiver.link.left())
            if len(receiver.frames) == number:
                receiver.link.resume()
                await until(lambda: receiver.link.is_paused)
        assert receiver.frames == bodies
        client.close()
        receiver.link.resume()
        await until(lambda: receiver.ends)
        assert receiver.ends == [End.EOF]
        there.close()

    runner.run(run())


def test_pitfall_29_a_frame_cut_over_records_needs_no_more_bytes(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    async def run() -> None:
        there = Listening(authority)
        client = await there.client()
        body = os.urandom(40_000)
        whole = frame(body)
        for start in range(0, len(whole), 1_000):
            client.sendall(whole[start : start + 1_000])
        await until(lambda: there.made[0].frames)
        assert there.made[0].frames == [body]
        client.close()
        there.close()

    runner.run(run())


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (frame(b"\0\x12\0\x04\0\0\0\x01\0\x02me"), "a client without TLS came to a TLS listener"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request came to a listener for Kafka clients"),
    ],
)
def test_pitfall_30_plain_bytes_on_a_tls_listener(
    runner: asyncio.Runner, authority: TestAuthority, sent: bytes, said: str
) -> None:
    async def run() -> None:
        there = Listening(authority)
        with there.plain() as client:
            client.sendall(sent)
            await until(lambda: there.made and there.made[0].ends)
            assert there.made[0].ends == [End.CLOSED]
            assert said in there.made[0].reason
            assert there.made[0].frames == []
        there.close()

    runner.run(run())


def test_pitfall_31_an_end_without_a_word_of_tls(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    """Many clients close without the TLS alert. This is an ordinary end, and their requests are
    served."""

    async def run() -> None:
        there = Listening(authority)
        client = await there.client()
        client.sendall(frame(b"the last"))
        # The client closes its socket without close_notify.
        bare = socket.socket(fileno=client.detach())
        bare.close()
        await until(lambda: there.made[0].ends)
        assert there.made[0].frames == [b"the last"]
        assert there.made[0].ends == [End.EOF]
        there.close()

    runner.run(run())


def test_pitfall_31_half_of_a_frame_and_then_the_end(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    async def run() -> None:
        there = Listening(authority)
        client = await there.client()
        client.sendall(frame(b"a whole one") + frame(b"half")[:6])
        bare = socket.socket(fileno=client.detach())
        bare.close()
        await until(lambda: there.made[0].ends)
        assert there.made[0].frames == [b"a whole one"]
        there.close()

    runner.run(run())


def test_pitfall_31_a_half_close_is_answered(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    async def run() -> None:
        there = Listening(authority)
        client = await there.client()
        client.sendall(frame(b"ask"))
        client.settimeout(0)
        # The client sends close_notify, and does not wait for ours.
        with pytest.raises(ssl.SSLWantReadError):
            client.unwrap()
        await until(lambda: there.made[0].ends)
        assert there.made[0].ends == [End.EOF]
        there.made[0].link.send([frame(b"told")])
        bare = socket.socket(fileno=client.detach())
        bare.settimeout(PATIENCE_S)
        record = await received(bare, 5)
        assert record[0] == 0x17
        bare.close()
        there.close()

    runner.run(run())


def test_our_end_is_told_to_the_client(runner: asyncio.Runner, authority: TestAuthority) -> None:
    async def run() -> None:
        there = Listening(authority)
        client = await there.client()
        client.sendall(frame(b"ask"))
        await until(lambda: there.made[0].frames)
        there.made[0].link.close()
        # The client received our close_notify. Without it, `recv` would raise SSLEOFError.
        assert await in_thread(lambda: client.recv(1)) == b""
        client.close()
        there.close()

    runner.run(run())


@pytest.mark.parametrize(
    ("listener", "count"),
    [("NET", 300), pytest.param("NET", 1_000, marks=pytest.mark.slow), ("BROKER", 1_000)],
)
def test_pitfall_32_handshakes_begun_and_left(
    runner: asyncio.Runner,
    authority: TestAuthority,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    listener: str,
    count: int,
) -> None:
    """Few handshakes are processed, all connections are closed in time, and their memory is
    freed."""
    monkeypatch.setattr(tls_link, "HANDSHAKE_S_MAX", 2.0)
    reason = "" if listener == "BROKER" else "TLS: the handshake was"

    def hello() -> bytes:
        context = ssl.create_default_context(cafile=authority.file)
        outgoing = ssl.MemoryBIO()
        asking = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=LOOPBACK)
        with pytest.raises(ssl.SSLWantReadError):
            asking.do_handshake()
        return outgoing.read()

    greeting = hello()

    async def once(there: Listening) -> None:
        clients: list[socket.socket] = []
        handshakes, waiting = there.listening._handshakes, 0

        def is_done(condition: Callable[[], bool]) -> bool:
            nonlocal waiting
            waiting = max(waiting, handshakes.waiting)
            assert handshakes.under_way <= UNDER_WAY_MAX
            return condition()

        def are_accepted() -> bool:
            return len(there.made) == len(clients)

        while len(clients) < count:
            # The kernel keeps a few hundred connections until the loop accepts them.
            for _ in range(100):
                clients.append(there.plain())
                clients[-1].sendall(greeting)
            await until(lambda: is_done(are_accepted))
        await until(lambda: is_done(lambda: all(one.ends for one in there.made)))
        assert waiting > 0
        made = there.made
        assert {one.ends[0] for one in made} == {End.CLOSED}
        assert all(one.reason.startswith(reason) for one in made)
        assert there.listening._handshakes.under_way == 0
        assert there.listening._handshakes.waiting == 0
        for client in clients:
            client.close()
        there.made.clear()
        gc.collect()

    async def run() -> None:
        there = Listening(authority, listener)
        await once(there)
        before = psutil.Process().memory_info().rss
        await once(there)
        grown = psutil.Process().memory_info().rss - before
        assert grown < 4 << 20
        # A peer that completes its handshake is served.
        peer = await there.client(authority.write("broker-2") if listener == "BROKER" else None)
        peer.sendall(frame(b"ask"))
        await until(lambda: there.made[-1].frames)
        peer.close()
        assert there.world.connection_problems() == []
        # The log has one line for each reason, and not one for each connection.
        assert len(caplog.records) <= 2
        there.close()

    runner.run(run())


def test_pitfall_33_a_reader_that_does_not_read(
    runner: asyncio.Runner, authority: TestAuthority
) -> None:
    """The limit of unread bytes is the same as without TLS, and counts plain bytes."""

    async def run() -> None:
        there = Listening(authority)
        client = await there.client()
        await until(lambda: there.made[0].link)
        link, sent = there.made[0].link, 0
        piece = bytes(100_000)
        while not there.made[0].ends:
            link.send([piece])
            sent += len(piece)
            await asyncio.sleep(0)
        assert there.made[0].ends == [End.CLOSED]
        assert f"connection.max.unread.bytes={UNREAD_BYTES_MAX}" in there.made[0].reason
        assert sent > UNREAD_BYTES_MAX
        client.close()
        there.close()

    runner.run(run())


def test_a_slow_handshake_ends_by_its_time(
    runner: asyncio.Runner, authority: TestAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends a byte now and then, as Slowloris does."""
    monkeypatch.setattr(tls_link, "HANDSHAKE_S_MAX", 0.3)

    async def run() -> None:
        there = Listening(authority)
        began = time.monotonic()
        with there.plain() as client:
            record = b"\x16\x03\x01\x02\x00"
            client.sendall(record[:1])
            await until(lambda: there.made and there.made[0].ends)
            assert time.monotonic() - began < PATIENCE_S / 2
            assert "not complete after 0.3 s" in there.made[0].reason
        there.close()

    runner.run(run())
