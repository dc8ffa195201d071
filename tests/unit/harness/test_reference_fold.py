"""The reference fold, with which tests compare the stream's fold, on parsed lines written by
hand."""

from decimal import Decimal
from typing import Any

from sinks.rows import UnparsedSample
from stream.config.settings import StreamSection
from stream.fold.compile import COUNTED, FAULTY, FoldPlan, compile_plan
from stream.fold.counts import NO_FILE, PartitionCount
from stream.fold.groupings import SAMPLES
from tests.harness.reference_fold import fold_lines

PLAN = compile_plan(
    StreamSection.model_validate(
        {
            "from": {
                "t": {
                    "topic": "logs.t",
                    "format": "json",
                    "time": "ts",
                    "columns": {"who": "who string", "n": "n int", "ms": "ms double"},
                },
                "raw": {"topic": "logs.raw", "format": "raw"},
            },
            "defaults": {"windows": ["1m", "all"]},
            "metrics": [
                {"name": "by_who", "from": "t", "key": "who", "measure": "count"},
                {"name": "total", "from": "t", "measure": "sum", "value": "n"},
                {"name": "files", "from": ["t", "raw"], "key": "file", "measure": "count"},
                {"name": "people", "from": "t", "measure": "unique", "value": "who"},
                {"name": "spread", "from": "t", "measure": "percentile", "value": "ms"},
            ],
        }
    )
)


def judged(
    plan: FoldPlan, offset: int, *, topic: str = "logs.t", partition: int = 0, **given: Any
) -> list[Any]:
    """Return one parsed line as a row. `given` has columns of the line, and for a metric its
    verdict, value and keys."""
    values: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset}
    values |= {"file": "t/t.log", "reason": None, "seconds": 100, "sample": None}
    values |= {name: value for name, value in given.items() if name in values}
    for metric, reading in zip(plan.metrics, plan.readings, strict=True):
        verdict, value, *keys = given.get(metric.name, (None, None))
        values |= dict(zip(reading.keys, keys, strict=False))
        if reading.verdict is not None:
            values[reading.verdict] = verdict
        if reading.value is not None:
            values[reading.value] = value
    return [values.get(name) for name in plan.columns]


def test_each_measure_takes_what_its_verdict_says() -> None:
    lines = [
        judged(
            PLAN,
            10,
            seconds=61,
            by_who=(None, None, "a"),
            total=(COUNTED, 5),
            people=(COUNTED, "a"),
            spread=(COUNTED, Decimal("0.1")),
        ),
        judged(
            PLAN,
            11,
            seconds=119,
            by_who=(None, None, "a"),
            total=(COUNTED, -7),
            people=(COUNTED, "b"),
            spread=(COUNTED, Decimal("0.2")),
        ),
        judged(PLAN, 13, seconds=120, by_who=(None, None, None), total=(None, 9)),
    ]
    counts = fold_lines(lines, PLAN)
    found = {(r.metric, r.slice_start_s, r.key): r for r in counts.rows}
    assert {i: r.count for i, r in found.items()} == {
        ("by_who", 60, ("a",)): 2,
        ("by_who", 120, (None,)): 1,
        ("total", 60, ()): 2,
        ("files", 60, (None,)): 2,
        ("files", 120, (None,)): 1,
        ("people", 60, ()): 2,
        ("spread", 60, ()): 2,
    }
    total = found["total", 60, ()]
    assert (total.sum, total.min, total.max) == (Decimal(-2), Decimal(-7), Decimal(5))
    assert found["spread", 60, ()].sum == Decimal("0.3")
    assert found["spread", 60, ()].kll is not None
    assert found["people", 60, ()].hll is not None
    assert counts.partitions == [PartitionCount("logs.t", 0, 3, 10, 13, 120)]
    assert counts.unparsed == []


def test_what_is_not_counted_is_told_with_its_reason() -> None:
    lines = [
        judged(PLAN, 1, reason="format:json", seconds=None, sample=bytearray(b"{")),
        judged(PLAN, 2, total=(FAULTY, None), sample=bytearray(b"x")),
        judged(PLAN, 1, partition=2, reason="time", seconds=None, file=None, sample=bytearray()),
    ]
    counts = fold_lines(lines, PLAN)
    assert [(u.file, u.reason, u.count, u.samples) for u in counts.unparsed] == [
        (NO_FILE, "time", 1, (UnparsedSample(2, 1, b""),)),
        ("t/t.log", "expression_null:total", 1, (UnparsedSample(0, 2, b"x"),)),
        ("t/t.log", "format:json", 1, (UnparsedSample(0, 1, b"{"),)),
    ]
    assert [p.latest_s for p in counts.partitions] == [100, None]


def test_samples_are_bounded_and_the_first_ones() -> None:
    lines = [
        judged(PLAN, offset, reason="time", seconds=None, sample=bytearray(b"x"))
        for offset in range(SAMPLES + 5)
    ]
    (row,) = fold_lines(lines, PLAN).unparsed
    assert row.count == SAMPLES + 5
    assert [sample.offset for sample in row.samples] == list(range(SAMPLES))


def test_sums_have_more_digits_than_pythons_context() -> None:
    large, small = Decimal("9999999999999999"), Decimal("0.000000000001")
    lines = [
        judged(PLAN, at, spread=(COUNTED, value))
        for at, value in enumerate([large] * 100 + [small])
    ]
    (row,) = (row for row in fold_lines(lines, PLAN).rows if row.metric == "spread")
    assert row.sum == Decimal("999999999999999900.000000000001")
