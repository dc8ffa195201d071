"""What of a generation has been acknowledged: the position that is safe to store.

Floor: ground of the room. Pure. Lines leave as spans in the file's order; a span may be
acknowledged before its predecessor, but the safe position moves only over spans without a gap.
"""

from collections import deque
from dataclasses import dataclass

from collector.fingerprint import Evidence


@dataclass(slots=True)
class Span:
    """A stretch of one generation that travels as one; it ends where `evidence` stands.

    `parts_open` is 1, and more only where a refused batch had to be cut smaller.
    """

    evidence: Evidence
    lines: int
    parts_open: int = 1


class Delivery:
    """The spans of one generation on their way, and the safe end of those that arrived."""

    def __init__(self, evidence: Evidence, lines: int = 0):
        self.safe = evidence
        self.lines = lines  # acknowledged lines since the generation began
        self._spans: deque[Span] = deque()

    @property
    def outstanding(self) -> int:
        """How many spans have been sent and not yet passed by the safe position."""
        return len(self._spans)

    def send(self, evidence: Evidence, lines: int) -> Span:
        """Note a span that follows directly upon the one before."""
        span = Span(evidence, lines)
        self._spans.append(span)
        return span

    def acknowledge(self, span: Span) -> bool:
        """Note that a part of a span arrived; True when the safe position moved."""
        assert span.parts_open > 0, "a part is acknowledged once"
        span.parts_open -= 1
        moved = False
        while self._spans and not self._spans[0].parts_open:
            head = self._spans.popleft()
            self.safe = head.evidence
            self.lines += head.lines
            moved = True
        return moved
