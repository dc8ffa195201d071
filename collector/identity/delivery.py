"""Tracks how much of a generation was handed out (sent), and how much of that is committed.

Pure. Lines are handed out in the order of the file. When a transaction is closed, all lines handed
out so far belong to it, and the position that it commits is the end of the last line. At most one
transaction is in flight.
"""

from collector.text.fingerprint import Evidence


class Delivery:
    """The lines of one generation between the file and the brokers' commit."""

    def __init__(self, evidence: Evidence, lines: int = 0):
        self.safe = evidence
        self.lines = lines
        """Lines committed since the generation began."""
        self.sent = evidence
        self.sent_lines = lines
        self._cut: tuple[Evidence, int] | None = None

    @property
    def is_settled(self) -> bool:
        """Tell whether everything handed out is committed."""
        return self.sent is self.safe

    def send(self, evidence: Evidence, lines: int) -> None:
        """Note that the next `lines` lines were handed out; they end at `evidence`."""
        self.sent = evidence
        self.sent_lines += lines

    def cut(self) -> None:
        """Assign all lines handed out so far to the transaction that ends next."""
        self._cut = (self.sent, self.sent_lines)

    def committed(self) -> None:
        """Note that the transaction of the last `cut` was committed."""
        if self._cut is not None:
            self.safe, self.lines = self._cut
            self._cut = None

    def given_up(self) -> None:
        """Note that the transaction was aborted, so its lines are sent again in the next one."""
        self._cut = None
