"""How much of a generation was handed out, and how much of that is committed.

Room: ground of the room. Pure. Lines are handed out in the order of the file. When a transaction
is closed, everything handed out so far belongs to it, and the position committed with it is the end
of the last line. At most one transaction is in flight.
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
        """Note `lines` handed out directly behind the earlier ones; they end at `evidence`."""
        self.sent = evidence
        self.sent_lines += lines

    def cut(self) -> None:
        """Put everything handed out so far into the transaction that ends next."""
        self._cut = (self.sent, self.sent_lines)

    def committed(self) -> None:
        """Note that the transaction of the last `cut` was committed."""
        if self._cut is not None:
            self.safe, self.lines = self._cut
            self._cut = None

    def given_up(self) -> None:
        """Note that it was aborted: its lines are sent again in the next transaction."""
        self._cut = None
