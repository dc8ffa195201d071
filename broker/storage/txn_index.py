"""The aborted transactions whose marker is in one segment, as in Kafka's `.txnindex` file.

This module is pure. The file is a row of 34-byte entries, big-endian: version int16 (0), producer
id int64, first offset int64, last offset int64 (of the marker), last stable offset int64 (as of the
time when the marker was written). The entries are in the order of the markers. A segment without
aborted transactions has no file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

ENTRY_BYTES = 34
VERSION = 0
_ENTRY = Struct(">hqqqq")
_LAST_OFFSET = attrgetter("last_offset")


class AbortedRange(NamedTuple):
    """An aborted transaction, for read-committed consumers: skip this producer up to its marker."""

    producer_id: int
    first_offset: int


class AbortedEntry(NamedTuple):
    """One entry of the index."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """The last stable offset when the marker was written. No transaction that ends later can have
    begun below it."""


def encode(entries: Iterable[AbortedEntry]) -> bytes:
    return b"".join([_ENTRY.pack(VERSION, *entry) for entry in entries])


def decode(data: bytes, base_offset: int, next_offset: int) -> list[AbortedEntry]:
    """Read the file of the segment with these offsets.

    Raises ValueError if the entries do not fit the segment.
    """
    if len(data) % ENTRY_BYTES:
        raise ValueError(
            f"the transaction index has {len(data)} bytes, expected a multiple of {ENTRY_BYTES}"
        )
    entries = []
    last_offset = base_offset - 1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedEntry(*fields)
        if version != VERSION:
            raise ValueError(
                f"an entry of the transaction index has version {version}, expected {VERSION}"
            )
        if not last_offset < entry.last_offset < next_offset:
            raise ValueError(
                "the entries of the transaction index are not in the order of the markers, or "
                "are outside the segment"
            )
        if not 0 <= entry.first_offset < entry.last_offset or entry.producer_id < 0:
            raise ValueError(
                "an entry of the transaction index has a first offset above its last offset"
            )
        if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            raise ValueError(
                "an entry of the transaction index has a last stable offset above its end"
            )
        last_offset = entry.last_offset
        entries.append(entry)
    return entries


def overlapping(
    indexes: Iterable[Sequence[AbortedEntry]], start_offset: int, end_offset: int
) -> list[AbortedRange]:
    """Return the aborted transactions with a batch in [start, end), by first offset.

    `indexes` has the indexes of the segment that contains the start and of all later segments. They
    are read only as far as needed. The search begins at the first marker at or above the start, and
    ends at an entry whose last stable offset reaches the end.
    """
    found = []
    for entries in indexes:
        for number in range(bisect_left(entries, start_offset, key=_LAST_OFFSET), len(entries)):
            entry = entries[number]
            if entry.first_offset < end_offset:
                found.append(AbortedRange(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= end_offset:
                return _by_first_offset(found)
    return _by_first_offset(found)


def _by_first_offset(found: list[AbortedRange]) -> list[AbortedRange]:
    return sorted(found, key=lambda one: (one.first_offset, one.producer_id))
