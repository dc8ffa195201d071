"""The order of one connection's requests: when each starts, and when each answer is sent.

This module is pure. Answers are sent strictly in the order of the requests. A Produce may start
while earlier requests are unanswered if all of these are Produces. Their batches are appended in
order of arrival, and they are answered when the batches are durable. Any other request starts only
when every earlier request has its answer. Until then it waits here as a copy of its frame, and all
later frames wait too. After a Produce that needs several iterations of the event loop (`opening`),
nothing starts before all its batches are appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.metrics.times import RequestTiming
    from broker.sessions.charges import Charge


class Slot:
    """The slot of one started request in the order of answers."""

    __slots__ = ("answer", "charge", "lets_produce_start", "size_bytes", "timing")

    def __init__(self, is_produce: bool, size_bytes: int) -> None:
        self.lets_produce_start = is_produce
        """True if a Produce may start before this request is answered: it is a Produce whose
        batches are appended."""
        self.size_bytes = size_bytes
        self.answer: Sequence[object] | None = None
        """The chunks of the answer. Empty if no answer is sent; None until the answer is ready."""
        self.timing: RequestTiming | None = None
        """The measurement of this request's time; None if it is not measured."""
        self.charge: Charge | None = None
        """The cost of this request for its client; None on a listener without quotas."""


class Pipeline:
    """The started requests whose answers are not yet sent, and the frames that wait to be
    started."""

    __slots__ = (
        "_bytes_max",
        "_count_limit",
        "_count_max",
        "_line",
        "_size_bytes",
        "_waiting",
        "held_bytes",
        "leaving",
        "waited_since_ns",
    )

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_limit = count_max
        self._count_max = count_max
        """The largest number of requests in progress at the moment: `_count_limit`, or 0 during a
        pause."""
        self._bytes_max = bytes_max
        self._line: deque[Slot] = deque()
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._size_bytes = 0
        self.held_bytes = 0
        """The size in bytes of waiting frames, and of requests whose batches are being
        decompressed."""
        self.waited_since_ns = 0
        """The time in nanoseconds at which the last frame from `start_waiting` had begun to
        wait."""
        self.leaving: list[RequestTiming] = []
        """The measurements of requests whose answers were taken but possibly not yet sent."""

    @property
    def is_idle(self) -> bool:
        """True if no request is in progress and no frame waits."""
        return not self._line and not self._waiting

    @property
    def is_full(self) -> bool:
        """True if the session must not read more from the connection at the moment."""
        count = len(self._line) + len(self._waiting)
        return count >= self._count_max or self._size_bytes >= self._bytes_max

    def admit(self, is_produce: bool, size_bytes: int) -> Slot | None:
        """Return a slot for a request that arrives now; None if it cannot start at once."""
        return None if self._waiting else self._start(is_produce, size_bytes)

    def _start(self, is_produce: bool, size_bytes: int) -> Slot | None:
        line = self._line
        # If several requests are in progress, all of them are Produces. So the last one decides.
        if line and not (is_produce and line[-1].lets_produce_start):
            return None
        slot = Slot(is_produce, size_bytes)
        line.append(slot)
        self._size_bytes += size_bytes
        return slot

    def throttle(self) -> None:
        """Start no request until `resume` is called. In the meantime `is_full` is True."""
        self._count_max = 0

    def resume(self) -> None:
        """Let requests start again."""
        self._count_max = self._count_limit

    def hold(self, slot: Slot) -> None:
        """Start no later request while a Produce continues with a copy of its batches."""
        slot.lets_produce_start = False
        self.held_bytes += slot.size_bytes

    def let_go(self, slot: Slot) -> None:
        """Let later requests start again, because all batches of the Produce are appended or
        refused."""
        slot.lets_produce_start = True
        self.held_bytes -= slot.size_bytes

    def wait(self, frame: bytes, now_ns: int = 0) -> None:
        """Keep a frame that was not admitted."""
        self._waiting.append((frame, now_ns))
        self._size_bytes += len(frame)
        self.held_bytes += len(frame)

    @property
    def waiting(self) -> Iterator[bytes]:
        """The frames that wait to be started, in order."""
        return (frame for frame, _ in self._waiting)

    def start_waiting(self) -> tuple[Slot, bytes] | None:
        """Return the oldest waiting frame with its slot; None if it cannot start now.

        The caller must serve the frame.
        """
        if not self._waiting or not self._count_max:
            return None
        frame, since_ns = self._waiting[0]
        slot = self._start(is_produce_frame(frame), len(frame))
        if slot is None:
            return None
        self._waiting.popleft()
        self.waited_since_ns = since_ns
        # The size of the frame is now counted with its slot.
        self._size_bytes -= len(frame)
        self.held_bytes -= len(frame)
        return slot, frame

    def take_answers(self) -> list[object]:
        """Return the chunks of all answers that can be sent now, in order, and remove them."""
        chunks: list[object] = []
        line = self._line
        while line and (answer := line[0].answer) is not None:
            slot = line.popleft()
            self._size_bytes -= slot.size_bytes
            chunks.extend(answer)
            if slot.timing is not None:
                self.leaving.append(slot.timing)
        return chunks

    def sent(self) -> None:
        """End the measurements of all answers that were taken, because they have been sent."""
        for timing in self.leaving:
            timing.sent()
        self.leaving.clear()

    def clear(self) -> None:
        """Remove all requests and frames, because the connection is closed."""
        self._line.clear()
        self._waiting.clear()
        self.leaving.clear()
        self._size_bytes = self.held_bytes = 0


def is_produce_frame(frame: bytes | memoryview) -> bool:
    """Return True if a frame is a Produce request. The first two bytes are its API key, 0."""
    return len(frame) >= 2 and frame[0] == 0 and frame[1] == 0
