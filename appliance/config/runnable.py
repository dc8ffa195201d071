"""Finds settings that are well formed but cannot work, and reports the consequence.

This module is pure. A fault is reported only if it is certain without Spark and without reading any
file.
"""

import posixpath
from urllib.parse import urlsplit

from appliance.config.document import Document
from appliance.config.model import MillConfig
from collector.identity.discovery import plan
from stream.config import expression
from stream.config.input_section import ParsedInputSection
from stream.config.sections import MetricSection

NUMERIC_MEASURES = frozenset({"sum", "min", "max", "mean", "percentile"})

# The columns of each format that never contain a number.
NEVER_NUMBERS = {
    "combined": frozenset(
        {"method", "path", "query", "protocol", "referer", "user_agent", "remote_addr"}
    ),
    "common": frozenset({"method", "path", "query", "protocol", "remote_addr"}),
    "syslog": frozenset({"program"}),
}

ARCHIVED_FILE = "topic/hour/00000001.parquet"
"""The path of a typical file in an archive. Only its depth matters."""


def check_archive(config: MillConfig, document: Document, home: str) -> None:
    """Reject an archive folder inside a watched folder.

    Otherwise archived files would be read, counted and archived again without end.
    """
    if config.stream.archive is None:
        return
    folder = config.stream.archive.folder
    place = urlsplit(folder)
    if place.scheme not in ("", "file"):
        return
    path = posixpath.normpath(posixpath.join(home, place.path))
    inputs = config.collector.inputs
    for pattern in plan(inputs, home):
        sample = f"{path}/{ARCHIVED_FILE}"
        if not sample.startswith(f"{pattern.root}/"):
            continue
        below = sample.removeprefix(f"{pattern.root}/")
        # A pattern with `**` matches files at any depth below the archive.
        if pattern.matches(below) or pattern.matches(posixpath.basename(sample)):
            globs = ", ".join(inputs[pattern.input_index].paths)
            document.add(
                ("stream", "archive", "folder"),
                f"{folder!r}, which collector.inputs[{pattern.input_index}] ({globs}) reads",
                "a folder that no input matches; otherwise its files would be counted as lines,"
                " endlessly",
            )
            return


def check_metrics(config: MillConfig, document: Document) -> None:
    """Reject measures that need numbers, such as `sum`, of columns that never have numbers."""
    for index, metric in enumerate(config.stream.metrics):
        _check_number(index, metric, config.stream.from_, document)


def _check_number(
    index: int, metric: MetricSection, inputs: dict[str, ParsedInputSection], document: Document
) -> None:
    if metric.measure not in NUMERIC_MEASURES or metric.value is None:
        return
    for name in metric.from_:
        if name not in inputs:
            continue
        types = inputs[name].column_types()
        column = expression.bare_column(metric.value, list(types))
        if column in NEVER_NUMBERS.get(inputs[name].format, ()):
            numbers = [one for one, kind in types.items() if kind not in ("string", "timestamp")]
            document.add(
                ("stream", "metrics", index, "value"),
                f"{column}, which is not a number on any line of {name}",
                f"a number, such as {' or '.join(numbers)}, for measure {metric.measure}",
            )
            return
