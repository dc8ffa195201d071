"""Creates the tables of the present version, and refuses the tables of any other version."""

from typing import Any

from sinks.errors import SchemaTooNew, SchemaTooOld
from sinks.mysql import schema
from sinks.mysql.views import WINDOWS_VIEW

# Columns that tables of unreleased versions lack.
_COLUMNS_ADDED = {("window_keys", "window_number"), ("metrics", "measure")}


def prepare(cursor: Any) -> None:
    """Create the tables that are missing, and the view `windows`.

    Tables are missing in an empty database, after a driver died between two statements, or because
    a user dropped them. Raises SchemaTooNew or SchemaTooOld, and then changes nothing.
    """
    cursor.execute(
        "SELECT table_name, table_type FROM information_schema.tables "
        "WHERE table_schema = DATABASE()"
    )
    kinds = {str(name): str(kind) for name, kind in cursor.fetchall()}
    version = _version(cursor) if "schema_version" in kinds else None
    if version is not None and version > schema.VERSION:
        raise SchemaTooNew(version, schema.VERSION)
    if version is not None and version < schema.VERSION:
        raise SchemaTooOld("mysql", f"version {version}", schema.VERSION)
    if kinds.get("windows") == "BASE TABLE" or _has_older_columns(cursor):
        # A copy of an older database was restored over these tables, or the row with the version
        # is missing.
        raise SchemaTooOld("mysql", "an older version", schema.VERSION)
    if "window_keys" not in kinds:
        # Delete these cells, because their windows are unknown and new windows will get the same
        # numbers.
        cursor.execute("DROP TABLE IF EXISTS window_cells")
    for statement in schema.TABLES:
        cursor.execute(statement)
    if "windows" not in kinds:
        cursor.execute(WINDOWS_VIEW)


def _version(cursor: Any) -> int | None:
    cursor.execute("SELECT version FROM schema_version WHERE id = 1")
    row = cursor.fetchone()
    return None if row is None else int(row[0])


def _has_older_columns(cursor: Any) -> bool:
    """Tell whether a table lacks a column, or stores sums with fewer digits."""
    cursor.execute(
        "SELECT table_name, column_name, numeric_precision FROM information_schema.columns "
        "WHERE table_schema = DATABASE()"
    )
    digits = {(str(table), str(column)): digits for table, column, digits in cursor.fetchall()}
    tables = {table for table, _ in digits}
    if any(table in tables for table, _ in _COLUMNS_ADDED.difference(digits)):
        return True
    return int(digits.get(("window_cells", "sum"), schema.SUM_DIGITS)) < schema.SUM_DIGITS
