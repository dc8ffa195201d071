"""The cells of groups that are not looked at: as columns, and as what is left when all is away.

Floor: pure. Both read like the tuple of cells that they stand for, and make a cell anew whenever
one is asked for: of a resting group a page shows some, and no cycle goes through all of them.
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
"""In the column of ages, which are never negative."""


class CellNumbers(NamedTuple):
    """What is counted of a cell."""

    row: TopicPartition
    lag: int | None
    lost: int
    age_ms: int | None
    committed_offset: int | None


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

    def numbers(self) -> Iterator["CellNumbers"]:
        """The numbers of each of them."""
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
        """The state of each of them, and how old what it has not read is."""
        for index, (age_ms, bound) in enumerate(zip(self._ages, self._bounds, strict=True)):
            odd = self._odd.get(index)
            if odd is not None:
                yield odd.state, odd.time_lag
            else:
                yield CellState.OK, TimeLag(None if age_ms == NO_AGE else age_ms, bound)

    @property
    def judged(self) -> Iterable[Judged]:
        """How each of them was judged."""
        return self._judged

    @property
    def states(self) -> frozenset[CellState]:
        """The states that there are."""
        some = frozenset(cell.state for cell in self._odd.values())
        return some | {CellState.OK} if len(self._odd) < len(self) else some

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
    """Other cells, each with the same mark put on it when it is asked for.

    A mark changes what was measured, and never where a reader is.
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
    if isinstance(cells, MarkedCells):
        return rows_of(cells.unmarked)
    if isinstance(cells, RestingCells):
        return cells.rows
    return ((cell.topic, cell.partition) for cell in cells)


def topics_of(cells: Sequence[LagCell]) -> Collection[str]:
    """The topics of these cells, each once and without making any."""
    if isinstance(cells, MarkedCells):
        return topics_of(cells.unmarked)
    if isinstance(cells, RestingCells):
        return cells.rows.topics
    return dict.fromkeys(cell.topic for cell in cells)


def numbers_of(cells: Sequence[LagCell]) -> Iterator[CellNumbers]:
    """The numbers of each of these cells; of those in columns without making any."""
    return cells.numbers() if isinstance(cells, RestingCells) else map(_numbers, cells)


def states_of(cells: Sequence[LagCell]) -> Collection[CellState]:
    """The states of these cells, each once; of those in columns without making any."""
    return cells.states if isinstance(cells, RestingCells) else {cell.state for cell in cells}


def time_lags_of(cells: Sequence[LagCell]) -> Iterator[tuple[CellState, TimeLag]]:
    """State and time lag of each of these cells; of those in columns without making any."""
    if isinstance(cells, RestingCells):
        return cells.time_lags()
    return ((cell.state, cell.time_lag) for cell in cells)


def judged_of(cells: Sequence[LagCell]) -> Iterator[tuple[tuple[str, int], Judged]]:
    """Where each of these cells is and how it was judged; makes none of those in columns."""
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
