"""The cells of groups that were not polled in this cycle, as columns or with a mark.

This module is pure. A cell is one group in one partition. Both classes have the interface of the
tuple of cells that they replace, and make a cell object each time a cell is read. A page shows few
cells of such a group, and no cycle reads all of them (decision 0092). To read one field of every
cell, call `rows_of`, `lags_of`, `numbers_of` or another function of this module, because these make
no cell objects.
"""

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, overload

from monitor.lag.columns import Partitions, Repeated, signed
from monitor.lag.reader_status import Judged
from monitor.lag.rules import CellState, Lag, TimeLag
from monitor.state.snapshot import LagCell
from protocol.types import TopicPartition

NO_AGE = -1
"""The value in the column of ages that means "no age". Ages are never negative."""


class CellNumbers(NamedTuple):
    """The numbers of a cell."""

    row: TopicPartition
    lag: int | None
    lost: int
    age_ms: int | None
    committed_offset: int | None


class MadeCells(Sequence[LagCell]):
    """A sequence of cells that are made when they are read."""

    __slots__ = ()

    def cell(self, index: int) -> LagCell:
        """Return the cell at `index`, which is within the length."""
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
    """Cells in columns. The few cells without a commit or a known log end are kept as objects.

    For all other cells the lag is computed from the log's end and the commit.
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
        """The partition of each cell."""
        return self._rows

    def numbers(self) -> Iterator["CellNumbers"]:
        """Yield the numbers of each cell."""
        columns = zip(self._rows, self._ends, self._commits, self._ages, strict=True)
        for index, (row, end, commit, age_ms) in enumerate(columns):
            odd = self._odd.get(index)
            if odd is not None:
                yield _numbers(odd)
            else:
                yield CellNumbers(
                    row, end - commit, 0, None if age_ms == NO_AGE else age_ms, commit
                )

    def time_lags(self) -> Iterator[tuple[CellState, TimeLag]]:
        """Yield the state and the time lag of each cell."""
        for index, (age_ms, bound) in enumerate(zip(self._ages, self._bounds, strict=True)):
            odd = self._odd.get(index)
            if odd is not None:
                yield odd.state, odd.time_lag
            else:
                yield CellState.OK, TimeLag(None if age_ms == NO_AGE else age_ms, bound)

    @property
    def judged(self) -> Iterable[Judged]:
        """The status of each cell."""
        return self._judged

    @property
    def states(self) -> frozenset[CellState]:
        """The states that occur."""
        some = frozenset(cell.state for cell in self._odd.values())
        return some | {CellState.OK} if len(self._odd) < len(self) else some

    def lag(self, index: int) -> int | None:
        """Return the lag of one cell."""
        if index in self._odd:
            return self._odd[index].lag.lag
        return self._ends[index] - self._commits[index]

    def cell(self, index: int) -> LagCell:
        """Return one cell as it was."""
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
    """The cells of another sequence, each changed by the same function (the mark) when it is read.

    A mark can change all measured values of a cell, but not its partition.
    """

    __slots__ = ("_cells", "_mark")

    def __init__(self, cells: Sequence[LagCell], mark: Callable[[LagCell], LagCell]) -> None:
        self._cells = cells
        self._mark = mark

    @property
    def unmarked(self) -> Sequence[LagCell]:
        """The cells without the mark."""
        return self._cells

    def __len__(self) -> int:
        return len(self._cells)

    def cell(self, index: int) -> LagCell:
        """Return one cell with the mark."""
        return self._mark(self._cells[index])


def lags_of(
    cells: Sequence[LagCell], indices: Iterable[int]
) -> Iterator[tuple[int | None, TopicPartition]]:
    """Return the lags and partitions of some cells without making any cell."""
    if isinstance(cells, RestingCells):
        return ((cells.lag(index), cells.rows[index]) for index in indices)
    some = (cells[index] for index in indices)
    return ((cell.lag.lag, TopicPartition(cell.topic, cell.partition)) for cell in some)


def rows_of(cells: Sequence[LagCell]) -> Iterable[tuple[str, int]]:
    """Return the partition of each cell without making any cell."""
    if isinstance(cells, MarkedCells):
        return rows_of(cells.unmarked)
    if isinstance(cells, RestingCells):
        return cells.rows
    return ((cell.topic, cell.partition) for cell in cells)


def topics_of(cells: Sequence[LagCell]) -> Collection[str]:
    """Return the topics of the cells, each once, without making any cell."""
    if isinstance(cells, MarkedCells):
        return topics_of(cells.unmarked)
    if isinstance(cells, RestingCells):
        return cells.rows.topics
    return dict.fromkeys(cell.topic for cell in cells)


def numbers_of(cells: Sequence[LagCell]) -> Iterator[CellNumbers]:
    """Return the numbers of each cell, without cell objects for those in columns."""
    return cells.numbers() if isinstance(cells, RestingCells) else map(_numbers, cells)


def states_of(cells: Sequence[LagCell]) -> Collection[CellState]:
    """Return the states of the cells, each once, without cell objects for those in columns."""
    return cells.states if isinstance(cells, RestingCells) else {cell.state for cell in cells}


def time_lags_of(cells: Sequence[LagCell]) -> Iterator[tuple[CellState, TimeLag]]:
    """Return state and time lag of each cell, without cell objects for those in columns."""
    if isinstance(cells, RestingCells):
        return cells.time_lags()
    return ((cell.state, cell.time_lag) for cell in cells)


def judged_of(cells: Sequence[LagCell]) -> Iterator[tuple[tuple[str, int], Judged]]:
    """Return partition and status of each cell, without cell objects for those in columns."""
    if isinstance(cells, RestingCells):
        return zip(cells.rows, cells.judged, strict=True)
    return (((cell.topic, cell.partition), cell.judged) for cell in cells)


def _numbers(cell: LagCell) -> CellNumbers:
    row = TopicPartition(cell.topic, cell.partition)
    lag = cell.lag
    return CellNumbers(row, lag.lag, lag.lost, cell.time_lag.age_ms, cell.committed_offset)


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
