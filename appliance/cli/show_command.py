"""`show`: a metric's counts, with the column names of its view in MySQL."""

import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from appliance.cli import context
from appliance.cli.options import EnvelopeOption
from appliance.config.faults import ConfigFaults, did_you_mean
from appliance.mill.settings import Mill
from appliance.output import (
    CommandError,
    Exit,
    is_terminal,
    print_json,
    print_table,
    say,
)
from appliance.traffic.readings import (
    MetricReading,
    NotCounted,
    ReadingError,
    key_cells,
    read_metric,
)
from sinks.estimates import error_of, is_estimated, note_of
from sinks.mysql.views import key_column_names
from sinks.rows import MetricDefinition
from sinks.values import Measure
from stream.config.metrics import resolve_metrics


def show(
    metric: Annotated[str, typer.Argument(help="A metric of configs/millrace.yaml.")],
    size: Annotated[
        str | None,
        typer.Option("--size", help="The latest window of this size, such as 1m; or all."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", help="The largest number of keys to print.", min=1)
    ] = 50,
    watch: Annotated[bool, typer.Option("--watch", help="Print again every second.")] = False,
    as_json: EnvelopeOption = False,
) -> None:
    """Print a metric's counts: from Redis, or from MySQL when Redis does not answer."""
    mill = _mill()
    chosen = _window(mill, metric, size)
    metrics = resolve_metrics(mill.config.stream)
    definition = next(one.definition for one in metrics if one.definition.name == metric)
    if not mill.home.secrets.exists():
        text = context.not_answered(f"{metric} has not been counted here")
        raise CommandError(text, Exit.UNREACHABLE)
    for is_first in _rounds(watch):
        try:
            reading = read_metric(mill, metric, chosen)
        except NotCounted as error:
            if is_first or not watch:
                raise CommandError(str(error), Exit.CONDITION) from error
            say(f"millrace: {error}")
            continue
        except ReadingError as error:
            if is_first or not watch:
                text = context.not_answered(str(error))
                raise CommandError(text, Exit.UNREACHABLE) from error
            say(f"millrace: {error}")
            continue
        clear = watch and is_terminal()
        _print_reading(definition, reading, limit, as_json=as_json, clear=clear)


def _mill() -> Mill:
    """Return the mill of the configuration file, which can have a metric that was just added.

    If the file has faults, return the mill as it runs.
    """
    try:
        return context.load_mill()[0]
    except ConfigFaults:
        return context.mill_as_it_runs()


def _rounds(watch: bool) -> Iterator[bool]:
    yield True
    while watch:
        sys.stdout.flush()
        time.sleep(1.0)
        yield False


def _window(mill: Mill, name: str, size: str | None) -> str:
    """Return the window to show: the requested one, else `all`, else the metric's largest."""
    stream = mill.config.stream
    metrics = {metric.name: metric for metric in stream.metrics}
    if name not in metrics:
        close = did_you_mean(name, sorted(metrics))
        known = f"the metrics are {', '.join(sorted(metrics)) or 'none'}{close}"
        raise CommandError(f"there is no metric {name!r}; {known}", Exit.NOT_FOUND)
    windows = metrics[name].windows or stream.defaults.windows
    if size is None:
        return "all" if "all" in windows else windows[-1]
    if size not in windows:
        known = f"its windows are {', '.join(windows)}"
        raise CommandError(f"metric {name} has no window {size!r}; {known}", Exit.NOT_FOUND)
    return size


def _print_reading(
    definition: MetricDefinition, reading: MetricReading, limit: int, *, as_json: bool, clear: bool
) -> None:
    rows = sorted(reading.values.items(), key=lambda pair: (-pair[1].rank, pair[0]))
    if as_json:
        data = {
            "metric": reading.metric,
            "size": reading.size,
            "start": reading.start,
            "source": reading.source,
            "values": {key: value.text for key, value in rows[:limit]},
            "keys": len(rows),
            "estimates": estimated_fields(definition, reading, [key for key, _ in rows[:limit]]),
            "error": error_of(definition.measure),
        }
        print_json("metric/1", data)
        return
    if clear:
        sys.stdout.write("\x1b[H\x1b[2J")
    if rows:
        heads, table = table_of(definition, [(key, value.text) for key, value in rows[:limit]])
        print_table(heads, table, right=frozenset({len(heads) - 1}))
    since = f", window from {reading.start}" if reading.start else ""
    left_out = f"; {len(rows) - limit} more keys" if len(rows) > limit else ""
    nothing = "nothing counted yet; " if not rows else ""
    say(f"{nothing}{reading.size}{since}, from {reading.source}{left_out}")
    if note := note_of(definition.measure):
        say(f"{definition.measure}: {note}")


def estimated_fields(
    definition: MetricDefinition, reading: MetricReading, fields: list[str]
) -> list[str]:
    """Return the fields of a reading whose values are estimates."""
    is_ranked = definition.measure == Measure.PERCENTILE
    found = []
    for field in fields:
        key, _, rank = field.rpartition(".")
        value = reading.values[field]
        is_estimate = value.is_estimate
        if is_estimate is None:
            counted = reading.values.get(f"{key}.count") if is_ranked else None
            count = None if counted is None else int(counted.rank)
            is_estimate = rank != "count" if is_ranked else True
            is_estimate = is_estimate and is_estimated(definition.measure, value.rank, count)
        if is_estimate:
            found.append(field)
    return found


def table_of(
    definition: MetricDefinition, rows: list[tuple[str, str]]
) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows with the column names of the metric's view in MySQL."""
    columns = key_column_names(definition)
    heads = [name.upper() for name in columns]
    is_ranked = definition.measure == Measure.PERCENTILE
    if is_ranked:
        heads.append("OF")
    heads.append("COUNT" if definition.measure == Measure.COUNT else "VALUE")
    table = []
    for field, text in rows:
        key, _, rank = field.rpartition(".") if is_ranked else (field, "", "")
        cells = key_cells(key, len(columns))
        table.append([*cells, *([rank] if is_ranked else []), text])
    return heads, table
