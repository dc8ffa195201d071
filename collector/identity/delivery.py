"""How far a generation was handed out, and how far that is committed.

Floor: ground of the room. Pure. Lines are handed out in the file's order. When a transaction is cut
everything handed out by then belongs to it, and the position that goes with them is the end of the
last one: all of it holds, or nothing does. One transaction is on its way at a time.
"""

from collector.text.fingerprint import Evidence


class Delivery:
    """One generation's lines between the file and the brokers' commit."""

    def __init__(self, evidence: Evidence, lines: int = 0):
        self.safe = evidence
        self.lines = lines
        """Committed since the generation began."""
        self.sent = evidence
        self.sent_lines = lines
        self._cut: tuple[Evidence, int] | None = None

    @property
    def is_settled(self) -> bool:
        """Nothing handed out is without its commit."""
        return self.sent is self.safe

    def send(self, evidence: Evidence, lines: int) -> None:
        """Note lines that follow directly upon those before, and end where `evidence` stands."""
        self.sent = evidence
        self.sent_lines += lines

    def cut(self) -> None:
        """Everything handed out so far belongs to the transaction that is ended next."""
        self._cut = (self.sent, self.sent_lines)

    def committed(self) -> None:
        """The transaction of the last cut holds."""
        if self._cut is not None:
            self.safe, self.lines = self._cut
            self._cut = None

    def given_up(self) -> None:
        """It was aborted: its lines travel again, in the next one."""
        self._cut = None
