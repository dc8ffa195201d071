"""A batch folded by the driver and the same batch folded by Spark give the same cells."""

import json
import random
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import datasketches
import pytest

from sinks.cells.blocks import decode, is_clean
from sinks.cells.merge import CellId, fold_to_windows
from sinks.keys import key_hash, key_id
from sinks.rows import MetricDefinition
from sinks.values import combined
from stream.config.settings import StreamSection
from stream.fold import groupings
from stream.fold.compile import FoldPlan, compile_plan
from stream.fold.counts import BatchCounts
from stream.fold.folding import Folding
from tests.harness.cell_blocks import encode
from tests.harness.reference_fold import reference_counts
from tests.harness.seed import seeded
from tests.harness.worked import hll
from tests.interop.stream_spark import frame

pytestmark = pytest.mark.live

SECTION: dict[str, Any] = {
    "from": {
        "access": {"topic": "logs.access", "format": "combined"},
        "api": {
            "topic": "logs.api",
            "format": "json",
            "time": "ts",
            "columns": {
                "who": "who string",
                "what": "what string",
                "n": "n bigint",
                "ms": "ms double",
                "code": "code int",
            },
        },
    },
    "defaults": {"windows": ["1m", "1h", "all"]},
    "metrics": [
        {"name": "by_status", "from": "access", "key": "status", "measure": "count"},
        {"name": "bytes_by_status", "from": "access", "key": "status",
         "measure": "sum", "value": "bytes"},
        {"name": "paths", "from": "access", "key": "path", "measure": "count", "top": 3},
        {"name": "visitors", "from": "access", "measure": "unique", "value": "remote_addr"},
        {"name": "files", "from": ["access", "api"], "key": "file", "measure": "count"},
        {"name": "pairs", "from": "api", "key": ["who", "what"],
         "measure": "sum", "value": "n", "windows": ["10s", "all"]},
        {"name": "slow", "from": "api", "where": "ms > 0.5", "key": "who", "measure": "count"},
        {"name": "least", "from": "api", "key": "who",
         "measure": "min", "value": "ms", "windows": ["90s", "1m"]},
        {"name": "mean", "from": "api", "measure": "mean", "value": "ms / n", "windows": ["all"]},
        {"name": "errors", "from": "api", "key": "what",
         "measure": "share", "value": "code >= 500"},
        {"name": "spread", "from": "api", "key": "what", "measure": "percentile", "value": "ms"},
        {"name": "people", "from": "api", "key": "what", "measure": "unique", "value": "who"},
    ],
}  # fmt: skip

KEYS = [
    None, "", "-", "a", "b", "it's", 'say "x"', "back\\slash", "tab\tand\nline", "nul\0here",
    "emoji 😀", "(other)", "(null)", "*", "@at", "p|q", "x" * 512, "y" * 513, "z" * 4_000,
]  # fmt: skip


def api_line(chance: random.Random) -> str:
    document: dict[str, Any] = {"ts": 1_785_578_400 + chance.randrange(0, 7_500)}
    if chance.random() < 0.05:
        document["ts"] = chance.choice(["noon", None, "07/09/2026", "2026-08-01 10:00 BST"])
    for name in ("who", "what"):
        document[name] = chance.choice(KEYS)
    document["n"] = chance.choice(
        [0, 1, -7, 2**40, -(2**45), 9_999_999_999_999_999, -(2**63), 2**63 - 1, 2**63, "x", None]
    )
    document["ms"] = chance.choice([0.25, 1e-12, 1e-13, 123456.789012, -3, "5d", None, 0.6])
    document["code"] = chance.choice([200, 404, 500, 503, "abc", None])
    return json.dumps(document, ensure_ascii=chance.random() < 0.5)


def access_line(chance: random.Random) -> str:
    minute, second = chance.randrange(60), chance.randrange(60)
    path = chance.choice(["/", "/a", "/b?x=1", "/o'neil", "/w" + "o" * 600, "/back\\\\slash"])
    size = chance.choice(["-", "0", "17", "99999"])
    status = chance.choice([200, 304, 404, 500])
    clock = f"01/Aug/2026:1{chance.randrange(3)}:{minute:02}:{second:02} +0000"
    if chance.random() < 0.05:
        return "no access line"
    return (
        f'10.0.0.{chance.randrange(30)} - - [{clock}] "GET {path} HTTP/1.1" {status} {size} "-" "x"'
    )


