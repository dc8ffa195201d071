"""The order of one connection's requests: which may start, which answers may leave.

Floor: sessions. Pure: no socket, no loop. Answers leave strictly in the order of the requests.
Produce behind Produce overlaps: both are appended in order of arrival, and answered when durable.
Any other request starts only when everything before it has its answer; until then it waits here as
a copy of its frame, and everything behind it with it. Behind a Produce that takes turns (`opening`)
nothing starts before all of its batches are appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.metrics.times import Timing


class Slot:
    """The place of one started request in the line of answers."""

    __slots__ = ("answer", "lets_produce_start", "size_bytes", "timing")

    def __init__(self, is_produce: bool, size_bytes: int) -> None:
        self.lets_produce_start = is_produce
        """Whether a Produce may start behind it: it is one, and its batches are appended."""
        self.size_bytes = size_bytes
        self.answer: Sequence[object] | None = None
        """The chunks to send; empty when the request gets no answer; None while it has none yet."""
        self.timing: Timing | None = None
        """Set when the request is one of those that are timed."""


class Pipeline:
    """Started requests without an answer sent, and frames that wait to be started."""

    __slots__ = (
        "_bytes_max",
        "_count_max",
        "_line",
        "_size_bytes",
        "_waiting",
        "held_bytes",
        "leaving",
        "waited_since_ns",
    )

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._line: deque[Slot] = deque()
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._size_bytes = 0
        self.held_bytes = 0
        """What the copies of waiting frames take, and of batches that are being opened."""
        self.waited_since_ns = 0
        """Since when the frame had waited that `start_waiting` gave last."""
        self.leaving: list[Timing] = []
        """Timed requests whose answers have been taken, and may not be sent yet."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way and nothing waits."""
        return not self._line and not self._waiting

    @property
    def is_full(self) -> bool:
        """Whether no more may be read from the connection for now."""
        count = len(self._line) + len(self._waiting)
        return count >= self._count_max or self._size_bytes >= self._bytes_max

    def admit(self, is_produce: bool, size_bytes: int) -> Slot | None:
        """A place in the line for a request that arrives now; None if it may not start at once."""
        return None if self._waiting else self._start(is_produce, size_bytes)

    def _start(self, is_produce: bool, size_bytes: int) -> Slot | None:
        line = self._line
        # All in line are of one kind: nothing but Produce ever starts behind another.
        if line and not (is_produce and line[-1].lets_produce_start):
            return None
        slot = Slot(is_produce, size_bytes)
        line.append(slot)
        self._size_bytes += size_bytes
        return slot

    def hold(self, slot: Slot) -> None:
        """Let nothing start behind a Produce that has copied its batches and goes on with them."""
        slot.lets_produce_start = False
        self.held_bytes += slot.size_bytes

    def let_go(self, slot: Slot) -> None:
        """Its batches are all appended, or refused."""
        slot.lets_produce_start = True
        self.held_bytes -= slot.size_bytes

    def wait(self, frame: bytes, now_ns: int = 0) -> None:
        """Keep a frame that is not admitted."""
        self._waiting.append((frame, now_ns))
        self._size_bytes += len(frame)
        self.held_bytes += len(frame)

    @property
    def waiting(self) -> Iterator[bytes]:
        """The frames that wait to be started, in their order."""
        return (frame for frame, _ in self._waiting)

    def start_waiting(self) -> tuple[Slot, bytes] | None:
        """A place for the frame that waited longest, if it may start; it is the caller's then."""
        if not self._waiting:
            return None
        frame, since_ns = self._waiting[0]
        slot = self._start(is_produce_frame(frame), len(frame))
        if slot is None:
            return None
        self._waiting.popleft()
        self.waited_since_ns = since_ns
        # It was counted while it waited, and is counted in the line by now.
        self._size_bytes -= len(frame)
        self.held_bytes -= len(frame)
        return slot, frame

    def take_answers(self) -> list[object]:
        """The chunks of all answers that may leave now, in order; they are forgotten here."""
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
        """All that was taken has been sent: those of it that are timed end here."""
        for timing in self.leaving:
            timing.sent()
        self.leaving.clear()

    def clear(self) -> None:
        """The connection is gone."""
        self._line.clear()
        self._waiting.clear()
        self.leaving.clear()
        self._size_bytes = self.held_bytes = 0


def is_produce_frame(frame: bytes | memoryview) -> bool:
    """Whether a request frame is a Produce: the API key is its first two bytes, and 0."""
    return len(frame) >= 2 and frame[0] == 0 and frame[1] == 0
