"""The client side of a link to another broker: each request is answered once or fails once.

This is the counterpart of `session`. It keeps the sent requests by correlation id. It uses a `Link`
instead of a socket, and the clock of `World`. Requests that are made before the link is connected
wait for the connection, while their deadlines run.

A request ends in one of three ways:

- It is answered.
- Its deadline passes. It fails with TIMED_OUT, and a later answer is dropped.
- The link ends. All its requests fail with the reason.

An unreadable answer, or an answer to an unknown request, is a protocol error. It ends the link,
because no later answer can be trusted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from struct import Struct as Packed
from typing import Any, NamedTuple

from broker.world import Address, Cancel, End, Link, World
from protocol.errors import WireError
from protocol.log import fields
from protocol.messages.api import response_class
from protocol.messages.headers import decode_response_header, encode_request_chunks
from protocol.wire.schema import Message

logger = logging.getLogger(__name__)

ASKED_MAX = 1_000
"""The largest number of unanswered requests on one link, including those that timed out.

A peer with so many unanswered requests has stopped to work, so the link is closed.
"""

CORRELATION_IDS = 1 << 31

_CORRELATION = Packed(">i")

Answered = Callable[[Any], None]
Failed = Callable[[End], None]


class CorrelationIds:
    """The correlation ids of all requests of one broker, unique over all its links.

    They repeat after two billion requests, when the first requests ended long ago.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        """Return an id that no current request has."""
        taken = self._next
        self._next = (taken + 1) % CORRELATION_IDS
        return taken


class SentRequest(NamedTuple):
    """A sent request that has no answer yet."""

    api_key: int
    version: int
    deadline_ms: int
    answered: Answered
    failed: Failed


