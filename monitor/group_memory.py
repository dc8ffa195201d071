"""What is remembered of a group's readers from look to look: its commits, and how each has done.

Floor: pure, below `readers`. A group that rests is remembered in columns.
"""

import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import TypeVar

from monitor.columns import Partitions, Repeated, signed
from monitor.history import History
from monitor.lag import EndSample
from monitor.reader_status import Look, Window
from monitor.reading import GroupReading
from protocol.types import TopicPartition

RATE_SPAN_MS = 60_000
NOT_MOVED = -1

Item = TypeVar("Item")


def _commits() -> History[TopicPartition]:
    # Rates are all that is made of it, and there is one for every reader and partition.
    return History(window_ms=RATE_SPAN_MS)


@dataclass(slots=True)
class GroupMemory:
    """A group's commits of the last minute or of its last looks, and the windows of its readers."""

    commits: History[TopicPartition] = field(default_factory=_commits)
    windows: dict[TopicPartition, Window] = field(default_factory=dict)

    def remember(self, group: GroupReading, at_ms: int) -> None:
        """Add the group's commits, and forget those that it has no more."""
        for row, commit in group.commits.items():
            self.commits.add(row, at_ms, commit.offset)
        self.commits.keep_only(group.commits)
        for row in [row for row in self.windows if row not in group.commits]:
            del self.windows[row]

    def window(self, row: TopicPartition) -> Window:
        """The window of one reader."""
        found = self.windows.get(row)
        if found is None:
            found = self.windows[row] = Window()
        return found


class GroupMemories:
    """All of them: those of groups that rest lie in columns until somebody asks."""

    def __init__(self) -> None:
        self._awake: dict[str, GroupMemory] = {}
        self._resting: dict[str, _Resting] = {}

    def of(self, group_id: str) -> GroupMemory:
        """The memory of one group, to be added to."""
        found = self._awake.get(group_id)
        if found is None:
            resting = self._resting.pop(group_id, None)
            found = GroupMemory() if resting is None else resting.awake()
            self._awake[group_id] = found
        return found

    def __len__(self) -> int:
        return len(self._awake) + len(self._resting)

    def keep(self, group_ids: Set[str], resting: Set[str]) -> None:
        """Forget every group that is not among these; of them, `resting` are not looked at."""
        for gone in [one for one in self._awake if one not in group_ids]:
            del self._awake[gone]
        for gone in [one for one in self._resting if one not in group_ids]:
            del self._resting[gone]
        for group_id in [one for one in self._awake if one in resting]:
            self._resting[group_id] = _Resting(self._awake.pop(group_id))


class _Resting:
    """A group's memory in columns: samples and looks of one partition lie behind one another."""

    __slots__ = ("_commits", "_windows")

    def __init__(self, memory: GroupMemory) -> None:
        self._commits = _RestingCommits(dict(memory.commits.items()))
        self._windows = _RestingWindows(memory.windows)

    def awake(self) -> GroupMemory:
        """The memory as it was."""
        commits = _commits()
        commits.restore(self._commits.items())
        return GroupMemory(commits, dict(self._windows.items()))


class _RestingCommits:
    __slots__ = ("_counts", "_offsets", "_rows", "_times")

    def __init__(self, series: Mapping[TopicPartition, list[EndSample]]) -> None:
        self._rows = Partitions(series)
        self._counts = Repeated(len(samples) for samples in series.values())
        samples = list(itertools.chain.from_iterable(series.values()))
        self._times = Repeated(one.at_ms for one in samples)
        self._offsets = signed(one.end_offset for one in samples)

    def items(self) -> Iterator[tuple[TopicPartition, list[EndSample]]]:
        samples = map(EndSample, self._times, self._offsets)
        return zip(self._rows, _cut(samples, self._counts), strict=True)


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
        self._moved_at = signed(
            NOT_MOVED if window.moved_at_ms is None else window.moved_at_ms for window in found
        )
        self._held = Repeated(window.held for window in found)
        self._proposed = Repeated(window.proposed for window in found)
        self._proposals = array("B", [window.proposals for window in found])

    def items(self) -> Iterator[tuple[TopicPartition, Window]]:
        looks = map(Look, self._times, self._commits, self._lags)
        moved_at = (None if at_ms == NOT_MOVED else at_ms for at_ms in self._moved_at)
        windows = map(
            Window, _cut(looks, self._counts), moved_at, self._held, self._proposed, self._proposals
        )
        return zip(self._rows, windows, strict=True)


def _cut(items: Iterator[Item], counts: Iterable[int]) -> Iterator[list[Item]]:
    """The items as lists of so many each."""
    return (list(itertools.islice(items, count)) for count in counts)
