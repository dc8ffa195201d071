"""Tables and views, in the SQL that MySQL 8 and MariaDB 10 share.

`windows` is what people read; each metric has a view of its name with the key's own column names.
"""

from collections.abc import Sequence

from sinks.rows import ALL_WINDOW_S, MetricDefinition

TEXT_KEY = "VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

VERSION = 2


def windows_table(name: str) -> str:
    """The statement that makes `windows`, or its successor under another name."""
    return f"""CREATE TABLE IF NOT EXISTS {name} (
  metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, start_at DATETIME NOT NULL,
  k_hash BINARY(16) NOT NULL, k1 {TEXT_KEY}, k2 {TEXT_KEY}, k3 {TEXT_KEY},
  `count` BIGINT NOT NULL, `sum` DECIMAL(38,12), `min` DECIMAL(28,12), `max` DECIMAL(28,12),
  value DECIMAL(38,12), quantiles JSON, hll MEDIUMBLOB, kll MEDIUMBLOB, seq BIGINT NOT NULL,
  PRIMARY KEY (metric, size_s, start_at, k_hash))"""


VERSION_TABLE = """CREATE TABLE IF NOT EXISTS schema_version (
  id TINYINT PRIMARY KEY DEFAULT 1, version INT NOT NULL)"""

# What a window's size is called in the views, which join this table: for a size the server then
# finds windows by their primary key. An expression it would evaluate for every row of the metric.
SIZES_TABLE = """CREATE TABLE IF NOT EXISTS window_sizes (
  size VARCHAR(24) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,
  size_s INT NOT NULL, UNIQUE KEY (size_s))"""

# Tables that are the same in every version.
LASTING_TABLES = (
    SIZES_TABLE,
    """CREATE TABLE IF NOT EXISTS sink_guard (
  id TINYINT PRIMARY KEY DEFAULT 1, query_id CHAR(36) NOT NULL, epoch BIGINT NOT NULL,
  batch_id BIGINT NOT NULL, seq BIGINT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS ledger (
  topic VARCHAR(249) NOT NULL, part INT NOT NULL, end_offset BIGINT NOT NULL,
  PRIMARY KEY (topic, part))""",
    """CREATE TABLE IF NOT EXISTS metrics (
  name VARCHAR(48) PRIMARY KEY, definition_hash BINARY(16) NOT NULL, since DATETIME NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS metric_topics (
  metric VARCHAR(48) NOT NULL, topic VARCHAR(249) NOT NULL, PRIMARY KEY (metric, topic))""",
    # No row of a partition: counted from its first line on (`ranges.py`).
    """CREATE TABLE IF NOT EXISTS metric_ranges (
  metric VARCHAR(48) NOT NULL, topic VARCHAR(249) NOT NULL, part INT NOT NULL,
  start_offset BIGINT NOT NULL, end_offset BIGINT,
  PRIMARY KEY (metric, topic, part, start_offset))""",
    """CREATE TABLE IF NOT EXISTS recounts (
  metric VARCHAR(48) NOT NULL, topic VARCHAR(249) NOT NULL, part INT NOT NULL,
  from_offset BIGINT NOT NULL, tries INT NOT NULL DEFAULT 0, problem VARCHAR(500),
  PRIMARY KEY (metric, topic, part))""",
    # What the archive of raw lines holds, for whoever cannot read it (`archive_rows.py`).
    """CREATE TABLE IF NOT EXISTS archived (
  topic VARCHAR(249) NOT NULL, part INT NOT NULL, start_offset BIGINT NOT NULL,
  end_offset BIGINT NOT NULL, until_ms BIGINT NOT NULL,
  PRIMARY KEY (topic, part, start_offset))""",
    """CREATE TABLE IF NOT EXISTS unparsed (
  topic VARCHAR(249) NOT NULL, file_hash BINARY(16) NOT NULL, reason VARCHAR(64) NOT NULL,
  file VARCHAR(512) NOT NULL, `count` BIGINT NOT NULL, PRIMARY KEY (topic, file_hash, reason))""",
    """CREATE TABLE IF NOT EXISTS unparsed_lines (
  topic VARCHAR(249) NOT NULL, part INT NOT NULL, `offset` BIGINT NOT NULL, day DATE NOT NULL,
  file_hash BINARY(16) NOT NULL, reason VARCHAR(64) NOT NULL, line VARBINARY(4096) NOT NULL,
  PRIMARY KEY (topic, part, `offset`), KEY (day, file_hash))""",
    "INSERT INTO sink_guard (id, query_id, epoch, batch_id, seq) VALUES (1, '', 0, -1, 0) "
    "ON DUPLICATE KEY UPDATE id = 1",
)

# `seq` of window_keys is that of the last merge which touched the window: cells that are newer than
# what Redis shows are looked for in these windows alone.
CELL_TABLES = (
    windows_table("windows"),
    """CREATE TABLE IF NOT EXISTS window_keys (
  metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, start_at DATETIME NOT NULL,
  n_keys INT NOT NULL, seq BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (metric, size_s, start_at), KEY (seq))""",
)

TOUCHED = """CREATE TEMPORARY TABLE IF NOT EXISTS touched (
  metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, start_at DATETIME NOT NULL,
  k_hash BINARY(16) NOT NULL, PRIMARY KEY (metric, size_s, start_at, k_hash))"""

_VALUE_COLUMNS = ("count", "sum", "min", "max", "value", "quantiles")
_TAKEN = {"size", "start_at", *_VALUE_COLUMNS}


def size_text(size_s: int) -> str:
    """A window's size as users write it: `10s`, `1m`, `1h`, `1d`, `all`."""
    if size_s == ALL_WINDOW_S:
        return "all"
    for suffix, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if size_s % length == 0:
            return f"{size_s // length}{suffix}"
    return f"{size_s}s"


def key_column_names(definition: MetricDefinition) -> tuple[str, ...]:
    """The view's key columns: the key's own names, `key_…` where one is taken."""
    taken = set(_TAKEN) | {name.lower() for name in definition.key_columns}
    names: list[str] = []
    for name in definition.key_columns:
        shown = name
        while shown.lower() in (_TAKEN if shown == name else taken):
            shown = f"key_{shown}"
        taken.add(shown.lower())
        names.append(shown)
    return tuple(names)


def view(definition: MetricDefinition) -> str:
    """The statement that makes a metric's view."""
    keys = [
        f"k{index} AS `{name.replace('`', '``')}`"
        for index, name in enumerate(key_column_names(definition), 1)
    ]
    columns = ", ".join(
        [
            "size",
            "start_at",
            *keys,
            *(f"`{name}`" for name in _VALUE_COLUMNS),
        ]
    )
    return (
        f"CREATE OR REPLACE SQL SECURITY INVOKER VIEW `{definition.name}` AS SELECT {columns} "
        f"FROM window_sizes JOIN windows USING (size_s) WHERE metric = '{definition.name}'"
    )


def definitions_differing(
    definitions: Sequence[MetricDefinition], stored: dict[str, bytes]
) -> list[str]:
    """Names whose stored definition is not the given one."""
    return [
        definition.name
        for definition in definitions
        if stored.get(definition.name, definition.definition_hash) != definition.definition_hash
    ]
