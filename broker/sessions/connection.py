"""One client's socket: frames in, requests started in their order, answers out.

Floor: sessions. Everything happens in `buffer_updated`: no task, coroutine or future per request.
Records of a Produce are views of the read buffer; they are written before that call returns. A
request that cannot be answered at once is parked by whoever serves it and answered by
`Call.answer`; answers that become ready outside of a read leave in the next turn of the loop, so
that many of them share one send.

Nothing is read while whole frames are left in the buffer: so it never holds more than one read or
one frame, and what comes behind, the peer's end too, waits in the kernel. A peer that ends, by a
close or a reset, takes back nothing of what it has sent: as in Kafka's Selector every whole request
is worked off, and the connection counts until that is done. The answers leave if somebody takes
them; where Kafka gives up what follows an answer that cannot be sent, it is done here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, cast

from broker.real.output import Output, PeerTooSlow
from broker.sessions.call import FAULT
from broker.sessions.pipeline import Pipeline, Slot, is_produce_frame
from protocol.errors import WireError
from protocol.log import fields
from protocol.wire.frame import FrameBuffer

if TYPE_CHECKING:
    from broker.fetch.fetches import ParkedFetch
    from broker.produce.short import Lane
    from broker.real.listening import ClientListener

logger = logging.getLogger(__name__)

TURN_NS_MAX = 20_000_000
"""Requests of one connection that take longer together let the others have a turn in between."""

TURN_GAP_NS = 2_000_000
"""A read that follows so soon belongs to the same turn: libuv reads one socket many times in a row.

