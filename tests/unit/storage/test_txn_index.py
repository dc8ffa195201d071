"""A search for aborted transactions returns the same as a search through every entry."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import overload

from broker.storage.transactions import LogTransactions
from broker.storage.txn_index import AbortedEntry, AbortedRange, overlapping
from tests.harness.seed import seeded

OFFSETS = 400


class CountedIndex(Sequence[AbortedEntry]):
    """A transaction index that counts how many entries are read."""

    def __init__(self, entries: list[AbortedEntry]) -> None:
        self._entries = entries
        self.looked_at = 0

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, number: int) -> AbortedEntry: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[AbortedEntry]: ...
    def __getitem__(self, number: int | slice) -> AbortedEntry | Sequence[AbortedEntry]:
        self.looked_at += 1
        return self._entries[number]


def lived(chance: random.Random) -> list[AbortedEntry]:
    """Return the index entries of a log in which transactions of some producers begin and end at
    random."""
    transactions = LogTransactions()
    entries = []
    for offset in range(OFFSETS):
        producer_id = chance.randint(1, 6)
        if producer_id not in transactions.open or chance.random() < 0.4:
            transactions.begin(producer_id, offset)
        elif (ended := transactions.end(producer_id, offset)) and chance.random() < 0.7:
            entries.append(AbortedEntry(producer_id, *ended))
    return entries


def by_hand(entries: list[AbortedEntry], start: int, end: int) -> list[AbortedRange]:
    inside = [one for one in entries if one.last_offset >= start and one.first_offset < end]
    found = [AbortedRange(one.producer_id, one.first_offset) for one in inside]
    return sorted(found, key=lambda one: (one.first_offset, one.producer_id))


def test_any_stretch_of_any_index_agrees_with_a_search_through_every_entry() -> None:
    chance = seeded("any stretch of any index")
    for _ in range(60):
        entries = lived(chance)
        bases = sorted({0, *chance.sample(range(OFFSETS), chance.randint(0, 6))})
        ends = [*bases[1:], OFFSETS]
        segments = [
            [one for one in entries if base <= one.last_offset < end]
            for base, end in zip(bases, ends, strict=True)
        ]
        for _ in range(40):
            start = chance.randint(0, OFFSETS)
            end = chance.randint(start, OFFSETS + 5)
            first = sum(base <= start for base in bases) - 1
            found = overlapping(segments[first:], start, end)
            assert found == by_hand(entries, start, end), (bases, start, end)


def test_a_short_stretch_looks_at_few_entries_of_a_long_index() -> None:
    entries = [
        AbortedEntry(7, 2 * number, 2 * number + 1, 2 * number + 2) for number in range(4096)
    ]
    for start in (0, 4000, 8100):
        index = CountedIndex(entries)
        found = overlapping([index], start, start + 20)
        assert [one.first_offset for one in found] == list(range(start, start + 20, 2))
        assert index.looked_at < 40