def folded(
    plan: FoldPlan, lines: Mapping[str, list[str]], *, as_blocks: bool
) -> tuple[BatchCounts, BatchCounts, BatchCounts]:
    """Fold the same lines in three ways. Return the counts of the reference fold, of the driver,
    and of Spark's tasks."""
    frames = [
        frame(some, topic, f"{topic}/{index}.log", partition=index)
        for topic, all_lines in lines.items()
        for index, some in enumerate((all_lines[::2], all_lines[1::2]))
    ]
    joined = frames[0]
    for more in frames[1:]:
        joined = joined.unionByName(more)
    folding = Folding(plan, as_blocks=as_blocks)
    small, large = folding.fold_in_driver(joined), folding.fold_in_tasks(joined)
    return reference_counts(joined, plan), small, large


def cells(
    counts: BatchCounts, definitions: Mapping[str, MetricDefinition], *, are_few: bool = True
) -> dict[CellId, object]:
    """Return every cell of every window, with its sketch of distinct values.

    With `are_few` a cell has so few values that a sketch of quantiles keeps all of them. Then the
    sketch's median is included, too.
    """
    # Use time 0, so that no window is too old to be kept. The cells of blocks are not limited yet.
    folded = fold_to_windows(counts.rows, definitions, 0, left_out=set())
    gathered = {cell_id: list(more.parts) for cell_id, more in folded.items()}
    for block in counts.blocks:
        definition = definitions[block.metric]
        said = decode(block, definition)
        if definition.measure == "count" and is_clean(block):
            # Such a block must equal the reference encoding byte by byte, with its cells in the
            # order of the table. Blocks with decimals spell some digits differently.
            placed = sorted(said, key=lambda cell: key_id(cell[0]))
            assert block == encode(definition, block.size_s, block.start_s, placed)
        for key, aggregate in said:
            cell_id = CellId(block.metric, block.size_s, block.start_s, key_hash(key))
            assert cell_id not in gathered, "a cell stands in rows and blocks, or in two blocks"
            gathered[cell_id] = [aggregate]
    found: dict[CellId, object] = {}
    for cell_id, parts in gathered.items():
        one = combined(parts)
        # Sketches of distinct values must be equal byte by byte, because neither the order of the
        # values nor batches change them.
        sketch: object = one.hll
        if one.kll is not None:
            ranked = datasketches.kll_doubles_sketch.deserialize(one.kll)
            sketch = [ranked.n, ranked.get_min_value(), ranked.get_max_value()]
            if are_few:
                sketch.append(ranked.get_quantile(0.5, True))
        found[cell_id] = (one.count, one.sum, one.min, one.max, sketch)
    return found


@pytest.mark.parametrize("as_blocks", [True, False])
def test_both_folds_give_the_same_cells(as_blocks: bool) -> None:
    chance = seeded("stream-folds")
    plan = compile_plan(StreamSection.model_validate(SECTION))
    definitions = {metric.name: metric.definition for metric in plan.metrics}
    lines = {
        "logs.access": [access_line(chance) for _ in range(1_500)],
        "logs.api": [api_line(chance) for _ in range(1_500)],
    }
    straight, small, large = folded(plan, lines, as_blocks=as_blocks)
    ours, sparks = cells(small, definitions), cells(large, definitions)
    assert cells(straight, definitions) == ours
    assert straight.partitions == small.partitions
    assert {i for i in ours if i not in sparks} == set()
    assert {i for i in sparks if i not in ours} == set()
    assert {i: (ours[i], sparks[i]) for i in ours if ours[i] != sparks[i]} == {}
    assert {i.metric for i in ours} == set(definitions)
    assert bool(large.blocks) is as_blocks
    assert small.partitions == large.partitions
    assert [(u.topic, u.file, u.reason, u.count) for u in small.unparsed] == [
        (u.topic, u.file, u.reason, u.count) for u in large.unparsed
    ]
    for ours_of, sparks_of in zip(straight.unparsed, large.unparsed, strict=True):
        assert set(sparks_of.samples) <= set(ours_of.samples)
    assert {u.reason for u in small.unparsed} >= {
        "format:combined", "expression_null:least", "time", "time:ambiguous", "time:zone BST",
    }  # fmt: skip


def test_cells_that_travel_in_many_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groupings, "CHUNK_OCTETS", 200)
    test_both_folds_give_the_same_cells(True)


def test_all_samples_of_a_large_batch_stay_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groupings, "SAMPLE_OCTETS", 1_000)
    plan = compile_plan(StreamSection.model_validate(SECTION))
    lines = ["no access line" * 10] * 60
    straight, _, large = folded(plan, {"logs.access": lines}, as_blocks=True)
    assert [row.count for row in large.unparsed] == [row.count for row in straight.unparsed]
    kept = [sample for row in large.unparsed for sample in row.samples]
    tasks = 2
    assert 0 < sum(len(sample.line) for sample in kept) < tasks * (1_000 + len(lines[0]))


