"""Incoming and outgoing connections while the process has no free file descriptor."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from appliance.machine.processes import has_address
from broker.config import Listener
from broker.real.world import LoopWorld
from broker.world import Address, End, PortTaken
from tests.harness.descriptors import descriptors_left
from tests.harness.own_process import in_own_process
from tests.harness.ports import free_port
from tests.unit.broker.real.test_dialling import (
    FRAME_BYTES_MAX,
    LOOPBACK,
    PATIENCE_S,
    Heard,
    _die,
    port_of,
    until,
)

NOT_HERE = "192.0.2.77"
"""An address for documentation (RFC 5737), which no machine has."""

HELLO = (5).to_bytes(4, "big") + b"hello"


class Server:
    """A listener. The receiver of each accepted connection records what it is called with."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str = LOOPBACK) -> None:
        self.made: list[Heard] = []
        self.world = LoopWorld(loop, _die, FRAME_BYTES_MAX, 1 << 20)
        self.port = free_port()
        address = Listener(
            host=host, port=self.port, advertised_host=LOOPBACK, advertised_port=self.port
        )
        self.listening = self.world.listen("HOST", address, self._take)

    def _take(self) -> Heard:
        self.made.append(Heard())
        return self.made[-1]


EACH_LOOP = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
NewLoop = Callable[[], asyncio.AbstractEventLoop]


def run(new_loop: NewLoop, main: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
    """Run a coroutine to its end. Its loop may report only errors of the operating system."""
    faults: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: faults.append(context))
        runner.run(main(*args))
    assert not [one for one in faults if not isinstance(one.get("exception"), OSError)], faults


async def is_closed(client: socket.socket) -> bool:
    """Return True if the other side closes the connection in time, without sending anything."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await asyncio.get_running_loop().sock_recv(client, 1) == b""
        except ConnectionResetError:
            return True


async def send_one_client_away() -> None:
    server = Server(asyncio.get_running_loop())
    server.listening.open()
    client, other = (socket.socket() for _ in range(2))
    await asyncio.sleep(0)
    with descriptors_left(1):
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, (LOOPBACK, server.port))
        client.send(HELLO)
        assert await is_closed(client)
    assert [(one.link, one.frames, one.ends) for one in server.made] == [(None, [], [])]
    client.close()
    other.setblocking(False)
    await asyncio.get_running_loop().sock_connect(other, (LOOPBACK, server.port))
    other.send(HELLO)
    await until(lambda: any(one.frames for one in server.made))
    assert server.made[-1].frames == [b"hello"]
    other.close()
    # The listener stays open, because asyncio's loop adds it again one second after a descriptor
    # was missing.
    server.made[-1].link.close()
    server.world.stop()


@EACH_LOOP
def test_a_client_for_whom_a_descriptor_is_missing_is_sent_away(new_loop: NewLoop) -> None:
    """One descriptor is free, but a connection takes two. The client must not hang, the broker must
    not end, and a later client must be served."""
    in_own_process(run, new_loop, send_one_client_away)


async def dial_with_descriptors(host: str, count: int) -> None:
    world = LoopWorld(asyncio.get_running_loop(), _die, FRAME_BYTES_MAX, 1 << 20)
    heard = Heard()
    with socket.create_server((LOOPBACK, 0)) as served, descriptors_left(count):
        world.dial(Address(host, port_of(served)), heard)
        await until(lambda: heard.ends)
    assert (heard.link, heard.ends) == (None, [End.CLOSED])
    assert os.strerror(errno.EMFILE) in heard.reason
    world.stop()


@EACH_LOOP
@pytest.mark.parametrize(("host", "count"), [(LOOPBACK, 0), (LOOPBACK, 1), ("localhost", 0)])
def test_a_dial_for_which_a_descriptor_is_missing_says_nothing_of_the_peer(
    new_loop: NewLoop, host: str, count: int
) -> None:
    """The C library needs a descriptor even to read a literal address."""
    in_own_process(run, new_loop, dial_with_descriptors, host, count)


async def serve_both_families() -> None:
    server = Server(asyncio.get_running_loop(), "::")
    server.listening.open()
    with (
        socket.create_connection((LOOPBACK, server.port)) as fourth,
        socket.create_connection(("::1", server.port)) as sixth,
    ):
        await until(lambda: len([one for one in server.made if one.link]) == 2)
        links = [one.link for one in server.made]
        names = {
            LOOPBACK: f"{LOOPBACK}:{fourth.getsockname()[1]}",
            "::1": f"[::1]:{sixth.getsockname()[1]}",
        }
        assert {one.peer_host: one.peer for one in links} == names
    server.world.stop()


@EACH_LOOP
@pytest.mark.skipif(not has_address("::1"), reason="this machine has no IPv6")
def test_a_listener_on_all_addresses_knows_ipv4_clients_by_their_ipv4_address(
    new_loop: NewLoop,
) -> None:
    """Otherwise no ACL or quota for `127.0.0.1` would match, and the limit on the connections of an
    address would count each client twice."""
    run(new_loop, serve_both_families)


async def listen_elsewhere() -> None:
    with pytest.raises(PortTaken) as raised:
        Server(asyncio.get_running_loop(), NOT_HERE)
    text = f"listener HOST: this machine does not have the address {NOT_HERE}"
    assert str(raised.value) == text


@EACH_LOOP
def test_an_address_that_the_machine_does_not_have_is_named(new_loop: NewLoop) -> None:
    run(new_loop, listen_elsewhere)
