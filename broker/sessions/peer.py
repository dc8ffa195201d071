"""The asking side of a link to another broker: requests out, each answered once or given up once.

Floor: sessions. The mirror of `session`: a ledger of what was asked, by correlation id, over a
`Link`. Knows no socket and no clock but the world's. What it is asked before the link stands waits
for that, and its deadline runs meanwhile.

A request ends in one of three ways. It is answered. Its deadline passes: it has failed with
TIMED_OUT, and its answer, should it come later, is thrown away. Or the link ends, and everything on
it has failed with that end. An answer to nothing that was asked, or one that cannot be read, is a
fault of the protocol and ends the link: what comes behind it cannot be trusted.
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
"""Requests without an answer on one link, given-up ones included. A peer that owes so many has
stopped answering, and the link is ended."""

CORRELATION_IDS = 1 << 31

_CORRELATION = Packed(">i")

Answered = Callable[[Any], None]
Failed = Callable[[End], None]


class CorrelationIds:
    """The ids of all requests of one broker: none comes again on another link.

    They begin anew after two milliards, when nobody remembers the first ones.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        """One that no request under way has."""
        taken = self._next
        self._next = (taken + 1) % CORRELATION_IDS
        return taken


class Asked(NamedTuple):
    """One request under way."""

    api_key: int
    version: int
    deadline_ms: int
    answered: Answered
    failed: Failed


class Peer:
    """One link to another broker, from its dial to its end. `on_end` hears of that, once."""

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
        """Requests that wait for the link, as chunks."""
        self._asked: dict[int, Asked] = {}
        self.has_answered = False
        """Whether the other side has ever answered here, as the protocol wants it."""
        self._given_up: set[int] = set()
        """Whose deadline has passed: their answers may still come."""
        self._timer: Cancel | None = None
        self._timer_ms = 0

    @property
    def is_open(self) -> bool:
        """Whether it may be asked: the link stands, or is on its way."""
        return self._end is None

    def dial(self, address: Address, *, asks_resolver: bool = True) -> None:
        """Connect. To be called once, before or after the first request."""
        assert self._link is None, "a peer is one link"
        self._link = self._world.dial(address, self, asks_resolver=asks_resolver)

    def ask(
        self,
        request: Message,
        version: int,
        deadline_ms: int,
        answered: Answered,
        failed: Failed,
    ) -> int:
        """Send a request; one of the two is called once, but not before this returns.

        The answer's records are views that die when `answered` returns. `deadline_ms` is monotonic.
        Returns the correlation id. Raises EncodeError for what the version cannot carry.
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
        self._asked[correlation_id] = Asked(request.api_key, version, deadline_ms, answered, failed)
        self._wake_by(deadline_ms)
        if self._is_standing:
            assert self._link is not None
            self._link.send(chunks)
        else:
            self._unsent += chunks
        return correlation_id

    def close(self) -> None:
        """End it from this side: what is asked has failed with CLOSED."""
        self._finish(End.CLOSED)

    # The link calls these.

    def linked(self, link: Link) -> None:
        """The link stands: what has waited for that is sent."""
        self._link = link
        if self._end is not None:
            link.close()
            return
        self._is_standing = True
        unsent, self._unsent = self._unsent, []
        if unsent:
            link.send(unsent)

    def take(self, frames: Iterator[memoryview]) -> None:
        """Answers have come."""
        while self._end is None:
            try:
                frame = next(frames, None)
                if frame is None:
                    return
                read = self._read(frame)
            except WireError as error:
                self._break(str(error))
                return
            # Outside: a fault of whoever hears it is none of the link's.
            if read is not None:
                answered, answer = read
                answered(answer)

    def drained(self) -> None:
        """All that was asked has left; nobody waits for that."""

    def ended(self, end: End, reason: str = "") -> None:
        """Nothing more will be answered."""
        self._finish(end)

    # Inside.

    def _read(self, frame: memoryview) -> tuple[Answered, Any] | None:
        """Whom an answer is for, and what it says; None where nobody waits for it any more."""
        if len(frame) < _CORRELATION.size:
            raise WireError(f"an answer of {len(frame)} bytes")
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        if correlation_id in self._given_up:
            self._given_up.discard(correlation_id)
            self.has_answered = True
            return None
        asked = self._asked.get(correlation_id)
        if asked is None:
            raise WireError(f"an answer to request {correlation_id}, which was not asked here")
        _, position = decode_response_header(frame, asked.api_key, asked.version)
        answer, end = response_class(asked.api_key).decode(frame, asked.version, position)
        if end != len(frame):
            raise WireError(f"{len(frame) - end} bytes behind the answer {correlation_id}")
        del self._asked[correlation_id]
        self.has_answered = True
        return asked.answered, answer

    def _break(self, reason: str) -> None:
        """The other side does not keep to the protocol."""
        logger.warning(
            "link to another broker is ended",
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
        # First, so that who asks again when he hears of it finds another link.
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
        # One more, for the loop's clock and ours are cut to milliseconds at different places.
        delay_ms = max(deadline_ms - self._world.clock.monotonic_ms(), 0) + 1
        self._timer = self._world.later(delay_ms, self._ring)

    def _ring(self) -> None:
        """A deadline may have passed while the loop was away: first the sockets are read.

        Two turns, for libuv calls timers, and what they want next, before it looks at sockets.
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
