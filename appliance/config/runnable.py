"""Checks of what is well formed and yet could not work: each tells what would come of it.

Pure. Only what is certain without Spark and without a line of any file is a fault.
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

# Of a text's columns these hold no number on any line, whatever is in the file.
NEVER_NUMBERS = {
    "combined": frozenset(
        {"method", "path", "query", "protocol", "referer", "user_agent", "remote_addr"}
    ),
    "common": frozenset({"method", "path", "query", "protocol", "remote_addr"}),
    "syslog": frozenset({"program"}),
}

ARCHIVED_FILE = "topic/hour/00000001.parquet"
"""A file as an archive may hold it: what matters is that it lies somewhere below."""


def check_archive(config: MillConfig, document: Document, home: str) -> None:
    """An archive in a watched folder would be read, counted and archived again without end."""
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
        # A pattern that goes down any number of folders takes what lies there, however deep.
        if pattern.matches(below) or pattern.matches(posixpath.basename(sample)):
            globs = ", ".join(inputs[pattern.input_index].paths)
            document.add(
                ("stream", "archive", "folder"),
                f"{folder!r}, which collector.inputs[{pattern.input_index}] ({globs}) reads",
                "a folder that no input matches: its files would be counted as lines, for ever",
            )
            return


def check_metrics(config: MillConfig, document: Document) -> None:
    """Numbers of what never is one."""
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
                f"{column}, which is no number on any line of {name}",
                f"a number, such as {' or '.join(numbers)}, for measure {metric.measure}",
            )
            return
