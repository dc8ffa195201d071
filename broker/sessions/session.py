"""One client connection: receives frames, starts the requests in order, and sends the answers.

A session uses no socket. Bytes go through a `Link`. All work happens in `take`, without a task,
coroutine or future per request. Records of a Produce are views of the read buffer and are written
before `take` returns. A request that cannot be answered at once is parked by its handler and
answered later with `Call.answer`. Answers that become ready outside of a read are sent in the next
iteration of the event loop, so that many answers share one send.

The session reads nothing while complete frames are left in the buffer. So the buffer has at most
one read or one frame. All later bytes, and the peer's end, wait in the kernel. After the peer
closes or resets the connection, all complete requests are still served, as in Kafka's Selector.
Answers are sent if the peer still reads them. Kafka drops the later requests when an answer cannot
be sent, but this broker serves them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from broker.budget import SESSION_TURN_NS_MAX, TURN_GAP_NS
from broker.security.rights import EVERYTHING, Rights
from broker.sessions.call import FAULT, WaitingFetch
from broker.sessions.login import Login
from broker.sessions.pipeline import Pipeline, Slot, is_produce_frame
from broker.sessions.reception import Reception, RequestTemplate
from broker.sessions.throttle import Throttle
from broker.world import End, Link
from protocol.errors import WireError
from protocol.log import fields

logger = logging.getLogger(__name__)


class Session:
    """A client's connection, from accept to close."""

    link: Link
    """The link to the client. `linked` sets it."""
    login: Login | None = None
    """The client's login; None on a listener that requires no login."""
    rights: Rights = EVERYTHING

    def __init__(self, reception: Reception) -> None:
        self.reception = reception
        self.is_closed = False
        self.number = 0
        self.parked_fetch: WaitingFetch | None = None
        self.template: RequestTemplate | None = None
        """The template of the last Produce, if the next Produce can be compared with it."""
        self.last_active_ms = 0
        self.has_spoken = False
        self.frame_since_ms = 0
        """The monotonic time at which the unfinished frame began; 0 if there is none."""
        self.has_staged = False
        config = reception.settings.config
        self._pipeline = Pipeline(
            config.connection_max_requests_in_flight, config.connection_max_bytes_in_flight
        )
        self._throttle = Throttle(
            reception.clock, reception.later, self._pipeline, self._unthrottled
        )
        self._turn_ns = reception.turn_ns
        self._budget = reception.budget
        self._clock = reception.clock
        self._counted_bytes = 0
        self._is_busy = False
        self._turn_end_ns = 0
        self._worked_until_ns = -TURN_GAP_NS
        self._is_turn_over = False
        self._has_frames = False
        """True if complete frames can be left in the buffer after a pause."""
        self._is_scheduled = False
        self._is_stopping = False
        self._has_ended = False
        """True if the peer has closed its side."""
        self._told_of_end: list[Callable[[], None]] = []
        """The callbacks for the end of the session. Empty after the end."""
        self._is_mute = False
        """True if no more answers are sent: the peer does not read them, or one is missing."""

    @property
    def listener_name(self) -> str:
        """The name of the listener to which the client is connected."""
        return self.reception.name

    @property
    def peer(self) -> str:
        """`host:port` of the client, for logs."""
        return self.link.peer

    @property
    def peer_host(self) -> str:
        """The client's address, without its port."""
        return self.link.peer_host

    @property
    def peer_id(self) -> int | None:
        """The id of the other broker, as in `Link.peer_id`."""
        return self.link.peer_id

    # The link calls these.

    def linked(self, link: Link) -> None:
        """Admit the new connection, or close it at once."""
        self.link = link
        self.last_active_ms = self._clock.monotonic_ms()
        refusal = self.reception.admit(self)
        if refusal:
            self._warn("connection refused", refusal)
            self.is_closed = True
            link.close()

    def take(self, frames: Iterator[memoryview]) -> None:
        """Serve the requests that were read."""
        if not self.has_spoken and self.login is None:
            self.has_spoken = True
            self.reception.sessions.spoke(self)
        self.last_active_ms = self._clock.monotonic_ms()
        self._work_off(frames, is_read=True)

    def drained(self) -> None:
        """Continue, because all answers so far have been sent."""
        if self.is_closed:
            return
        self._pipeline.sent()
        self.last_active_ms = self._clock.monotonic_ms()
        self._go_on_later()

    def ended(self, end: End, reason: str = "") -> None:
        """Serve the remaining requests of a peer that sends no more, and then close the
        connection."""
        if self.is_closed:
            return
        if end is End.CLOSED:
            self.close(reason, is_logged=bool(reason))
            return
        if end is not End.EOF:
            self._is_mute = True
        self._has_ended = True
        self._tell_of_end()
        self._work_off(self.link.left(), is_read=False)

    # Reading.

    def _work_off(self, frames: Iterator[memoryview], *, is_read: bool) -> None:
        """Start the requests in frames that were just read or were left by a pause."""
        self._is_busy = True
        now_ns = self._turn_ns()
        if not is_read or now_ns - self._worked_until_ns >= TURN_GAP_NS:
            self._turn_end_ns = now_ns + SESSION_TURN_NS_MAX
        self._is_turn_over = self._budget.is_spent(now_ns)
        self.frame_since_ms = self.frame_since_ms or self.last_active_ms
        try:
            if self._is_turn_over:
                self._has_frames = True
            else:
                self._start_all(frames)
                if not self.is_closed:
                    if self.has_staged:
                        self._settle()
                    self._advance()
        except WireError as error:
            self._send_ready()
            self.close(f"{type(error).__name__}: {error}")
        except Exception:
            logger.exception("unhandled exception; connection closed", extra=fields(peer=self.peer))
            self.close(FAULT, is_logged=False)
        finally:
            if self.has_staged:
                # Write the batches even of a closed session, because they have offsets.
                self._settle()
            self._is_busy = False
        if not self.is_closed:
            self._look_up()

    def _start_all(self, frames: Iterator[memoryview]) -> None:
        if self._has_frames and not self._makes_room():
            return
        for frame in frames:
            self.frame_since_ms = self.last_active_ms
            self._arrived(frame)
            if self.is_closed:
                return
            if self._pipeline.is_full or self._turn_ns() > self._turn_end_ns:
                self._has_frames = True
                return
        self._has_frames = False

    def _look_up(self) -> None:
        """Update the session's memory use after its work, and pause or resume reading."""
        link = self.link
        if not link.is_in_frame:
            self.frame_since_ms = 0
        held_bytes = link.held_bytes + self._pipeline.held_bytes
        if held_bytes != self._counted_bytes:
            self._count(held_bytes)
        if self._has_frames or self._is_turn_over or link.is_stalled:
            self._hold()
        elif link.is_paused:
            self._read_on()

    def _makes_room(self) -> bool:
        """Send the answers that became ready during the pause. Return True if more requests may
        start."""
        self._advance()
        return not (
            self.is_closed or self._is_turn_over or self._pipeline.is_full or self.link.is_stalled
        )

    def _hold(self) -> None:
        """Pause reading. If necessary, schedule the work on the received frames."""
        if self.is_closed:
            return
        self.link.pause()
        # Otherwise the next answer continues, or the link when it has sent everything.
        if self._is_turn_over or not (self._pipeline.is_full or self.link.is_stalled):
            self._go_on_later()

    def _read_on(self) -> None:
        """Resume reading, because no frames are left, or close if the peer has ended."""
        if self.is_closed:
            return
        if self._has_ended:
            if self._pipeline.is_idle:
                self.close("", is_logged=False)
        elif not self._is_stopping:
            if self.frame_since_ms:
                # The rest of a partly read request can arrive only from now on.
                self.frame_since_ms = self._clock.monotonic_ms()
            self.link.resume()

    def _arrived(self, frame: memoryview) -> None:
        known = self.template
        is_like_last = known is not None and known.fits(frame)
        is_produce = is_like_last or is_produce_frame(frame)
        pipeline = self._pipeline
        slot = pipeline.admit(is_produce, len(frame))
        if slot is None:
            if self.has_staged:
                # A Produce of the same read can be answered as soon as its batches are written.
                self._settle()
                self._advance()
                slot = pipeline.admit(is_produce, len(frame))
            if slot is None:
                pipeline.wait(bytes(frame), self._turn_ns())
                return
        reception = self.reception
        if (
            known is not None
            and is_like_last
            and reception.fast_path.start(self, slot, frame, known)
        ):
            return
        if is_produce and not is_like_last:
            self.template = None
        reception.dispatcher.start(self, slot, frame)

    def _count(self, held_bytes: int) -> None:
        """Record the memory of unfinished and waiting requests. Close the connection if it exceeds
        a limit."""
        refusal = self.reception.sessions.account(self, held_bytes - self._counted_bytes)
        self._counted_bytes = held_bytes
        if refusal:
            self.close(refusal)

    def _settle(self) -> None:
        self.has_staged = False
        self.reception.settle()

    def attempt(self, work: Callable[[], None]) -> None:
        """Do work for a request outside of a read. If it raises an exception, only this session is
        closed."""
        try:
            work()
        except Exception:
            logger.exception("unhandled exception; connection closed", extra=fields(peer=self.peer))
            self.close(FAULT, is_logged=False)

    def hold(self, slot: Slot) -> None:
        """Start no later request while a Produce continues with a copy of its batches."""
        self._pipeline.hold(slot)

    def let_go(self, slot: Slot) -> None:
        """Let later requests start, because the batches of this Produce are appended or refused."""
        if not self.is_closed:
            self._pipeline.let_go(slot)
            self._go_on_later()

    # Answering.

    def answered(self) -> None:
        """Send an answer that is ready, at the end of this read or in the loop's next iteration."""
        if not self._is_busy and not self.is_closed:
            self._go_on_later()

    def _go_on_later(self) -> None:
        """In the next iteration of the loop, send answers and work on the frames that are left in
        the buffer."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.reception.soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        if not self.is_closed:
            self._work_off(self.link.left(), is_read=False)

    def _advance(self) -> None:
        """Send the answers that are next in order, and start the requests that waited until they
        were sent."""
        pipeline = self._pipeline
        leaving: list[object] = []
        try:
            while True:
                if self._has_ended and self.parked_fetch is not None:
                    self._drop_fetch(self.parked_fetch)
                answers = pipeline.take_answers()
                if answers and not self._is_mute:
                    leaving.extend(answers)
                now_ns = self._worked_until_ns = self._turn_ns()
                if now_ns > self._turn_end_ns:
                    self._is_turn_over = True
                    break
                started = pipeline.start_waiting()
                if started is None:
                    break
                slot, frame = started
                # Copy the frame, because the broker writes offsets into the batches of a Produce.
                view = memoryview(bytearray(frame))
                waited_ns = self._turn_ns() - pipeline.waited_since_ns
                self.reception.dispatcher.start(self, slot, view, waited_ns)
                if self.is_closed:
                    return
                if self.has_staged:
                    self._settle()
        finally:
            # Send them also if the started frame is no request, for which the caller closes.
            if leaving and not self.is_closed:
                self.link.send(leaving)
        if self.parked_fetch is not None:
            if pipeline.is_full:
                # The session reads nothing more now, so it would not even notice the peer's end.
                self.parked_fetch.make_way()
            else:
                # This includes the frames that had waited before the fetch was parked.
                self.parked_fetch.hasten(pipeline.waiting)
        if pipeline.leaving and not self.link.is_stalled:
            pipeline.sent()

    def _send_ready(self) -> None:
        """Send the answers that are ready, before the connection is closed for a later frame."""
        if self.has_staged:
            self._settle()
        answers = self._pipeline.take_answers()
        if answers and not self._is_mute:
            self.link.send(answers)

    # Pausing.

    @property
    def is_throttled(self) -> bool:
        """True while the session pauses because of a quota."""
        return self._throttle.is_on

    def throttle(self, pause_ms: int) -> None:
        """Start no request for this time, and read nothing, because the client is over a quota."""
        if not (self.is_closed or self._is_stopping):
            self._throttle.begin(pause_ms)
            self.link.pause()
            # The end of the pause looks for frames in the buffer.
            self._has_frames = True

    def end_throttle(self) -> None:
        """Continue before the pause is over."""
        self._throttle.end()

    def _unthrottled(self, paused_ms: int) -> None:
        self.last_active_ms = self._clock.monotonic_ms()
        if self.login is not None:
            self.login.extend(paused_ms)
        self._go_on_later()

    # Ending.

    @property
    def has_ended(self) -> bool:
        """True if the peer has closed its side, or the session was closed."""
        return self._has_ended or self.is_closed

    def on_end(self, told: Callable[[], None]) -> None:
        """Call `told` once when the session ends. Requests received before can still be served."""
        assert not self.has_ended, "the callback would never be called"
        self._told_of_end.append(told)

    def _tell_of_end(self) -> None:
        told_of_end, self._told_of_end = self._told_of_end, []
        for told in told_of_end:
            told()

    @property
    def is_idle(self) -> bool:
        """True if no request is in progress, so that only the idle time is limited."""
        return self._pipeline.is_idle and not self.is_stalled and not self._has_frames

    @property
    def is_paused(self) -> bool:
        """True if the session has paused reading, so that silence is not the peer's fault."""
        return self.link.is_paused

    @property
    def is_stalled(self) -> bool:
        """True if answers are ready that the peer does not read."""
        return self.link.is_stalled

    def shrink(self) -> None:
        """Release the read buffer of a silent session."""
        self.link.shrink()
        self._count(self.link.held_bytes + self._pipeline.held_bytes)

    def stop_reading(self) -> None:
        """Read no more requests, because the broker stops."""
        self._is_stopping = True
        self.link.pause()
        self._throttle.end()

    def _drop_fetch(self, parked: WaitingFetch) -> None:
        """Drop the parked Fetch of a peer that has ended, because the Fetch would only delay the
        close."""
        self.parked_fetch = None
        parked.drop()
        # The client would take the next answer for the answer of the Fetch.
        self._is_mute = True

    def _warn(self, kind: str, reason: str) -> None:
        self.reception.warnings.warn(logger, kind, peer=self.peer, reason=reason)

    def close(self, reason: str, *, is_logged: bool = True) -> None:
        """Close the connection from this side."""
        if self.is_closed:
            return
        self.is_closed = True
        self._throttle.forget()
        if is_logged:
            self._warn("connection closed", reason)
        self.link.close()
        if self.parked_fetch is not None:
            self.parked_fetch.forget()
            self.parked_fetch = None
        self._pipeline.clear()
        self.reception.sessions.account(self, -self._counted_bytes)
        self._counted_bytes = 0
        self.reception.sessions.release(self)
        self._tell_of_end()
