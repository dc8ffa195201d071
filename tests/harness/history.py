"""The operations of clients on a log and their results: the input of `checker`.

This module is pure: it has no clock, threads or clients. Each producer has a `SendLog`, each
consumer a `ReadLog`, each committer of offsets a `CommitLog`. A missing response does not mean
failure: the record can be in the log once, or not at all.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import IntEnum

Place = tuple[str, int]
"""Topic and partition."""


class Outcome(IntEnum):
    """The result of an operation. UNKNOWN: no response, or timed out. FAILED: the operation
    certainly had no effect."""

    UNKNOWN = 0
    OK = 1
    FAILED = 2


class SendLog:
    """One producer's records in the order of sending. All times are from one clock."""

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
        """The number of the transaction to which each record belongs, or -1."""
        self.ends: dict[int, Outcome] = {}
        """The end of each transaction: OK if it was committed, FAILED if it was aborted."""

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
        """Record a value before it is sent. Return its number."""
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
        """Record that the value was acknowledged at this offset."""
        self.outcomes[number] = Outcome.OK
        self.offsets[number] = offset
        self.answered_ns[number] = now_ns

    def fail(self, number: int) -> None:
        """Record that the value certainly never reached the log. Do not call this in doubt: then
        the outcome stays UNKNOWN."""
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
        """True if it has read every partition from start to end after everything had stopped. Other
        readers are compared with it."""
        self.is_read_committed = is_read_committed
        self.offsets: dict[Place, array[int]] = {}
        self.values: dict[Place, list[bytes]] = {}
        self.keys: dict[Place, list[bytes | None]] = {}
        self.starts: dict[Place, int] = {}
        """The log start offset of each partition, for a full reader."""

    def move(self, place: Place) -> None:
        """Record that the reader's position changes: seek, rebalance, restart."""
        self.offsets.setdefault(place, array("q")).append(self.MOVED)
        self.values.setdefault(place, []).append(b"")
        self.keys.setdefault(place, []).append(None)

    def read(self, place: Place, offset: int, value: bytes, key: bytes | None = None) -> None:
        """Record a record that the reader got."""
        self.offsets.setdefault(place, array("q")).append(offset)
        self.values.setdefault(place, []).append(value)
        self.keys.setdefault(place, []).append(key)

    def forget(self, place: Place) -> None:
        """Record that the reader starts a partition again."""
        for known in (self.offsets, self.values, self.keys):
            known.pop(place, None)

    def records(self, place: Place) -> Iterable[tuple[int, bytes]]:
        """Yield the offsets and values that were read, without the moves."""
        for offset, value in zip(
            self.offsets.get(place, ()), self.values.get(place, ()), strict=True
        ):
            if offset != self.MOVED:
                yield offset, value


class CommitLog:
    """The increasing offsets committed for one group, and the offsets that were read back."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.events: list[tuple[str, Place, int]] = []

    def invoke(self, place: Place, offset: int) -> None:
        """Record an offset before it is committed."""
        self.events.append(("invoke", place, offset))

    def ok(self, place: Place, offset: int) -> None:
        """Record that the commit was acknowledged."""
        self.events.append(("ok", place, offset))

    def saw(self, place: Place, offset: int) -> None:
        """Record the committed offset that the broker reports, or -1 if it reports none."""
        self.events.append(("saw", place, offset))
