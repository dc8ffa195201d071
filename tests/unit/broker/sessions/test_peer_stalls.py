"""A request that was answered in time has not failed, even if the loop was busy at its deadline."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest
import uvloop

from broker.real.world import LoopWorld
from broker.sessions.peer import CorrelationIds, Peer
from broker.world import Address, End
from protocol.messages.api import ApiKey
from protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.headers import decode_request_header, encode_response

VERSION = 3
DEADLINE_MS = 50
PATIENCE_S = 10


def _die(reason: str) -> Any:
    raise AssertionError(reason)


async def _ask(*, is_answered: bool) -> list[Any]:
    """Return the result of a request whose answer arrives while another socket keeps the loop
    busy."""
    loop = asyncio.get_running_loop()
    world = LoopWorld(loop, _die, 1 << 20, 1 << 20)
    peer = Peer(world, CorrelationIds(), "broker-1")
    told: list[Any] = []
    woken, waker = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as served, woken, waker:
        served.settimeout(PATIENCE_S)
        deadline_ms = world.clock.monotonic_ms() + PATIENCE_S * 1000
        linked: list[object] = []
        peer.ask(ApiVersionsRequest(), VERSION, deadline_ms, linked.append, linked.append)
        peer.dial(Address(*served.getsockname()))
        other = await loop.run_in_executor(None, lambda: served.accept()[0])
        with other:
            other.settimeout(PATIENCE_S)
            other.sendall(await loop.run_in_executor(None, lambda: _answer_to(other.recv(1000))))
            async with asyncio.timeout(PATIENCE_S):
                while not linked:
                    await asyncio.sleep(0)
            deadline_ms = world.clock.monotonic_ms() + DEADLINE_MS
            peer.ask(ApiVersionsRequest(), VERSION, deadline_ms, told.append, told.append)
            answer = _answer_to(other.recv(1000))

            def stall() -> None:
                loop.remove_reader(woken)
                if is_answered:
                    other.sendall(answer)
                while world.clock.monotonic_ms() <= deadline_ms + DEADLINE_MS:
                    time.monotonic()

            loop.add_reader(woken, stall)
            waker.send(b"x")
            async with asyncio.timeout(PATIENCE_S):
                while not told:
                    await asyncio.sleep(0)
            peer.close()
    return told


def _answer_to(request: bytes) -> bytes:
    header, _ = decode_request_header(request[4:])
    return encode_response(
        ApiVersionsResponse(), VERSION, header.correlation_id, ApiKey.API_VERSIONS
    )


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_sockets_are_read_before_a_deadline_is_judged(make: Any) -> None:
    with asyncio.Runner(loop_factory=make) as runner:
        assert runner.run(_ask(is_answered=True)) == [ApiVersionsResponse()]


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_was_not_answered_has_failed_all_the_same(make: Any) -> None:
    with asyncio.Runner(loop_factory=make) as runner:
        assert runner.run(_ask(is_answered=False)) == [End.TIMED_OUT]
