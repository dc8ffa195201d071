"""Tracks how much of a file was handed out for sending, and how much of that is committed.

This module is pure. Lines are handed out in the order of the file. The next transaction to be
committed holds all lines handed out so far, and the position at which they end. At most one
transaction is in flight.
"""

from collector.text.fingerprint import Evidence


class Delivery:
    """The lines of one file that were handed out or committed."""

    def __init__(self, evidence: Evidence, lines: int = 0):
        self.safe = evidence
        self.lines = lines
        """The number of lines committed since the generation began."""
        self.sent = evidence
        self.sent_lines = lines
        self._cut: tuple[Evidence, int] | None = None

    @property
    def is_settled(self) -> bool:
        """Tell whether all lines that were handed out are committed."""
        return self.sent is self.safe

    def send(self, evidence: Evidence, lines: int) -> None:
        """Add `lines` lines that were handed out. They end at `evidence`."""
        self.sent = evidence
        self.sent_lines += lines

    def cut(self) -> None:
        """Assign all lines handed out so far to the transaction that is about to be committed."""
        self._cut = (self.sent, self.sent_lines)

    def committed(self) -> None:
        """Handle the commit of the transaction of the last `cut`."""
        if self._cut is not None:
            self.safe, self.lines = self._cut
            self._cut = None

    def given_up(self) -> None:
        """Handle the abort of the transaction. The next transaction sends its lines again."""
        self._cut = None
