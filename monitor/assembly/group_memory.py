"""The commits and lag samples of a group that are kept between polls.

This module is pure. The samples decide the status of the group's readers. A group that is not
polled in a cycle rests: its memory is kept in columns, which take less space.
"""

import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import TypeVar

from monitor.lag.columns import Partitions, Repeated, signed
from monitor.lag.offset_history import History
from monitor.lag.offset_series import Series
from monitor.lag.reader_status import Look, Window
from monitor.state.reading import GroupReading
from protocol.types import TopicPartition

RATE_SPAN_MS = 60_000

Item = TypeVar("Item")


def _commits() -> History[TopicPartition]:
    # Commits are used for rates only, so a short window is enough. There is a series for every
    # reader and partition, so a long window would cost much memory.
    return History(window_ms=RATE_SPAN_MS)


@dataclass(slots=True)
class GroupMemory:
    """What the monitor remembers of a group: its commits of the last minute or of its last polls,
    and the samples of its readers.
    """

    commits: History[TopicPartition] = field(default_factory=_commits)
    windows: dict[TopicPartition, Window] = field(default_factory=dict)

    def remember(self, group: GroupReading, at_ms: int) -> None:
        """Add the group's commits, and drop the partitions in which it no longer has a commit."""
        for row, commit in group.commits.items():
            self.commits.add(row, at_ms, commit.offset)
        self.commits.keep_only(group.commits)
        for row in [row for row in self.windows if row not in group.commits]:
            del self.windows[row]

    def window(self, row: TopicPartition) -> Window:
        """Return the recent samples of the reader of one partition; empty for a new reader."""
        found = self.windows.get(row)
        if found is None:
            found = self.windows[row] = Window()
        return found


class GroupMemories:
    """The memories of all groups. The memory of a group that rests is in columns until it is
    read.
    """

    def __init__(self) -> None:
        self._awake: dict[str, GroupMemory] = {}
        self._resting: dict[str, _Resting] = {}

    def of(self, group_id: str) -> GroupMemory:
        """Return the memory of one group, unpacked, so that the caller can add to it."""
        found = self._awake.get(group_id)
        if found is None:
            resting = self._resting.pop(group_id, None)
            found = GroupMemory() if resting is None else resting.awake()
            self._awake[group_id] = found
        return found

    def rest(self, group_id: str) -> None:
        """Pack the memory of a group that is not read before its next poll."""
        self._resting[group_id] = _Resting(self._awake.pop(group_id))

    def __len__(self) -> int:
        return len(self._awake) + len(self._resting)

    def keep(self, group_ids: Set[str], resting: Set[str]) -> None:
        """Drop every group that is not among these; `resting` are not polled."""
        for gone in [one for one in self._awake if one not in group_ids]:
            del self._awake[gone]
        for gone in [one for one in self._resting if one not in group_ids]:
            del self._resting[gone]
        for group_id in [one for one in self._awake if one in resting]:
            self.rest(group_id)


class _Resting:
    """The stored samples of a group, in columns.

    The samples of one partition are consecutive. One column has the number of samples of each
    partition.
    """

    __slots__ = ("_commits", "_windows")

    def __init__(self, memory: GroupMemory) -> None:
        self._commits = _RestingCommits(dict(memory.commits.items()))
        self._windows = _RestingWindows(memory.windows)

    def awake(self) -> GroupMemory:
        """Return the memory as objects, as it was before it was packed."""
        commits = _commits()
        commits.restore(self._commits.items())
        return GroupMemory(commits, dict(self._windows.items()))


class _RestingCommits:
    __slots__ = ("_counts", "_offsets", "_rows", "_times")

    def __init__(self, series: Mapping[TopicPartition, Series]) -> None:
        self._rows = Partitions(series)
        self._counts = Repeated(map(len, series.values()))
        chain = itertools.chain.from_iterable
        self._times = signed(chain(one.times for one in series.values()))
        self._offsets = signed(chain(one.offsets for one in series.values()))

    def items(self) -> Iterator[tuple[TopicPartition, Series]]:
        end = 0
        for row, count in zip(self._rows, self._counts, strict=True):
            begin, end = end, end + count
            yield row, Series.of(self._times[begin:end], self._offsets[begin:end])


class _RestingWindows:
    __slots__ = ("_commits", "_counts", "_held", "_lags", "_moved_at", "_proposals", "_proposed",
                 "_rows", "_times")  # fmt: skip

    def __init__(self, windows: Mapping[TopicPartition, Window]) -> None:
        found = list(windows.values())
        looks = [look for window in found for look in window.looks]
        self._rows = Partitions(windows)
        self._counts = Repeated(len(window.looks) for window in found)
        self._times = Repeated(look.at_ms for look in looks)
        self._commits = signed(look.committed_offset for look in looks)
        self._lags = signed(look.lag for look in looks)
        self._moved_at = Repeated(window.moved_at_ms for window in found)
        self._held = Repeated(window.held for window in found)
        self._proposed = Repeated(window.proposed for window in found)
        self._proposals = array("B", [window.proposals for window in found])

    def items(self) -> Iterator[tuple[TopicPartition, Window]]:
        looks = map(Look, self._times, self._commits, self._lags)
        windows = map(
            Window,
            _cut(looks, self._counts),
            self._moved_at,
            self._held,
            self._proposed,
            self._proposals,
        )
        return zip(self._rows, windows, strict=True)


def _cut(items: Iterator[Item], counts: Iterable[int]) -> Iterator[list[Item]]:
    """Split the items into lists of these lengths."""
    return (list(itertools.islice(items, count)) for count in counts)