A read that merely seems to follow costs a pause; one taken for a new turn would cost the others 20
ms each time.
"""


class Connection(asyncio.BufferedProtocol):
    """A client's connection, from accept to close."""

    def __init__(self, listener: ClientListener) -> None:
        self.listener = listener
        self.is_closed = False
        self.peer = "?"
        self.peer_host = "?"
        self.parked_fetch: ParkedFetch | None = None
        self.lane: Lane | None = None
        """The last Produce, if the next may be like it."""
        self.last_active_ms = 0
        self.has_spoken = False
        self.frame_since_ms = 0
        """When the unfinished frame in the buffer began; 0 without one."""
        self.has_staged = False
        """Whether appends of this connection wait for the write at the end of its read."""
        config = listener.services.config
        self._frames = FrameBuffer(config.socket_request_max_bytes)
        self._pipeline = Pipeline(
            config.connection_max_requests_in_flight, config.connection_max_bytes_in_flight
        )
        self._loop = listener.services.loop
        self._counted_bytes = 0
        self._is_busy = False
        self._turn_end_ns = 0
        self._worked_until_ns = -TURN_GAP_NS
        self._is_turn_over = False
        self._has_frames = False
        """Whether whole frames may be left in the buffer: the line was full, or the turn over."""
        self._is_scheduled = False
        self._is_paused = False
        self._is_stopping = False
        self._has_ended = False
        """Whether the peer has said its last word."""
        self._is_mute = False
        """Whether no further answers leave: nobody takes them, or one in the middle is missing."""
        self._transport: asyncio.Transport | None = None
        self._output: Output | None = None

    # The loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername") or ("?", 0)
        self.peer_host = str(name[0])
        self.peer = f"{name[0]}:{name[1]}"
        self.last_active_ms = self.listener.services.clock.monotonic_ms()
        refusal = self.listener.admit(self)
        if refusal:
            logger.warning("connection refused", extra=fields(peer=self.peer, reason=refusal))
            self.is_closed = True
            self._transport.abort()
            return
        fd = transport.get_extra_info("socket").fileno()
        self._output = Output(
            socket.socket(fileno=os.dup(fd)),
            self._loop,
            self._output_drained,
            self._broken,
            self.listener.services.warmer,
            self.listener.services.config.connection_max_unread_bytes,
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if not self.has_spoken:
            self.has_spoken = True
            self.listener.spoke(self)
        self.last_active_ms = self.listener.services.clock.monotonic_ms()
        self._take_frames(nbytes)

    def eof_received(self) -> bool:
        if not self.is_closed:
            self._end()
        return not self.is_closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.is_closed:
            # A reset takes back no more than an end does, only nobody takes the answers.
            self._fall_mute()
            self._end()

    # Reading.

    def _take_frames(self, count: int) -> None:
        """Work off what has been read; with a count of 0 what an earlier pause has left."""
        output = self._output
        assert output is not None
        self._is_busy = True
        self._is_turn_over = False
        now_ns = perf_counter_ns()
        if not count or now_ns - self._worked_until_ns >= TURN_GAP_NS:
            self._turn_end_ns = now_ns + TURN_NS_MAX
        self.frame_since_ms = self.frame_since_ms or self.last_active_ms
        try:
            frames = self._frames.received(count)
            if not self._has_frames or self._makes_room():
                for frame in frames:
                    self.frame_since_ms = self.last_active_ms
                    self._arrived(frame)
                    if self.is_closed:
                        return
                    if self._pipeline.is_full or perf_counter_ns() > self._turn_end_ns:
                        self._has_frames = True
                        break
                else:
                    self._has_frames = False
            if self.has_staged:
                self._settle()
            self._advance()
        except WireError as error:
            self.close(f"{type(error).__name__}: {error}")
        except PeerTooSlow as error:
            self.close(str(error))
        except OSError as error:
            self._broken(error)
        except Exception:
            logger.exception("connection failed", extra=fields(peer=self.peer))
            self.close(FAULT, is_logged=False)
        finally:
            if self.has_staged:
                # Also of a connection that ended meanwhile: its batches have their offsets.
                self._settle()
            self._is_busy = False
        if not self._frames.pending_bytes:
            self.frame_since_ms = 0
        held_bytes = self._frames.capacity_bytes + self._pipeline.held_bytes
        if held_bytes != self._counted_bytes and not self.is_closed:
            self._count(held_bytes)
        if self._has_frames or self._is_turn_over or not output.is_empty:
            self._hold()
        elif self._is_paused:
            self._read_on()

    def _makes_room(self) -> bool:
        """Let the answers leave that have become ready since the pause; whether more may start."""
        self._advance()
        return not (
            self.is_closed or self._is_turn_over or self._pipeline.is_full or self.is_stalled
        )

    def _hold(self) -> None:
        """Read no more until what is there has been worked off, and see to it that it is."""
        if self.is_closed:
            return
        self._pause()
        # Otherwise an answer that becomes ready, or the output when it is empty, goes on.
        if self._is_turn_over or not (self._pipeline.is_full or self.is_stalled):
            self.answered_later()

    def _read_on(self) -> None:
        """Nothing is left to be worked off: read again, or end if there is nothing to be read."""
        if self.is_closed:
            return
        if self._has_ended:
            if self._pipeline.is_idle:
                self.close("", is_logged=False)
        elif not self._is_stopping:
            self._is_paused = False
            if self.frame_since_ms:
                # What is left of a request may come only from here on.
                self.frame_since_ms = self.listener.services.clock.monotonic_ms()
            if self._transport is not None:
                self._transport.resume_reading()

    def _arrived(self, frame: memoryview) -> None:
        lane = self.lane
        is_like_last = lane is not None and lane.fits(frame)
        is_produce = is_like_last or is_produce_frame(frame)
        pipeline = self._pipeline
        if not pipeline.admits(is_produce):
            if self.has_staged:
                # What was appended in this very read may have its answer as soon as it is written.
                self._settle()
                self._advance()
            if not pipeline.admits(is_produce):
                pipeline.wait(bytes(frame), perf_counter_ns())
                return
        slot = pipeline.start(is_produce, len(frame))
        dispatcher = self.listener.dispatcher
        if lane is not None and is_like_last and dispatcher.quick.start(self, slot, frame, lane):
            return
        if is_produce and not is_like_last:
            self.lane = None
        dispatcher.start(self, slot, frame)

    def _count(self, held_bytes: int) -> None:
        """Account for the memory of unfinished and waiting requests; the last straw is refused."""
        refusal = self.listener.account(held_bytes - self._counted_bytes)
        self._counted_bytes = held_bytes
        if refusal:
            self.close(refusal)

    def _settle(self) -> None:
        self.has_staged = False
        self.listener.services.produces.settle()

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def attempt(self, work: Callable[[], None]) -> None:
        """Do a part of a request outside of a read: a fault there is this connection's alone."""
        try:
            work()
        except Exception:
            logger.exception("connection failed", extra=fields(peer=self.peer))
            self.close(FAULT, is_logged=False)

    def hold(self, slot: Slot) -> None:
        """Start nothing behind a Produce that goes on in turns, with a copy of its batches."""
        self._pipeline.hold(slot)

    def let_go(self, slot: Slot) -> None:
        """It is through: start what waited for it."""
        if not self.is_closed:
            self._pipeline.let_go(slot)
            self.answered_later()

    # Answering.

    def answered(self) -> None:
        """An answer has become ready: let it leave at the end of this read, or in the next turn."""
        if not self._is_busy and not self._is_scheduled and not self.is_closed:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        if self.is_closed:
            return
        # Also goes through frames that were left when the line was full or the turn over.
        self._take_frames(0)

    def _advance(self) -> None:
        """Send the answers that are next in line, and start what waited for them."""
        pipeline, output = self._pipeline, self._output
        assert output is not None
        while True:
            if self._has_ended and self.parked_fetch is not None:
                self._drop_fetch(self.parked_fetch)
            answers = pipeline.take_answers()
            if answers and not self._is_mute:
                output.push(answers)
            now_ns = self._worked_until_ns = perf_counter_ns()
            if now_ns > self._turn_end_ns:
                self._is_turn_over = True
                break
            frame = pipeline.next_waiting()
            if frame is None:
                break
            slot = pipeline.start(is_produce_frame(frame), len(frame))
            # The broker writes offsets into the batches of a Produce, in place.
            view = memoryview(bytearray(frame))
            waited_ns = perf_counter_ns() - pipeline.waited_since_ns
            self.listener.dispatcher.start(self, slot, view, waited_ns)
            if self.is_closed:
                return
            if self.has_staged:
                self._settle()
        # Also for what was there before the fetch was parked, if that has waited in the line too.
        if self.parked_fetch is not None and pipeline.holds_other_than_fetch:
            self.listener.services.fetches.hasten(self.parked_fetch)
        try:
            output.send()
        except ConnectionError as error:
            self._broken(error)
        if pipeline.leaving and output.is_empty:
            self._note_sent()

    def answered_later(self) -> None:
        """Look at the frames that are left in the buffer in the next turn."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)

    def _note_sent(self) -> None:
        for timing in self._pipeline.leaving:
            timing.sent()
        self._pipeline.leaving.clear()

    def _output_drained(self) -> None:
        self._note_sent()
        self.last_active_ms = self.listener.services.clock.monotonic_ms()
        self.answered_later()

    # Ending.

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way: then only the idle limit applies."""
        return self._pipeline.is_idle and not self.is_stalled and not self._has_frames

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read for now, so that silence is not the peer's."""
        return self._is_paused

    @property
    def is_stalled(self) -> bool:
        """Whether answers are ready that the peer does not take."""
        return self._output is not None and not self._output.is_empty

    def shrink(self) -> None:
        """Give back the read buffer of a connection that has fallen silent."""
        self._frames.shrink()
        self._count(self._frames.capacity_bytes + self._pipeline.held_bytes)

    def stop_reading(self) -> None:
        """Take no more requests: the broker stops."""
        self._is_stopping = True
        self._pause()

    def _end(self) -> None:
        """The peer sends no more: work off what it has sent; then, maybe at once, close."""
        self._has_ended = self._is_paused = True
        self._take_frames(0)

    def _drop_fetch(self, parked: ParkedFetch) -> None:
        """A Fetch that waits for data would only keep the connection of a peer that has ended.

        The next answer would be taken for this one, so none follows.
        """
        self.parked_fetch = None
        self.listener.services.fetches.forget(parked)
        parked.call.answer_nothing()
        self._is_mute = True

    def _fall_mute(self) -> None:
        """Nobody takes answers any more: forget those there are, and those to come."""
        self._is_mute = True
        if self._output is not None:
            self._output.close()

    def close(self, reason: str, *, is_logged: bool = True) -> None:
        """End the connection from our side."""
        if self.is_closed:
            return
        if is_logged:
            logger.warning("connection closed", extra=fields(peer=self.peer, reason=reason))
        if self._transport is not None:
            self._transport.abort()
        self._finish()

    def _broken(self, error: Exception) -> None:
        """The socket takes no answers: the peer has gone, or their segment has."""
        if isinstance(error, ConnectionError):
            # What the peer has sent before it went is still in the kernel, and its end behind that.
            self._fall_mute()
            self.answered_later()
            return
        logger.warning("connection broken", extra=fields(peer=self.peer, reason=repr(error)))
        self.close("", is_logged=False)

    def _finish(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self.parked_fetch is not None:
            self.listener.services.fetches.forget(self.parked_fetch)
            self.parked_fetch = None
        self._pipeline.clear()
        # The read buffer goes at once: the connection itself stays until the garbage collector
        # comes by, for it and its transport and output hold each other.
        self._frames = FrameBuffer(0)
        self.listener.account(-self._counted_bytes)
        self._counted_bytes = 0
        if self._output is not None:
            self._output.close()
        self.listener.released(self)
