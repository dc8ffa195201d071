"""The checks of `doctor` about MySQL's rows: their number, and in how many days the disk is
full.
"""

import math
import shutil
import time
from collections.abc import Iterator, Mapping

import pymysql

from appliance.checks.keeps import PURGE_REMEDY, definitions_of
from appliance.checks.startup import Check, CheckLevel
from appliance.mill.init import InitError
from appliance.mill.settings import Mill, sinks_settings
from appliance.mill.sinks import READER
from monitor.state.filling import DAYS_WARNING
from sinks.config import MySqlSettings
from sinks.keeping import Place, Term, waiting, words
from sinks.mysql.growth import Growth, TableSize, days_left, growth_of, rows_of
from sinks.mysql.purging import read_terms
from sinks.mysql.sink import NO_SUCH_TABLE
from sinks.read import connect_to_read
from sinks.rows import size_text

TIMEOUT_S = 30.0
WHAT = "MySQL's rows"


def rows(mill: Mill) -> Iterator[Check]:
    """Return the rows of each metric, with a warning if the disk is full within DAYS_WARNING."""
    if mill.config.sinks.mysql is None:
        return
    now_s = int(time.time())
    try:
        stored, terms = _ask(mill, now_s)
    except (InitError, pymysql.err.Error, OSError) as error:
        if error.args[:1] == (NO_SUCH_TABLE,):
            # The database is empty, so there is nothing to count.
            yield Check(CheckLevel.OK, WHAT, "not known yet, because the stream has no tables yet")
            return
        remedy = "`./millrace up` starts MySQL"
        yield Check(CheckLevel.WARNING, WHAT, f"MySQL gives no answer: {error}", remedy)
        return
    free = None
    if mill.part("mysql") is not None:
        free = shutil.disk_usage(mill.home.data).free
    definitions = definitions_of(mill.config)
    kept_s = {one.name: one.keep_mysql_s for one in definitions}
    yield from checks_of(stored, kept_s, now_s, free)
    for term in waiting(terms, definitions, now_s):
        yield Check(CheckLevel.WARNING, WHAT, words(term), PURGE_REMEDY)


def checks_of(
    stored: TableSize,
    kept_s: Mapping[str, Mapping[int, int | None]],
    now_s: int,
    free_bytes: int | None,
) -> Iterator[Check]:
    """Yield the checks for the number of stored rows. `free_bytes` is None if the mill does not run
    the server itself."""
    growths = growth_of(stored, kept_s, now_s)
    for one in growths:
        if one.metric in kept_s:
            yield Check(CheckLevel.OK, f"{WHAT}: {one.metric}", _words(one))
        else:
            found = f"{_words(one)}; the configuration no longer has this metric"
            remedy = f"`./millrace stream forget {one.metric}` removes its rows"
            yield Check(CheckLevel.OK, f"{WHAT}: {one.metric}", found, remedy)
    if free_bytes is None or not growths:
        return
    days = days_left(growths, stored.bytes_per_row, free_bytes)
    text = f"{stored.table_bytes / (1 << 20):,.0f} MiB, {stored.bytes_per_row:.0f} bytes a row"
    if days is None:
        yield Check(
            CheckLevel.OK, WHAT, f"{text}; at the pace of the last days the disk does not fill up"
        )
    elif days >= DAYS_WARNING:
        yield Check(
            CheckLevel.OK,
            WHAT,
            f"{text}; at the pace of the last days the disk is full in {days:,.0f} days",
        )
    else:
        remedy = (
            "free disk space, or keep the smallest windows of a metric for a shorter time, such "
            "as `keep: {mysql: {1m: 30d}}`"
        )
        found = f"{text}; at the pace of the last days the disk is full in {days:,.1f} days"
        yield Check(CheckLevel.WARNING, WHAT, found, remedy)


def _words(one: Growth) -> str:
    sizes: dict[str, list[str]] = {}
    for pace in sorted(one.paces, key=lambda pace: pace.size_s or math.inf):
        kept = "forever" if pace.kept_days is None else f"for {pace.kept_days:g} days"
        sizes.setdefault(kept, []).append(size_text(pace.size_s))
    kept = ", ".join(f"{', '.join(names)} {kept}" for kept, names in sizes.items())
    if len(sizes) == 1:
        (kept,) = sizes
    text = f"{one.rows:,} rows, about {one.bytes / (1 << 20):,.1f} MiB"
    return f"{text}, {one.rows_a_day:,.0f} more a day, kept {kept}"


def _ask(mill: Mill, now_s: int) -> tuple[TableSize, dict[Place, Term]]:
    """Return the numbers of rows, and the retention time of the rows of each metric and window
    size."""
    settings = MySqlSettings.model_validate(sinks_settings(mill, READER, "monitor")["mysql"])
    connection = connect_to_read(settings, TIMEOUT_S)
    with connection, connection.cursor() as cursor:
        return rows_of(cursor, now_s), read_terms(cursor)
