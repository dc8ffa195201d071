"""A mapping that never changes, and of which a copy with changes is cheap.

This module is pure. The keys are spread over a fixed number of small dictionaries. A copy with
changes shares all dictionaries with the original, except those whose keys differ. So one change of
a large mapping does not copy the mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

PART_COUNT = 256
"""The number of dictionaries. With 50,000 keys, each dictionary has about 200 keys."""


class SharedMap(Mapping[K, V], Generic[K, V]):
    """An immutable mapping. The order of its keys has no meaning."""

    __slots__ = ("_count", "_parts")

    def __init__(self) -> None:
        self._parts: list[dict[K, V]] = [{}] * PART_COUNT
        self._count = 0

    def changed(self, changes: Mapping[K, V | None]) -> SharedMap[K, V]:
        """Return a mapping with these changes. None removes a key, which can be missing."""
        made: SharedMap[K, V] = SharedMap()
        parts, count = list(self._parts), len(self)
        copied: set[int] = set()
        for key, value in changes.items():
            index = hash(key) % PART_COUNT
            if index not in copied:
                copied.add(index)
                parts[index] = dict(parts[index])
            part = parts[index]
            count -= len(part)
            if value is None:
                part.pop(key, None)
            else:
                part[key] = value
            count += len(part)
        made._parts, made._count = parts, count
        return made

    def __getitem__(self, key: K) -> V:
        return self._parts[hash(key) % PART_COUNT][key]

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]  # hot
        return self._parts[hash(key) % PART_COUNT].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) % PART_COUNT]

    def __iter__(self) -> Iterator[K]:
        for part in self._parts:
            yield from part

    def __len__(self) -> int:
        return self._count
