"""Writes the stream's own metrics in Prometheus's text format.

This module is pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from protocol.status import PartStatus
from stream.stages import QUANTILES

Sample = tuple[str, object]
"""The labels of a sample in Prometheus's format (empty if it has none), and its value."""

Family = tuple[str, str, str, list[Sample]]


def prometheus(status: PartStatus) -> str:
    """Return the metrics of a status as text. A metric whose value is unknown is left out."""
    lines: list[str] = []
    for name, kind, text, samples in (*_figures(status), *_stages(status.details)):
        lines += [f"# HELP millrace_stream_{name} {text}", f"# TYPE millrace_stream_{name} {kind}"]
        lines += [f"millrace_stream_{name}{labels} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _figures(status: PartStatus) -> Iterable[Family]:
    details: Mapping[str, Any] = status.details
    counters = details["counters"]
    figures: list[tuple[str, str, str, object]] = [
        ("ready", "gauge", "Whether batches are being counted.", int(status.ready)),
        ("lines_total", "counter", "Lines counted.", details["lines_total"]),
        ("unparsed_total", "counter", "Lines that are not counted.", details["unparsed_total"]),
        ("poison_total", "counter", "Lines set aside as uncountable.", details["poison_total"]),
        ("scrubbed_total", "counter", "Windows in Redis repaired.", details["scrubbed_total"]),
        ("left_out_total", "counter", "Cells left out as too old.", details["left_out_total"]),
        ("batches_total", "counter", "Batches applied.", counters["batches"]),
        ("replays_total", "counter", "Repeated batches that were skipped.", counters["replays"]),
        ("resumes_total", "counter", "New queries that began at the ledger.", counters["resumes"]),
        ("batch_milliseconds", "gauge", "Duration of the last batch.", details["batch_ms"]),
        ("sinks_milliseconds", "gauge", "Time of the sinks in it.", details["sinks_ms"]),
        ("rows_per_second", "gauge", "Lines per second.", details["rows_per_second"]),
        ("epoch", "gauge", "The epoch of this driver.", details["epoch"]),
    ]
    archive = details["archive"]
    if archive is not None:
        lines_n, lost = (sum(one[key] for one in archive["topics"]) for key in ("lines", "lost"))
        figures += [
            ("archived_lines", "gauge", "Lines in the archive.", lines_n),
            ("archive_lost_offsets", "gauge", "Offsets deleted unarchived.", lost),
        ]
    return [(name, kind, text, [("", value)]) for name, kind, text, value in figures]


def _stages(details: Mapping[str, Any]) -> Iterable[Family]:
    total, minute = details["stages"]["total"], details["stages"]["windows"]["1m"]
    by_stage = [(f'{{stage="{name}"}}', value) for name, value in total["seconds"].items()]
    yield "stage_seconds_total", "counter", "Time that batches took, by stage.", by_stage
    yield "busy_seconds_total", "counter", "Time that batches took.", [("", total["busy_seconds"])]
    yield "cells_total", "counter", "Cells made or changed.", [("", total["cells"])]
    # The quantiles are for the last minute. Sum and count are totals since the start, because
    # Prometheus expects totals in a summary.
    ages = [
        (f'{{quantile="{QUANTILES[name]}"}}', ms / 1000)
        for name, ms in (minute["line_ms"] or {}).items()
    ]
    text = "From the stamp of a live line's record until its number is in the sinks."
    yield (
        "line_seconds", "summary", text,
        [*ages, ("_sum", total["line_seconds"]), ("_count", total["live_lines"])],
    )  # fmt: skip
