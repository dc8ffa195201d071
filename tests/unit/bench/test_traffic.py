"""Generated traffic: its bytes and keys. The bench's direct count equals a count of the text."""

import collections
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.straight import Metric, cells_of, differences, no_key, shipped
from bench.traffic import ADDRESSES, PATHS, STATUSES, Drawn, Traffic, path_of, write_traffic

START = datetime(2025, 8, 1, 23, 30, tzinfo=UTC)
START_S = int(START.timestamp())
LINE = re.compile(
    r'(\S+) - - \[([^]]+)\] "GET ([^ ?"]+)(?:\?\S*)? HTTP/1\.1" (\d{3}) (\d+|-) "-" "[^"]+"'
)
FILE = "access/a.log"


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    written = [write_traffic(tmp_path / n, Traffic(3), 4_000_000, START) for n in ("a", "b")]
    texts = [(tmp_path / name).read_bytes() for name in ("a", "b")]
    assert texts[0] == texts[1]
    lines, size = written[0]
    assert size == len(texts[0]) >= 4_000_000
    assert lines == texts[0].count(b"\n") and texts[0].endswith(b"\n")
    assert Traffic(4).draw(START_S, 10)[1] != Traffic(3).draw(START_S, 10)[1]


def test_it_has_as_many_keys_as_real_traffic() -> None:
    drawn, _ = Traffic(5).draw(START_S, 4_000)
    assert len(drawn) == 37 * 4_000
    assert len(np.unique(drawn.path)) == PATHS
    assert len(np.unique(drawn.status)) == len(STATUSES)
    assert 0.4 * ADDRESSES < len(np.unique(drawn.address)) < 0.5 * ADDRESSES
    assert 0.02 < (drawn.size == -1).mean() < 0.04


def test_lines_of_one_second_are_for_now() -> None:
    lines = Traffic(6).at(START, 9).splitlines()
    assert len(lines) == 9
    assert all(b"[01/Aug/2025:23:30:00 +0000]" in line for line in lines)


def counted(text: bytes, size_s: int) -> dict[tuple[str, int, str], list[Any]]:
    """Count the shipped metrics line by line from the text."""
    cells: dict[tuple[str, int, str], list[Any]] = collections.defaultdict(list)
    for line in text.decode().splitlines():
        found = LINE.fullmatch(line)
        assert found, line
        address, clock, path, status, size = found.groups()
        second = int(datetime.strptime(clock, "%d/%b/%Y:%H:%M:%S %z").timestamp())
        start_s = second // size_s * size_s if size_s else 0
        cells["requests_by_status", start_s, status].append(0)
        cells["top_paths", start_s, path].append(0)
        if size != "-":
            cells["bytes_by_status", start_s, status].append(int(size))
        cells["visitors", start_s, "*"].append(address)
        cells["lines_by_file", start_s, FILE].append(0)
    return cells


def rows_of(name: str, cells: dict[tuple[str, int, str], list[Any]]) -> Iterator[list[Any]]:
    """Yield the cells of a metric as rows in the database's form."""
    for (metric, start_s, key), values in cells.items():
        if metric == name == "bytes_by_status":
            numbers = [Decimal(each) for each in (sum(values), min(values), max(values))]
            yield [start_s, key, len(values), *numbers, numbers[0]]
        elif metric == name:
            value = len(set(values)) if name == "visitors" else len(values)
            yield [start_s, key, len(values), None, None, None, Decimal(value)]


@pytest.mark.parametrize("size_s", [60, 3_600, 0])
def test_the_counter_agrees_with_a_count_of_the_text(size_s: int) -> None:
    traffic = Traffic(7)
    parts = [traffic.draw(START_S + 300 * n, 300) for n in range(9)]
    drawn = Drawn.joined([columns for columns, _ in parts])
    expected = counted(b"".join(text for _, text in parts), size_s)
    for metric in shipped(FILE):
        rows = list(rows_of(metric.name, expected))
        cells = cells_of(metric, drawn, size_s)
        assert list(differences(cells, rows)) == []
        assert int((cells.counts > 0).sum()) == len(rows)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows.pop(), "missing"),
        (lambda rows: rows.append(list(rows[0])), "there twice"),
        (lambda rows: rows.append([0, *rows[0][1:]]), "nothing counts to"),
        (lambda rows: rows.append([rows[0][0], "418", *rows[0][2:]]), "nothing counts to"),
        (lambda rows: rows[0].__setitem__(2, rows[0][2] + 1), "expected"),
        (lambda rows: rows[0].__setitem__(3, rows[0][3] + Decimal("0.000001")), "expected"),
        (lambda rows: rows[0].__setitem__(5, rows[0][5] + 1), "expected"),
        (lambda rows: rows[0].__setitem__(6, rows[0][6] + 1), "shows"),
    ],
)
def test_a_cell_that_is_wrong_is_named(spoil: Any, said: str) -> None:
    drawn, text = Traffic(8).draw(START_S, 120)
    rows = list(rows_of("bytes_by_status", counted(text, 60)))
    spoil(rows)
    metric = next(one for one in shipped(FILE) if one.name == "bytes_by_status")
    (found,) = differences(cells_of(metric, drawn, 60), rows)
    assert "bytes_by_status at " in found and said in found


@pytest.mark.parametrize(
    ("measure", "right", "wrong"),
    [
        ("mean", "2.333333333333", "2.33333333"),
        ("share", "2.333333333333", "2.333333"),
        ("unique", 3, 4),
        ("percentile", 2, 4),
        ("percentile", 2, 1),
    ],
)
def test_estimates_and_quotients_may_be_off_by_what_is_promised(
    measure: Any, right: Any, wrong: Any
) -> None:
    values = np.array([4, 1, 2, -1] if measure != "percentile" else [1, 2, 4, -1] * 20)
    nothing = np.zeros(len(values), np.int64)
    drawn = Drawn(nothing + START_S, nothing, nothing, nothing, values)
    cells = cells_of(Metric("m", measure, ["*"], no_key, lambda one: one.size), drawn, 0)
    count = int((values >= 0).sum())
    numbers = (7, 1, 4) if measure in ("mean", "share") else (None, None, None)
    assert list(differences(cells, [(0, "*", count, *numbers, Decimal(right))])) == []
    assert list(differences(cells, [(0, "*", count, *numbers, Decimal(wrong))])) != []


def test_paths_are_their_own() -> None:
    assert len({path_of(place) for place in range(PATHS)}) == PATHS
