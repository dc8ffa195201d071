"""The operations of clients on a log and their results: the input of `checker`.

Pure: no clock, no threads, no client. Each producer keeps a `SendLog`, each consumer a `ReadLog`,
each committer of offsets a `CommitLog`. An answer that never came is no failure: such a record may
stand in the log, once, or be missing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import IntEnum

Place = tuple[str, int]
"""Topic and partition."""


class Outcome(IntEnum):
    """The outcome of an operation. UNKNOWN: invoked but never answered, or timed out. FAILED:
    promised to have no effect."""

    UNKNOWN = 0
    OK = 1
    FAILED = 2


class SendLog:
    """One producer's records in the order it sent them. All times are by one clock."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.values: list[bytes] = []
        self.keys: list[bytes | None] = []
        self.places: list[Place] = []
        self.outcomes = bytearray()
        self.offsets = array("q")
        self.invoked_ns = array("q")
        self.answered_ns = array("q")
        self.transactions = array("q")
        """Number of the transaction a record belongs to, -1 for none."""
        self.ends: dict[int, Outcome] = {}
        """The end of each transaction: OK committed, FAILED aborted."""

    def __len__(self) -> int:
        return len(self.values)

    def invoke(
        self,
        place: Place,
        value: bytes,
        now_ns: int,
        *,
        key: bytes | None = None,
        transaction: int = -1,
    ) -> int:
        """Note a record before it is sent; returns its number."""
        self.values.append(value)
        self.keys.append(key)
        self.places.append(place)
        self.outcomes.append(Outcome.UNKNOWN)
        self.offsets.append(-1)
        self.invoked_ns.append(now_ns)
        self.answered_ns.append(-1)
        self.transactions.append(transaction)
        if transaction >= 0:
            self.ends.setdefault(transaction, Outcome.UNKNOWN)
        return len(self.values) - 1

    def ok(self, number: int, offset: int, now_ns: int) -> None:
        """The record was acknowledged at this offset."""
        self.outcomes[number] = Outcome.OK
        self.offsets[number] = offset
        self.answered_ns[number] = now_ns

    def fail(self, number: int) -> None:
        """The record certainly never reached the log. In doubt say nothing: it stays unknown."""
        self.outcomes[number] = Outcome.FAILED

    def end(self, transaction: int, outcome: Outcome) -> None:
        """Record that a transaction was committed (OK), aborted (FAILED), or has an unknown
        outcome."""
        self.ends[transaction] = outcome


class ReadLog:
    """The records that one consumer got, in order. A `move` is a seek, or a reset by the client."""

    MOVED = -1

    def __init__(
        self, process: str, *, is_full: bool = False, is_read_committed: bool = False
    ) -> None:
        self.process = process
        self.is_full = is_full
        """Read every partition from its start to its end when all was over: the truth."""
        self.is_read_committed = is_read_committed
        self.offsets: dict[Place, array[int]] = {}
        self.values: dict[Place, list[bytes]] = {}
        self.keys: dict[Place, list[bytes | None]] = {}
        self.starts: dict[Place, int] = {}
        """Log start offset, for a full reader."""

    def move(self, place: Place) -> None:
        """The reader goes elsewhere: seek, rebalance, restart."""
        self.offsets.setdefault(place, array("q")).append(self.MOVED)
        self.values.setdefault(place, []).append(b"")
        self.keys.setdefault(place, []).append(None)

    def read(self, place: Place, offset: int, value: bytes, key: bytes | None = None) -> None:
        """The reader was given a record."""
        self.offsets.setdefault(place, array("q")).append(offset)
        self.values.setdefault(place, []).append(value)
        self.keys.setdefault(place, []).append(key)

    def forget(self, place: Place) -> None:
        """The reader begins a partition again."""
        for known in (self.offsets, self.values, self.keys):
            known.pop(place, None)

    def records(self, place: Place) -> Iterable[tuple[int, bytes]]:
        """Offsets and values given, moves left out."""
        for offset, value in zip(
            self.offsets.get(place, ()), self.values.get(place, ()), strict=True
        ):
            if offset != self.MOVED:
                yield offset, value


class CommitLog:
    """Offsets committed for one group, always growing, and what was read back of them."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.events: list[tuple[str, Place, int]] = []

    def invoke(self, place: Place, offset: int) -> None:
        """About to be committed."""
        self.events.append(("invoke", place, offset))

    def ok(self, place: Place, offset: int) -> None:
        """Acknowledged."""
        self.events.append(("ok", place, offset))

    def saw(self, place: Place, offset: int) -> None:
        """The broker says this is committed; -1 when it says nothing is."""
        self.events.append(("saw", place, offset))
