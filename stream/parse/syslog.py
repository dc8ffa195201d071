"""SQL that parses syslog: RFC 5424, RFC 3164, and common deviations from RFC 3164.

This module is pure and needs no JVM. The host can be missing (Cisco routers, lines of `/dev/log`).
The program can be missing too, as in `last message repeated 5 times`. The name of a program is
followed by a colon, or by a process id in brackets. Only a name with a process id can contain
blanks.
"""

from stream.config.line_patterns import SYSLOG, SYSLOG_GROUPS
from stream.parse.texts import ColumnSql, LineSql, Texts, by_groups
from stream.parse.times import line_time


def read_syslog(texts: Texts) -> LineSql:
    """Return how to read a syslog input."""
    groups = [str(number) for number in range(1, SYSLOG_GROUPS + 1)]
    taken, matches = by_groups(SYSLOG, groups, texts.fields)
    field = [f"nullif({texts.fields}[{index}], '')" for index in range(SYSLOG_GROUPS + 1)]
    priority = texts.hold("priority", f"coalesce({field[1]}, {field[9]})")
    columns = {
        "host": ColumnSql(f"nullif(coalesce({field[3]}, {field[13]}, {field[10]}), '-')"),
        "program": ColumnSql(f"nullif(coalesce({field[4]}, {field[14]}, {field[16]}), '-')"),
        "pid": texts.typed("pid", f"coalesce({field[5]}, {field[15]}, {field[17]})", "int"),
        "message": ColumnSql(f"coalesce({field[8]}, {field[18]}, '')"),
        "facility": ColumnSql(f"CAST(try_cast({priority} AS INT) DIV 8 AS INT)", priority),
        "severity": ColumnSql(f"try_cast({priority} AS INT) % 8", priority),
        "message_id": ColumnSql(f"nullif({field[6]}, '-')"),
        "structured_data": ColumnSql(f"nullif({field[7]}, '-')"),
    }
    stamp = texts.hold("time", f"coalesce({field[11]}, {field[2]}, {field[12]})")
    time = line_time([stamp], texts.section.tz, texts.section.time)
    return LineSql(texts.in_one_step(taken), matches, time, columns)