class Peer:
    """One link to another broker, from the connection attempt to the end. At the end `on_end` is
    called once."""

    def __init__(
        self,
        world: World,
        ids: CorrelationIds,
        client_id: str,
        on_end: Callable[[End], None] = lambda end: None,
    ) -> None:
        self._world = world
        self._ids = ids
        self._client_id = client_id
        self._on_end = on_end
        self._link: Link | None = None
        self._is_standing = False
        self._end: End | None = None
        self._unsent: list[Any] = []
        """The encoded requests that wait for the connection, as chunks."""
        self._asked: dict[int, SentRequest] = {}
        self.answered_ms: int | None = None
        """The monotonic time of the last valid answer on this link; None before the first."""
        self._given_up: set[int] = set()
        """The ids of requests that timed out and whose answers can still arrive."""
        self._timer: Cancel | None = None
        self._timer_ms = 0

    @property
    def is_open(self) -> bool:
        """True if requests can be made, because the link is connected or is being connected."""
        return self._end is None

    def dial(
        self, address: Address, *, node_id: int | None = None, asks_resolver: bool = True
    ) -> None:
        """Connect. Call this once, before or after the first request."""
        assert self._link is None, "a peer has one link and connects once"
        self._link = self._world.dial(address, self, node_id=node_id, asks_resolver=asks_resolver)

    def ask(
        self,
        request: Message,
        version: int,
        deadline_ms: int,
        answered: Answered,
        failed: Failed,
    ) -> int:
        """Send a request. After this method returns, `answered` or `failed` is called once.

        The records of the answer are views that are valid only until `answered` returns.
        `deadline_ms` is monotonic. Returns the correlation id. Raises EncodeError for a field that
        the version does not have.
        """
        correlation_id = self._ids.take()
        if self._end is not None:
            self._world.soon(failed, self._end)
            return correlation_id
        if len(self._asked) + len(self._given_up) >= ASKED_MAX:
            self._world.soon(failed, End.CLOSED)
            self._break(f"{ASKED_MAX} requests are not answered")
            return correlation_id
        chunks = encode_request_chunks(request, version, correlation_id, self._client_id)
        self._asked[correlation_id] = SentRequest(
            request.api_key, version, deadline_ms, answered, failed
        )
        self._wake_by(deadline_ms)
        if self._is_standing:
            assert self._link is not None
            self._link.send(chunks)
        else:
            self._unsent += chunks
        return correlation_id

    def close(self) -> None:
        """Close the link. Its requests fail with CLOSED."""
        self._finish(End.CLOSED)

    # The link calls these.

    def linked(self, link: Link) -> None:
        """Send the requests that wait for the connection."""
        self._link = link
        if self._end is not None:
            link.close()
            return
        self._is_standing = True
        unsent, self._unsent = self._unsent, []
        if unsent:
            link.send(unsent)

    def take(self, frames: Iterator[memoryview]) -> None:
        """Handle received answers."""
        while self._end is None:
            try:
                frame = next(frames, None)
                if frame is None:
                    return
                read = self._read(frame)
            except WireError as error:
                self._break(str(error))
                return
            # Call the callback outside of the `try`, because its errors are not protocol errors.
            if read is not None:
                answered, answer = read
                answered(answer)

    def drained(self) -> None:
        """Do nothing, because no caller waits until its request has been sent."""

    def ended(self, end: End, reason: str = "") -> None:
        """Fail all requests, because the link has ended."""
        self._finish(end)

    # Internals.

    def _read(self, frame: memoryview) -> tuple[Answered, Any] | None:
        """Return the callback and the answer; None if the request has timed out."""
        if len(frame) < _CORRELATION.size:
            raise WireError(
                f"the answer has {len(frame)} bytes, expected at least {_CORRELATION.size}"
            )
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        if correlation_id in self._given_up:
            self._given_up.discard(correlation_id)
            self.answered_ms = self._world.clock.monotonic_ms()
            return None
        asked = self._asked.get(correlation_id)
        if asked is None:
            raise WireError(
                f"the answer is for request {correlation_id}, which was not sent on this connection"
            )
        _, position = decode_response_header(frame, asked.api_key, asked.version)
        answer, end = response_class(asked.api_key).decode(frame, asked.version, position)
        if end != len(frame):
            raise WireError(
                f"the answer to request {correlation_id} is followed by {len(frame) - end} extra "
                "bytes"
            )
        del self._asked[correlation_id]
        self.answered_ms = self._world.clock.monotonic_ms()
        return asked.answered, answer

    def _break(self, reason: str) -> None:
        """Close the link, because the other side violates the protocol."""
        logger.warning(
            "closed the connection to another broker, because its answer was invalid",
            extra=fields(peer=self._link.peer if self._link is not None else "", reason=reason),
        )
        self._finish(End.CLOSED)

    def _finish(self, end: End) -> None:
        if self._end is not None:
            return
        self._end = end
        if self._timer is not None:
            self._timer.cancel()
        if self._link is not None:
            self._link.close()
        asked, self._asked = self._asked, {}
        self._unsent.clear()
        self._given_up.clear()
        # Call `on_end` before `failed`, so that a caller that repeats its request gets a new link.
        self._world.soon(self._on_end, end)
        for one in asked.values():
            self._world.soon(one.failed, end)

    # Deadlines.

    def _wake_by(self, deadline_ms: int) -> None:
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        # Add one millisecond, because the loop's clock and this clock round to milliseconds at
        # different moments.
        delay_ms = max(deadline_ms - self._world.clock.monotonic_ms(), 0) + 1
        self._timer = self._world.later(delay_ms, self._ring)

    def _ring(self) -> None:
        """Let the loop read the sockets before requests expire, because the loop can have been
        busy.

        This takes two iterations of the loop, because libuv runs timers, and the callbacks that
        they schedule, before it polls the sockets.
        """
        self._timer = None
        self._world.soon(self._world.soon, self._expire)

    def _expire(self) -> None:
        if self._end is not None:
            return
        now_ms = self._world.clock.monotonic_ms()
        due = [number for number, one in self._asked.items() if one.deadline_ms <= now_ms]
        overdue = [self._asked.pop(number) for number in due]
        self._given_up.update(due)
        if self._asked:
            self._wake_by(min(one.deadline_ms for one in self._asked.values()))
        for one in overdue:
            one.failed(End.TIMED_OUT)
