"""A client that replays one ready-made request, for measuring a broker and not its client.

Each connection keeps `in_flight` copies of its frame on the wire and answers every answer with the
next copy; answers are counted, timed and thrown away. A broker under test must answer requests of
a connection in order, as Kafka's protocol demands.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

READ_BYTES = 1 << 20
KEPT_BYTES_MAX = 64 << 10
"""Answers up to this size are kept whole, so that the caller can look at one."""

LAST_ANSWERS_S = 30.0


@dataclass(slots=True)
class Replayed:
    """What came back."""

    requests: int = 0
    answer_bytes: int = 0
    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    last_answer: bytes = b""
    """Without its size; empty when it was larger than 64 KiB."""


class _Connection(asyncio.BufferedProtocol):
    """One connection; counts frames by their size prefix without keeping their bodies."""

    def __init__(self, frame: bytes, in_flight: int, total: Replayed, end_s: float) -> None:
        self._frame = frame
        self._in_flight = in_flight
        self._total = total
        self._end_s = end_s
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._head = b""
        self._left = 0
        self._body: list[bytes] | None = None
        self._sent_s: deque[float] = deque()
        self._transport: asyncio.WriteTransport | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not of asyncio's classes.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._send(self._in_flight)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the broker closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, count: int) -> None:
        answered = self._answers_in(count)
        if not answered:
            return
        now_s = time.perf_counter()
        total = self._total
        total.requests += answered
        for _ in range(answered):
            total.latencies_s.append(now_s - self._sent_s.popleft())
        if now_s < self._end_s:
            self._send(answered)
        elif not self._sent_s and not self.done.done():
            self.done.set_result(None)

    def _send(self, count: int) -> None:
        assert self._transport is not None
        self._sent_s.extend([time.perf_counter()] * count)
        self._transport.write(self._frame * count if count > 1 else self._frame)

    def _answers_in(self, count: int) -> int:
        """How many answers the new bytes complete."""
        answered = position = 0
        while position < count:
            if not self._left:
                wanted = 4 - len(self._head)
                self._head += bytes(self._view[position : min(position + wanted, count)])
                position = min(position + wanted, count)
                if len(self._head) < 4:
                    break
                (self._left,) = struct.unpack(">i", self._head)
                self._total.answer_bytes += 4 + self._left
                self._head = b""
                self._body = [] if self._left <= KEPT_BYTES_MAX else None
                continue
            taken = min(self._left, count - position)
            if self._body is not None:
                self._body.append(bytes(self._view[position : position + taken]))
            position += taken
            self._left -= taken
            if not self._left:
                answered += 1
                self._total.last_answer = b"" if self._body is None else b"".join(self._body)
        return answered


async def _replay(
    host: str, port: int, frames: Sequence[bytes], in_flight: int, seconds: float
) -> Replayed:
    loop = asyncio.get_running_loop()
    total = Replayed()
    began_s = time.perf_counter()
    end_s = began_s + seconds
    made = [
        await loop.create_connection(
            partial(_Connection, frame, in_flight, total, end_s), host, port
        )
        for frame in frames
    ]
    try:
        async with asyncio.timeout(seconds + LAST_ANSWERS_S):
            await asyncio.gather(*(protocol.done for _, protocol in made))
        total.seconds = time.perf_counter() - began_s
    finally:
        for transport, _ in made:
            transport.close()
    total.latencies_s.sort()
    return total


def replay(address: str, frames: Sequence[bytes], *, in_flight: int, seconds: float) -> Replayed:
    """Replay one frame per connection for some seconds, then wait for the last answers."""
    host, port = address.rsplit(":", 1)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_replay(host, int(port), frames, in_flight, seconds))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_replay(host, int(port), frames, in_flight, seconds))