def test_sums_of_whole_numbers_are_exact_beyond_a_bigint() -> None:
    plan = compile_plan(StreamSection.model_validate(SECTION))
    largest = 2**63 - 1
    lines = [
        json.dumps({"ts": 1_785_578_400, "who": "w", "what": "x", "n": sign * largest})
        for sign in [1] * 1_100 + [-1] * 50
    ]
    for counts in folded(plan, {"logs.api": lines}, as_blocks=False):
        (row,) = (row for row in counts.rows if row.metric == "pairs")
        assert (row.count, row.sum) == (1_150, Decimal(1_050 * largest))
        assert (row.min, row.max) == (Decimal(-largest), Decimal(largest))


@pytest.mark.parametrize("count", [1_000, 1_024, 1_025, 5_000])
def test_distinct_values_are_exact_up_to_the_limit_in_both_folds(count: int) -> None:
    """Case 20: once, 1,000 distinct values were counted as 1,003."""
    plan = compile_plan(StreamSection.model_validate(SECTION))
    lines = [
        json.dumps({"ts": 1_785_578_400, "who": f"u{n % count}" if n else "", "what": "x"})
        for n in range(2 * count)
    ]
    expected = hll("", *(f"u{n}" for n in range(count)))
    definitions = {metric.name: metric.definition for metric in plan.metrics}
    for counts in folded(plan, {"logs.api": lines}, as_blocks=True):
        folded_cells = fold_to_windows(counts.rows, definitions, 0, left_out=set())
        people = [more.parts for cell_id, more in folded_cells.items() if cell_id[0] == "people"]
        assert len(people) == 3
        for parts in people:
            assert combined(parts).hll == expected


ZONES = ("Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu", "-03:30")


@pytest.mark.parametrize("as_blocks", [True, False])
def test_windows_by_the_clock_of_a_place_are_the_same_whichever_way_they_take(
    as_blocks: bool,
) -> None:
    chance = seeded("local windows")
    metrics = [
        {"name": f"z{place}_{measure}", "from": "api", "key": "what", "tz": zone,
         "measure": measure, "windows": sizes, **value}
        for place, zone in enumerate(ZONES)
        for measure, sizes, value in (
            ("count", ["10m", "1h", "6h", "1d", "all"], {}),
            ("sum", ["6h", "1d"], {"value": "n"}),
            ("unique", ["1d"], {"value": "who"}),
        )
    ]  # fmt: skip
    of = {**SECTION, "metrics": metrics}
    plan = compile_plan(StreamSection.model_validate(of))
    definitions = {metric.name: metric.definition for metric in plan.metrics}
    assert all(one.zone is not None for one in definitions.values())
    changes = sorted({at for one in definitions.values() if one.zone for at in one.zone.begins})
    lines = [
        json.dumps({"ts": at, "what": chance.choice("ab"), "who": chance.choice("xyz"), "n": 1})
        for change in chance.sample(changes[1:], 60)
        for at in (change + chance.randrange(-90_000, 90_000) for _ in range(20))
        if at > 0
    ]
    straight, small, large = folded(plan, {"logs.api": lines}, as_blocks=as_blocks)
    ours = cells(straight, definitions)
    assert cells(small, definitions) == ours
    assert cells(large, definitions) == ours
    assert {i.size_s for i in ours} == {600, 3_600, 21_600, 86_400, 0}


def test_days_of_lines_in_local_time_are_local_days() -> None:
    """Windows of a day follow the input's time zone, unless the metric has one of its own."""
    lines = ["2024-07-01 00:30:00", "2024-07-01 23:30:00", "2024-07-02 00:30:00"]
    of: dict[str, Any] = {
        "from": {"t": {"topic": "logs.t", "format": "json", "time": "t", "tz": "Europe/Berlin"}},
        "metrics": [
            {"name": name, "from": "t", "measure": "count", "windows": ["1d"], **tz}
            for name, tz in (("days", {}), ("utc_days", {"tz": "UTC"}), ("far", {"tz": "+05:30"}))
        ],
    }
    plan = compile_plan(StreamSection.model_validate(of))
    definitions = {metric.name: metric.definition for metric in plan.metrics}
    _, small, _ = folded(plan, {"logs.t": [json.dumps({"t": t}) for t in lines]}, as_blocks=False)
    found = {(i.metric, i.start_s): cell for i, cell in cells(small, definitions).items()}
    midnight = 1_719_784_800  # 2024-07-01 00:00 in Berlin
    counted = {place: cell[0] for place, cell in found.items() if isinstance(cell, tuple)}
    assert counted == {
        ("days", midnight): 2,
        ("days", midnight + 86_400): 1,
        ("utc_days", midnight + 7_200 - 86_400): 1,
        ("utc_days", midnight + 7_200): 2,
        ("far", midnight - 12_600): 1,
        ("far", midnight - 12_600 + 86_400): 2,
    }
