"""Measures how many lines per second the mill counts for each shipped format: a backlog of lines,
counted by one column.

The lines are those of the test fixtures, with changed numbers and words. After every run, the
counts in MySQL are compared with a direct count. A difference fails the bench.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial

from bench.measurement import Figures, Measurement
from bench.session import Bench
from bench.stream_rig import Differs, Servers, StreamRig, servers
from sinks.keys import shown_columns
from tests.harness.format_lines import INPUTS, NAMES, Row, counted_columns, generated

PART = "formats"
METRIC = "counted"
FILE = "formats/backlog.log"


def measure(bench: Bench) -> Iterator[Measurement]:
    """Measure every shipped format whose columns are known without a header that the user gives."""
    with servers(bench) as on:
        for name in NAMES:
            yield _measured(bench, on, name)


def _measured(bench: Bench, on: Servers, name: str) -> Measurement:
    """Count a backlog of one format. Raises Differs unless every count is exact."""
    topic, column = f"logs.{name}", counted_columns(name)[0]
    section = {
        "from": {name: {"topic": topic, "format": name, **INPUTS.get(name, {})}},
        "defaults": {"windows": ["all"]},
        "metrics": [{"name": METRIC, "from": name, "key": column, "measure": "count"}],
    }
    warm = list(generated(name, bench.options.sized(50_000, 10_000), bench.options.seed))
    given = list(generated(name, bench.options.sized(200_000, 30_000), bench.options.seed + 1))
    case = f"{name}, count by {column}"
    # The stream runs during the whole measured span, because the CPU time of a process that ends
    # within the span is treated as other load.
    with StreamRig(on, bench.new_folder(name), section, topic) as rig:
        rig.warm_up(FILE, _octets(warm))
        runs = bench.repeat(case, partial(_backlog, rig, given), runs=1)
        straight = Counter(shown_columns((row[column],))[0] for _, row in (*warm, *given))
        if (found := rig.totals(METRIC)) != straight:
            raise Differs(
                f"{name}: MySQL has the counts {found}, a direct count of the lines gives "
                f"{dict(straight)}"
            )
    return Measurement(PART, case, runs)


def _backlog(rig: StreamRig, lines: list[tuple[str, Row]]) -> Figures:
    figures = rig.backlog(FILE, _octets(lines))
    return {key: value for key, value in figures.items() if "pss" not in key}


def _octets(lines: list[tuple[str, Row]]) -> Iterator[bytes]:
    return (line.encode() for line, _ in lines)
