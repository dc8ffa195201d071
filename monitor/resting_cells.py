"""The cells of groups that are not looked at: as columns, and as what is left when all is away.

Floor: pure. Both read like the tuple of cells that they stand for, and make a cell anew whenever
one is asked for: of a resting group a page shows some, and no cycle goes through all of them.
"""

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from monitor.columns import Partitions, Repeated, signed
from monitor.lag import CellState, Lag, TimeLag
from monitor.snapshot import LagCell
from protocol.types import TopicPartition

NO_AGE = -1
"""In the column of ages, which are never negative."""


class MadeCells(Sequence[LagCell]):
    """Cells that are made when they are asked for."""

    __slots__ = ()

    def cell(self, index: int) -> LagCell:
        """One of them; `index` is within the length."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> LagCell: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LagCell, ...]: ...
    def __getitem__(self, index: int | slice) -> LagCell | tuple[LagCell, ...]:
        found = range(len(self))[index]
        return self.cell(found) if isinstance(found, int) else tuple(map(self.cell, found))

    def __iter__(self) -> Iterator[LagCell]:
        return map(self.cell, range(len(self)))


class RestingCells(MadeCells):
    """Cells in columns. Few are not as most are (no commit, an end that is not known): those stay.

    Of the others the end of the log and the lag follow from one another.
    """

    __slots__ = ("_ages", "_bounds", "_commits", "_ends", "_judged", "_last_at", "_members",
                 "_metadata", "_moved_at", "_odd", "_read_rates", "_rows", "_starts",
                 "_write_rates")  # fmt: skip

    def __init__(self, cells: Sequence[LagCell]) -> None:
        self._odd = {index: cell for index, cell in enumerate(cells) if not _is_plain(cell)}
        self._rows = Partitions((cell.topic, cell.partition) for cell in cells)
        self._commits = signed(cell.committed_offset or 0 for cell in cells)
        self._starts = signed(cell.log_start_offset or 0 for cell in cells)
        self._ends = signed(cell.log_end_offset or 0 for cell in cells)
        ages = (cell.time_lag.age_ms for cell in cells)
        self._ages = signed(NO_AGE if age_ms is None else age_ms for age_ms in ages)
        self._bounds = Repeated(cell.time_lag.bound for cell in cells)
        self._read_rates = array("d", [_or_nan(cell.read_rate) for cell in cells])
        self._write_rates = array("d", [_or_nan(cell.write_rate) for cell in cells])
        self._last_at = Repeated(cell.last_lag_at_ms for cell in cells)
        self._moved_at = Repeated(cell.moved_at_ms for cell in cells)
        self._judged = Repeated(cell.judged for cell in cells)
        self._members = Repeated(cell.member for cell in cells)
        self._metadata = Repeated(cell.metadata for cell in cells)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> Partitions:
        """Where each of them is."""
        return self._rows

    def lag(self, index: int) -> int | None:
        """What one of them lagged."""
        if index in self._odd:
            return self._odd[index].lag.lag
        return self._ends[index] - self._commits[index]

    def cell(self, index: int) -> LagCell:
        """One of them, as it was."""
        if index in self._odd:
            return self._odd[index]
        topic, partition = self._rows[index]
        commit, end = self._commits[index], self._ends[index]
        age_ms = self._ages[index]
        read, written = self._read_rates[index], self._write_rates[index]
        return LagCell(
            topic=topic,
            partition=partition,
            lag=Lag(CellState.OK, end - commit),
            time_lag=TimeLag(None if age_ms == NO_AGE else age_ms, self._bounds[index]),
            committed_offset=commit,
            log_start_offset=self._starts[index],
            log_end_offset=end,
            read_rate=None if math.isnan(read) else read,
            last_lag=end - commit,
            last_lag_at_ms=self._last_at[index],
            metadata=self._metadata[index],
            judged=self._judged[index],
            moved_at_ms=self._moved_at[index],
            write_rate=None if math.isnan(written) else written,
            member=self._members[index],
        )


class MarkedCells(MadeCells):
    """Other cells, each with the same mark put on it when it is asked for."""

    __slots__ = ("_cells", "_mark")

    def __init__(self, cells: Sequence[LagCell], mark: Callable[[LagCell], LagCell]) -> None:
        self._cells = cells
        self._mark = mark

    def __len__(self) -> int:
        return len(self._cells)

    def cell(self, index: int) -> LagCell:
        """One of them, marked."""
        return self._mark(self._cells[index])


def lags_of(
    cells: Sequence[LagCell], indices: Iterable[int]
) -> Iterator[tuple[int | None, TopicPartition]]:
    """The lags of some of these cells and where they are, without making any."""
    if isinstance(cells, RestingCells):
        return ((cells.lag(index), cells.rows[index]) for index in indices)
    some = (cells[index] for index in indices)
    return ((cell.lag.lag, TopicPartition(cell.topic, cell.partition)) for cell in some)


def rows_of(cells: Sequence[LagCell]) -> Iterable[tuple[str, int]]:
    """Where each of these cells is, without making any."""
    if isinstance(cells, RestingCells):
        return cells.rows
    return ((cell.topic, cell.partition) for cell in cells)


def _is_plain(cell: LagCell) -> bool:
    lag = cell.lag
    if lag.state is not CellState.OK or lag.lag is None or cell.committed_offset is None:
        return False
    if cell.log_start_offset is None or cell.log_end_offset is None:
        return False
    known = (cell.log_end_offset - cell.committed_offset, cell.last_lag)
    return known == (lag.lag, lag.lag)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
