"""The tables, in the SQL that MySQL 8 and MariaDB 10 have in common.

A cell is a row of `window_cells`. Rows are kept small, because a million lines make hundreds of
thousands of them. The window is a number from `window_keys`, the key is its identity
(`keys.key_id`), and a value that follows from other columns is not stored (decision 0087). The
views of `views` combine these parts again.
"""

from sinks.keys import KEY_ID_TEXT_OCTETS_MAX

TEXT_KEY = "VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

# The default collation of an existing database may ignore case, and lack letters. But topics that
# differ only in case are different, and file names can use any script.
COLLATION = "utf8mb4_bin"
_TEXT = f"CHARACTER SET utf8mb4 COLLATE {COLLATION}"
TOPIC = f"topic VARCHAR(249) {_TEXT} NOT NULL"
FILE = f"file VARCHAR(512) {_TEXT} NOT NULL"
PROBLEM = f"problem VARCHAR(500) {_TEXT}"

VERSION = 4

# The names of window sizes. The views join this table, so that the server finds the windows of a
# size by their primary key. With an expression instead, the server would evaluate the expression
# for every row of the metric.
_SIZES_TABLE = """CREATE TABLE IF NOT EXISTS window_sizes (
  size VARCHAR(24) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY,
  size_s INT NOT NULL, UNIQUE KEY (size_s))"""

# `seq` of window_keys is the `seq` of the last merge that changed the window. So a comparison finds
# the windows that have newer cells than Redis shows. A window's number is never used again, so
# deleting the cells of a deleted number cannot delete those of another window.
_WINDOW_KEYS_TABLE = """CREATE TABLE IF NOT EXISTS window_keys (
  metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, start_at DATETIME NOT NULL,
  n_keys INT NOT NULL, seq BIGINT NOT NULL DEFAULT 0,
  window_number INT UNSIGNED NOT NULL AUTO_INCREMENT,
  PRIMARY KEY (metric, size_s, start_at), KEY (seq), UNIQUE KEY (window_number))"""

# A value has 26 digits before the point and 12 after it; a sum has 35 before it, so 10^9 of the
# largest values can be added.
SUM_DIGITS = 47

_CELLS_TABLE = f"""CREATE TABLE IF NOT EXISTS window_cells (
  window_number INT UNSIGNED NOT NULL, k_id VARBINARY({KEY_ID_TEXT_OCTETS_MAX + 1}) NOT NULL,
  k1 {TEXT_KEY}, k2 {TEXT_KEY}, k3 {TEXT_KEY},
  `count` BIGINT NOT NULL, `sum` DECIMAL({SUM_DIGITS},12), `min` DECIMAL(38,12),
  `max` DECIMAL(38,12), value DECIMAL(38,12), quantiles JSON,
  hll MEDIUMBLOB, kll MEDIUMBLOB, seq INT UNSIGNED NOT NULL,
  PRIMARY KEY (window_number, k_id))"""

# The statements that create all tables. The version is stored first, so that a later version can
# tell to which version an incomplete set of tables belongs.
TABLES = (
    """CREATE TABLE IF NOT EXISTS schema_version (
  id TINYINT PRIMARY KEY DEFAULT 1, version INT NOT NULL)""",
    f"INSERT INTO schema_version (id, version) VALUES (1, {VERSION}) "
    "ON DUPLICATE KEY UPDATE id = 1",
    _WINDOW_KEYS_TABLE,
    _CELLS_TABLE,
    _SIZES_TABLE,
    """CREATE TABLE IF NOT EXISTS sink_guard (
  id TINYINT PRIMARY KEY DEFAULT 1, query_id CHAR(36) NOT NULL, epoch BIGINT NOT NULL,
  batch_id BIGINT NOT NULL, seq BIGINT NOT NULL)""",
    f"""CREATE TABLE IF NOT EXISTS ledger (
  {TOPIC}, part INT NOT NULL, end_offset BIGINT NOT NULL,
  PRIMARY KEY (topic, part))""",
    """CREATE TABLE IF NOT EXISTS metrics (
  name VARCHAR(48) PRIMARY KEY, definition_hash BINARY(16) NOT NULL, since DATETIME NOT NULL,
  measure VARCHAR(16) NOT NULL DEFAULT '')""",
    f"""CREATE TABLE IF NOT EXISTS metric_topics (
  metric VARCHAR(48) NOT NULL, {TOPIC}, PRIMARY KEY (metric, topic))""",
    # A metric counts a partition that has no row here from its first line on (`ranges.py`).
    f"""CREATE TABLE IF NOT EXISTS metric_ranges (
  metric VARCHAR(48) NOT NULL, {TOPIC}, part INT NOT NULL,
  start_offset BIGINT NOT NULL, end_offset BIGINT,
  PRIMARY KEY (metric, topic, part, start_offset))""",
    f"""CREATE TABLE IF NOT EXISTS recounts (
  metric VARCHAR(48) NOT NULL, {TOPIC}, part INT NOT NULL,
  from_offset BIGINT NOT NULL, tries INT NOT NULL DEFAULT 0, {PROBLEM},
  PRIMARY KEY (metric, topic, part))""",
    # The deletion terms: from `from_at` on, windows older than their `keep` are deleted
    # (`keeping.py`).
    """CREATE TABLE IF NOT EXISTS keep_terms (
  metric VARCHAR(48) NOT NULL, size_s INT NOT NULL, keep_s BIGINT NOT NULL,
  from_at DATETIME NOT NULL, cells BIGINT NOT NULL, PRIMARY KEY (metric, size_s))""",
    # The contents of the archive of raw lines, for readers without Spark (`archive_rows.py`).
    f"""CREATE TABLE IF NOT EXISTS archived (
  {TOPIC}, part INT NOT NULL, start_offset BIGINT NOT NULL,
  end_offset BIGINT NOT NULL, until_ms BIGINT NOT NULL,
  PRIMARY KEY (topic, part, start_offset))""",
    f"""CREATE TABLE IF NOT EXISTS unparsed (
  {TOPIC}, file_hash BINARY(16) NOT NULL, reason VARCHAR(64) NOT NULL,
  {FILE}, `count` BIGINT NOT NULL, PRIMARY KEY (topic, file_hash, reason))""",
    f"""CREATE TABLE IF NOT EXISTS unparsed_lines (
  {TOPIC}, part INT NOT NULL, `offset` BIGINT NOT NULL, day DATE NOT NULL,
  file_hash BINARY(16) NOT NULL, reason VARCHAR(64) NOT NULL, line VARBINARY(4096) NOT NULL,
  PRIMARY KEY (topic, part, `offset`), KEY (day, file_hash))""",
    "INSERT INTO sink_guard (id, query_id, epoch, batch_id, seq) VALUES (1, '', 0, -1, 0) "
    "ON DUPLICATE KEY UPDATE id = 1",
)

TOUCHED = f"""CREATE TEMPORARY TABLE IF NOT EXISTS touched (
  window_number BIGINT UNSIGNED NOT NULL, k_id VARBINARY({KEY_ID_TEXT_OCTETS_MAX + 1}) NOT NULL,
  PRIMARY KEY (window_number, k_id))"""
