"""The truth in MySQL as the live view reads it."""

from collections.abc import Sequence
from typing import Any

from sinks.cellar import Ranking
from sinks.keys import key_hash, other_key
from sinks.merge import Cell, CellId, WindowId
from sinks.mysql_rows import CELL_COLUMNS, cell_of, key_of_columns, to_datetime, to_seconds
from sinks.mysql_sink import MySqlSink
from sinks.rows import MetricDefinition


class MySqlCellar:
    """Reads between merges, on the writer's own connection: so never older than what is shown."""

    def __init__(self, sink: MySqlSink, definitions: Sequence[MetricDefinition]) -> None:
        self._sink = sink
        self._definitions = {definition.name: definition for definition in definitions}

    def check_ours(self) -> None:
        """Raise Fenced or LedgerMismatch unless the writer row is still this driver's."""
        self._sink.check_ours()

    def cells_after(self, seq: int, cells_max: int) -> list[tuple[CellId, Cell]] | None:
        """Cells that merges after `seq` wrote, window by window; None if more than `cells_max`."""

        def read(cursor: Any) -> list[tuple[CellId, Cell]] | None:
            cursor.execute(
                f"SELECT {CELL_COLUMNS} FROM window_keys STRAIGHT_JOIN windows "
                "USING (metric, size_s, start_at) "
                "WHERE window_keys.seq > %s AND windows.seq > %s LIMIT %s",
                (seq, seq, cells_max + 1),
            )
            rows = cursor.fetchall()
            if len(rows) > cells_max:
                return None
            ours = [cell_of(row, self._definitions) for row in rows if row[0] in self._definitions]
            return sorted(ours, key=lambda pair: pair[0])

        return self._sink.read(read)

    def windows_from(self, metric: str, size_s: int, oldest_s: int) -> list[tuple[int, int]]:
        """Start and number of keys of the windows from `oldest_s` on, newest first."""

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
        """As `windows_from`, but at most so many, and of those that start before `before_s`."""

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
        """The window's next cells behind the hash `after`, in the order of hashes."""

        def read(cursor: Any) -> list[tuple[CellId, Cell]]:
            # Reading a column costs more than comparing its value: the window's own are left out.
            place = (window.metric, window.size_s, to_datetime(window.start_s))
            columns = CELL_COLUMNS.removeprefix("metric, size_s, start_at, ")
            cursor.execute(
                f"SELECT {columns} FROM windows WHERE metric = %s AND size_s = %s "
                "AND start_at = %s AND k_hash > %s ORDER BY k_hash LIMIT %s",
                (*place, after, cells_max),
            )
            return [cell_of((*place, *row), self._definitions) for row in cursor.fetchall()]

        return self._sink.read(read)

    def cells_between(
        self, metric: str, size_s: int, first_s: int, last_s: int
    ) -> list[tuple[CellId, Cell]]:
        """Cells of the windows that start from `first_s` to `last_s`, both included."""

        def read(cursor: Any) -> list[tuple[CellId, Cell]]:
            cursor.execute(
                f"SELECT {CELL_COLUMNS} FROM windows WHERE metric = %s AND size_s = %s "
                "AND start_at BETWEEN %s AND %s ORDER BY start_at, k_hash",
                (metric, size_s, to_datetime(first_s), to_datetime(last_s)),
            )
            return [cell_of(row, self._definitions) for row in cursor.fetchall()]

        return self._sink.read(read)

    def ranking(self, window: WindowId, top: int) -> Ranking:
        """The window's highest values, the overflow key apart; among equals by name."""
        columns = len(self._definitions[window.metric].key_columns)

        def read(cursor: Any) -> Ranking:
            cursor.execute(
                "SELECT k_hash, k1, k2, k3, value FROM windows WHERE metric = %s AND size_s = %s "
                "AND start_at = %s AND k_hash <> %s AND value IS NOT NULL "
                "ORDER BY value DESC, k1, k2, k3 LIMIT %s",
                (
                    window.metric,
                    window.size_s,
                    to_datetime(window.start_s),
                    key_hash(other_key(columns)),
                    top,
                ),
            )
            return [
                (key_of_columns((k1, k2, k3), columns, bytes(k_hash)), value)
                for k_hash, k1, k2, k3, value in cursor.fetchall()
            ]

        return self._sink.read(read)
