"""Many small rows as a few arrays, for what has to be kept and is hardly ever looked at.

Floor: pure. A row of Python's objects takes ten times what its numbers take; what is kept of a
hundred thousand readers between two looks lies in columns for that reason.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from protocol.types import TopicPartition

Value = TypeVar("Value")

BYTE_VALUES = 256
"""So many values are told apart by one byte."""


def signed(values: Iterable[int]) -> "array[int]":
    """Whole numbers of eight bytes: offsets and times."""
    # Of a list an array takes just the room that it needs.
    return array("q", list(values))


class Repeated(Generic[Value]):
    """A column of few different values: each once, and for every row which of them it has."""

    __slots__ = ("_indices", "_values")

    def __init__(self, values: Iterable[Value]) -> None:
        values = list(values)
        self._values = tuple(dict.fromkeys(values))
        numbers = {value: number for number, value in enumerate(self._values)}
        indices = list(map(numbers.__getitem__, values))
        self._indices = array("B" if len(numbers) <= BYTE_VALUES else "I", indices)

    @property
    def values(self) -> tuple[Value, ...]:
        """The different values, in the order in which they came first."""
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
        """The topics that there are, each once."""
        return self._topics.values

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> TopicPartition:
        return TopicPartition(self._topics[index], self._numbers[index])

    def __iter__(self) -> Iterator[TopicPartition]:
        return map(TopicPartition, self._topics, self._numbers)
