"""Decides which metrics are counted together, and describes that for the JVM.

This module is pure and needs no JVM. Metrics with the same inputs, key, slice and zone share a
*grouping*, so the cell of a line is looked up once for all of them. A metric with a sketch has a
grouping of its own, because its cells always come as rows. `java/Fold.java` computes all groupings
in one pass over the judged lines.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sinks.cells.blocks import OPENING
from sinks.distinct import HLL_LG_K
from sinks.estimates import KLL_K, UNIQUE_EXACT_MAX
from sinks.keys import K_COLUMN_CHARACTERS, K_HASH_BYTES, KEY_ID_TEXT_OCTETS_MAX
from sinks.local_time import LocalZone
from sinks.unparsed import SAMPLES_PER_FILE_AND_DAY
from stream.fold.compile import COUNTED, FAULTY, LINE_COLUMNS, FoldPlan, MetricColumns, ValueKind
from stream.parse.numbers import EXACT_DIGITS, EXACT_PLACES
from stream.parse.times import TIME_REASON

# The most samples of uncounted lines per partition, file and reason. The sinks would not keep more.
SAMPLES = SAMPLES_PER_FILE_AND_DAY

# The most octets of samples per task, over all files.
SAMPLE_OCTETS = 8 << 20

# The size of the pieces in which cells go from the first stage to the second. A piece can be larger
# by one window.
CHUNK_OCTETS = 8 << 20

# The first octet of a frame from the JVM tells its kind: a block of cells, rows, numbers of lines,
# samples, the times of a task, the time for making text, and the last frame.
_KINDS = ("block", "rows", "tallies", "samples", "task", "text", "end")
FRAMES = dict(zip(_KINDS, b"BRTSJWE", strict=True))

_SKETCH_SIZES = {"unique": HLL_LG_K, "percentile": KLL_K}

# The number for a column that a metric does not have.
_NO_COLUMN = -1


@dataclass(frozen=True, slots=True)
class Grouping:
    """Metrics that are counted by one grouping of the lines."""

    readings: tuple[MetricColumns, ...]

    @property
    def slice_s(self) -> int:
        return self.readings[0].slice_s

    @property
    def zone(self) -> LocalZone | None:
        return self.readings[0].zone

    @property
    def coarser_s(self) -> tuple[int, ...]:
        """The sizes of the metrics' windows that differ from the slice, ascending."""
        sizes = {size for reading in self.readings for size in reading.windows_s}
        return tuple(sorted(sizes - {self.slice_s}))


def groupings(plan: FoldPlan) -> tuple[Grouping, ...]:
    """Return the groupings of a plan's metrics, in the order of their first metrics."""
    found: dict[tuple[object, ...], list[MetricColumns]] = {}
    for reading in plan.readings:
        alone = reading.number if reading.measure in _SKETCH_SIZES else None
        shared = (reading.topics, reading.keys, reading.slice_s, reading.zone, alone)
        found.setdefault(shared, []).append(reading)
    return tuple(Grouping(tuple(readings)) for readings in found.values())


def faulty_readings(plan: FoldPlan) -> tuple[MetricColumns, ...]:
    """Return the metrics that have a column of verdicts. Only these can find a line faulty."""
    return tuple(reading for reading in plan.readings if reading.verdict is not None)


def fold_spec(plan: FoldPlan, *, as_blocks: bool) -> str:
    """Return the description of a plan for the JVM, as JSON. Columns are given by their positions.

    `as_blocks`: the sinks accept cells as text; otherwise all cells come as rows.
    """
    at = {name: place for place, name in enumerate(plan.columns)}
    faulty = faulty_readings(plan)
    return json.dumps(
        {
            "as_blocks": as_blocks,
            "frames": FRAMES,
            "columns": {name: at[name] for name in LINE_COLUMNS},
            "time_reason": TIME_REASON,
            "counted": COUNTED,
            "faulty": FAULTY,
            "key_characters": K_COLUMN_CHARACTERS,
            "hash_octets": K_HASH_BYTES,
            "text_octets": KEY_ID_TEXT_OCTETS_MAX,
            "opening": OPENING.decode(),
            "samples": SAMPLES,
            "sample_octets": SAMPLE_OCTETS,
            "chunk_octets": CHUNK_OCTETS,
            "faulty_numbers": [reading.number for reading in faulty],
            "faulty_at": [at[reading.verdict] for reading in faulty if reading.verdict],
            "groupings": [
                {
                    "topics": list(grouping.readings[0].topics),
                    "keys": [at[name] for name in grouping.readings[0].keys],
                    "slice_s": grouping.slice_s,
                    "coarser_s": list(grouping.coarser_s),
                    "zone": _zone_spec(grouping.zone),
                    "readings": [_reading_spec(one, plan, at) for one in grouping.readings],
                }
                for grouping in groupings(plan)
            ],
        }
    )


def _zone_spec(zone: LocalZone | None) -> dict[str, list[int]] | None:
    if zone is None:
        return None
    return {"begins": list(zone.begins), "offsets": list(zone.offsets)}


def _reading_spec(reading: MetricColumns, plan: FoldPlan, at: Mapping[str, int]) -> dict[str, Any]:
    return {
        "number": reading.number,
        "name": plan.metrics[reading.number].name,
        "verdict": _NO_COLUMN if reading.verdict is None else at[reading.verdict],
        "value": _NO_COLUMN if reading.value is None else at[reading.value],
        "digits": EXACT_DIGITS,
        "places": EXACT_PLACES,
        "has_amount": reading.kind in (ValueKind.WHOLE, ValueKind.DECIMAL),
        "is_whole": reading.kind is ValueKind.WHOLE,
        "measure": reading.measure,
        "windows_s": list(reading.windows_s),
        "sketch_size": _SKETCH_SIZES.get(reading.measure, 0),
        "exact_max": UNIQUE_EXACT_MAX,
    }
