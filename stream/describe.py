"""Describes in words how each metric is compiled, for `--plan`.

This module is pure and needs no JVM.
"""

from collections.abc import Iterator

from sinks.estimates import note_of
from sinks.rows import size_text
from stream.config.metrics import Metric
from stream.config.settings import StreamSection
from stream.fold.compile import FoldPlan, compile_plan
from stream.fold.groupings import groupings

_MEASURED = {
    "count": "lines",
    "sum": "sum of {}",
    "min": "least {}",
    "max": "greatest {}",
    "mean": "mean of {}",
    "share": "share of lines for which {}",
    "unique": "distinct values of {}",
    "percentile": "p50, p95, p99 of {}",
}


def describe_plan(section: StreamSection) -> str:
    """Describe every metric with its inputs, then the SQL query and groupings for all metrics."""
    plan = compile_plan(section)
    lines: list[str] = []
    for metric in plan.metrics:
        lines.extend(_describe(metric, plan))
        lines.append("")
    lines += ["Each line is judged for every metric:", "", plan.lines_sql]
    lines += ["", "Metrics that are counted together, by slice and key:", ""]
    for grouping in groupings(plan):
        names = ", ".join(plan.metrics[reading.number].name for reading in grouping.readings)
        lines.append(f"  {names}: by {', '.join(grouping.readings[0].keys) or 'nothing'}")
    return "\n".join(lines) + "\n"


def _describe(metric: Metric, plan: FoldPlan) -> Iterator[str]:
    definition, section = metric.definition, metric.section
    measured = _MEASURED[definition.measure].format(section.value)
    by = f" by {', '.join(metric.key)}" if metric.key else ""
    yield f"{metric.name}: {measured}{by}"
    if note := note_of(definition.measure):
        yield f"  {note}"
    windows = ", ".join(size_text(size) for size in definition.windows_s)
    fold = f"folded per {size_text(metric.slice_s)}" if metric.slice_s else "folded to one sum"
    clock = "" if definition.zone is None else f" by the clock of {definition.zone.name}"
    yield f"  windows  {windows}{clock}; a batch is {fold}"
    if definition.top is not None:
        yield f"  top      {definition.top}"
    for name in metric.inputs:
        parsed, entry = plan.inputs[name], plan.entries[metric.name, name]
        yield f"  from     {name}: topic {parsed.topic}, {parsed.reason.replace(':', ' ')}"
        yield f"    time   {parsed.time}"
        if entry.where is not None:
            yield f"    where  {entry.where}"
        if entry.value is not None:
            yield f"    value  {entry.value}"
            if entry.absent is not None:
                yield f"    absent {entry.absent}"
        for key in entry.keys:
            column = key.strip("`").removeprefix(f"{name}:").removeprefix(f"{name}.")
            sql = parsed.columns.get(column)
            yield f"    key    {column}" + (f" = {sql.value}" if sql is not None else "")
