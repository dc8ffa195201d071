"""Columns: many small rows in a few arrays, for data that is kept and rarely read.

This module is pure. A row of Python objects takes ten times the memory of its numbers in an array.
So the data of a hundred thousand readers is kept in columns between two polls.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from protocol.types import TopicPartition

Value = TypeVar("Value")

BYTE_VALUES = 256
"""The number of different values that one byte can have."""


def signed(values: Iterable[int]) -> "array[int]":
    """Return an array of whole numbers of eight bytes, for offsets and times."""
    # An array that is made from a list has no spare capacity, so it takes less memory.
    return array("q", list(values))


class Repeated(Generic[Value]):
    """A column with few different values. It keeps each value once, and an index for every row."""

    __slots__ = ("_indices", "_values")

    def __init__(self, values: Iterable[Value]) -> None:
        values = list(values)
        self._values = tuple(dict.fromkeys(values))
        numbers = {value: number for number, value in enumerate(self._values)}
        indices = list(map(numbers.__getitem__, values))
        self._indices = array("B" if len(numbers) <= BYTE_VALUES else "I", indices)

    @property
    def values(self) -> tuple[Value, ...]:
        """The different values, in the order of their first rows."""
        return self._values

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Value:
        return self._values[self._indices[index]]

    def __iter__(self) -> Iterator[Value]:
        return map(self._values.__getitem__, self._indices)


class Partitions:
    """A column of partitions."""

    __slots__ = ("_numbers", "_topics")

    def __init__(self, rows: Iterable[tuple[str, int]]) -> None:
        rows = list(rows)
        self._topics = Repeated(topic for topic, _ in rows)
        self._numbers = array("i", [number for _, number in rows])

    @property
    def topics(self) -> tuple[str, ...]:
        """The different topics."""
        return self._topics.values

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> TopicPartition:
        return TopicPartition(self._topics[index], self._numbers[index])

    def __iter__(self) -> Iterator[TopicPartition]:
        return map(TopicPartition, self._topics, self._numbers)
