"""The names of an input's columns within the query, and the columns that metrics use.

This module is pure.
"""

from collections.abc import Sequence

from stream.config.expression import column_tokens
from stream.config.formats import HOST_COLUMNS
from stream.config.input_section import ParsedInputSection
from stream.config.metrics import Metric
from stream.config.settings import StreamSection

# The name within the query for the columns of HOST_COLUMNS.
HOST = "collector_host"


def column_names(name: str, given: ParsedInputSection) -> dict[str, str]:
    """Return the name within the query for each column of an input.

    An input's own column wins over a column of every line. The colon separates columns from the
    names of parsing steps, such as `json.fields`.
    """
    plain = {"file": "file", "line": "line", "time": f"{name}.time"}
    plain |= dict.fromkeys(HOST_COLUMNS, HOST)
    own = {column: f"{name}:{column}" for column in given.own_columns()}
    return {column: own.get(column) or plain[column] for column in given.column_types()}


def wanted_columns(name: str, given: ParsedInputSection, metrics: Sequence[Metric]) -> set[str]:
    """Return the columns of an input that any metric uses."""
    columns = list(given.column_types())
    wanted: set[str] = set()
    for metric in metrics:
        if name in metric.inputs:
            wanted.update(metric.key)
            for text in (metric.section.where, metric.section.value):
                if text is not None:
                    wanted.update(token.name for token in column_tokens(text, columns))
    return wanted


def uses_host(section: StreamSection, metrics: Sequence[Metric]) -> bool:
    """Return True if any metric uses the collector of a line."""
    for name, given in section.from_.items():
        known = {column.lower(): own for column, own in column_names(name, given).items()}
        if any(known[column.lower()] == HOST for column in wanted_columns(name, given, metrics)):
            return True
    return False
