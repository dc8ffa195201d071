"""Reads cells from MySQL for the live view in Redis."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sinks.cell_reader import Ranking
from sinks.cells.merge import Cell, CellId, WindowId
from sinks.keys import key_id, other_key
from sinks.mysql.rows import CELL_COLUMNS, cell_of, key_of_row, to_datetime, to_seconds
from sinks.mysql.sink import MySqlSink
from sinks.mysql.views import K1_SQL, SEQ_DISTANCE_MAX, seq_is_after, value_sql
from sinks.rows import MetricDefinition

_PLACE = "metric, size_s, start_at"
_NUMBER = (
    "(SELECT window_number FROM window_keys WHERE metric = %s AND size_s = %s AND start_at = %s)"
)


class MySqlCellReader:
    """Reads between merges, on the writer's own connection.

    So it never reads older data than what Redis shows.
    """

    def __init__(self, sink: MySqlSink, definitions: Sequence[MetricDefinition]) -> None:
        self._sink = sink
        self._definitions = {definition.name: definition for definition in definitions}

    def check_ours(self) -> None:
        """Raise FencedWriter or LedgerMismatch unless the writer row still names this driver."""
        self._sink.check_ours()

    def cells_after(self, seq: int, cells_max: int) -> list[tuple[CellId, Cell]] | None:
        """Return the cells written by merges after `seq`, sorted by window.

        Return None if there are more than `cells_max`, or if `seq` is so old that they cannot be
        found.
        """

        def read(cursor: Any) -> list[tuple[CellId, Cell]] | None:
            cursor.execute("SELECT MAX(seq) FROM window_keys")
            (newest,) = cursor.fetchone()
            if newest is not None and newest - seq > SEQ_DISTANCE_MAX:
                return None
            is_newer, from_seq = seq_is_after(seq)
            cursor.execute(
                f"SELECT {_PLACE}, {CELL_COLUMNS} FROM window_keys STRAIGHT_JOIN window_cells "
                f"USING (window_number) WHERE window_keys.seq > %s AND {is_newer} LIMIT %s",
                (seq, from_seq, cells_max + 1),
            )
            rows = cursor.fetchall()
            if len(rows) > cells_max:
                return None
            ours = [self._cell(row) for row in rows if row[0] in self._definitions]
            return sorted(ours, key=lambda pair: pair[0])

        return self._sink.read(read)

    def _cell(self, row: Sequence[Any]) -> tuple[CellId, Cell]:
        metric, size_s, start_at, *columns = row
        window = WindowId(str(metric), int(size_s), to_seconds(start_at))
        return cell_of(window, columns, self._definitions)

    def windows_from(self, metric: str, size_s: int, oldest_s: int) -> list[tuple[int, int]]:
        """Return start and key count of the windows that start at `oldest_s` or later."""

        def read(cursor: Any) -> list[tuple[int, int]]:
            cursor.execute(
                "SELECT start_at, n_keys FROM window_keys WHERE metric = %s AND size_s = %s "
                "AND start_at >= %s ORDER BY start_at DESC",
                (metric, size_s, to_datetime(oldest_s)),
            )
            return [(to_seconds(start_at), int(n_keys)) for start_at, n_keys in cursor.fetchall()]

        return self._sink.read(read)

    def windows_before(
        self, metric: str, size_s: int, oldest_s: int, before_s: int | None, windows_max: int
    ) -> list[tuple[int, int]]:
        """Return start and key count of the newest `windows_max` windows from `oldest_s` on.

        With `before_s`, only windows that start before that time.
        """

        def read(cursor: Any) -> list[tuple[int, int]]:
            bound, bounds = "", [to_datetime(oldest_s)]
            if before_s is not None:
                bound = "AND start_at < %s "
                bounds.append(to_datetime(before_s))
            cursor.execute(
                "SELECT start_at, n_keys FROM window_keys WHERE metric = %s AND size_s = %s "
                f"AND start_at >= %s {bound}ORDER BY start_at DESC LIMIT %s",
                (metric, size_s, *bounds, windows_max),
            )
            return [(to_seconds(start_at), int(n_keys)) for start_at, n_keys in cursor.fetchall()]

        return self._sink.read(read)

    def cells_page(
        self, window: WindowId, after: bytes, cells_max: int
    ) -> list[tuple[CellId, Cell]]:
        """Return the window's next cells after the identity `after`, ordered by identity."""

        def read(cursor: Any) -> list[tuple[CellId, Cell]]:
            cursor.execute(
                f"SELECT {CELL_COLUMNS} FROM window_cells WHERE window_number = "
                f"{_NUMBER} AND k_id > %s ORDER BY k_id LIMIT %s",
                (*_values(window), after, cells_max),
            )
            return [cell_of(window, row, self._definitions) for row in cursor.fetchall()]

        return self._sink.read(read)

    def cells_between(
        self, metric: str, size_s: int, first_s: int, last_s: int
    ) -> list[tuple[CellId, Cell]]:
        """Return the cells of all windows that start from `first_s` to `last_s`, both included."""

        def read(cursor: Any) -> list[tuple[CellId, Cell]]:
            cursor.execute(
                f"SELECT {_PLACE}, {CELL_COLUMNS} FROM window_keys STRAIGHT_JOIN window_cells "
                "USING (window_number) WHERE metric = %s AND size_s = %s "
                "AND start_at BETWEEN %s AND %s ORDER BY start_at, k_id",
                (metric, size_s, to_datetime(first_s), to_datetime(last_s)),
            )
            return [self._cell(row) for row in cursor.fetchall()]

        return self._sink.read(read)

    def ranking(self, window: WindowId, top: int) -> Ranking:
        """Return the `top` keys with the highest values, without the overflow key."""
        definition = self._definitions[window.metric]
        columns = len(definition.key_columns)
        value = value_sql(definition.measure)

        def read(cursor: Any) -> Ranking:
            cursor.execute(
                f"SELECT k_id, k1, k2, k3, {value} AS shown FROM window_cells WHERE window_number "
                f"= {_NUMBER} AND k_id <> %s AND {value} IS NOT NULL "
                f"ORDER BY shown DESC, {K1_SQL}, k2, k3 LIMIT %s",
                (*_values(window), key_id(other_key(columns)), top),
            )
            return [
                (key_of_row((bytes(k_id), k1, k2, k3), columns)[1], value)
                for k_id, k1, k2, k3, value in cursor.fetchall()
            ]

        return self._sink.read(read)


def _values(window: WindowId) -> tuple[str, int, datetime]:
    """Return the arguments of the SQL in _NUMBER."""
    return window.metric, window.size_s, to_datetime(window.start_s)
