"""Tasks run in parallel in one executor, and no task's result depends on another task's lines."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import datasketches
import pytest

from sinks import distinct
from sinks.estimates import UNIQUE_ERROR, UNIQUE_EXACT_MAX
from sinks.values import Aggregate, combined
from stream.config.settings import StreamSection
from stream.fold.compile import compile_plan
from stream.fold.counts import BatchCounts
from stream.fold.folding import Folding
from tests.interop.stream_spark import frame_for_tasks, keys, one_input, reasons, spark

pytestmark = pytest.mark.live

# Enough lines that both tasks run at the same time for most of their duration.
LINES_OF_TASK = 15_000
TASKS = 2
KEYS = 50
TIME = "2026-08-01T10:00:00Z"
# Further pairs of logfmt. The parser sets the variables of its lambdas once for each pair.
MORE_PAIRS = " ".join(f"p{place}={place}" for place in range(20))
COLUMNS = {"a": "a string", "b": "b string"}
Form = tuple[Mapping[str, Any], Callable[[str], str]]
FORMS: Mapping[str, Form] = {
    "json": (
        {"format": "json", "time": "ts", "columns": {**COLUMNS, "b": "in.b string"}},
        lambda key: f'{{"ts":"{TIME}","a":"{key}","in":{{"b":"{key}"}}}}',
    ),
    "json_quoted": (
        {"format": "json", "time": "ts", "columns": COLUMNS},
        lambda key: f'{{"a":"{key}","x":"{{{{","ts":"{TIME}","b":"{key}"}}',
    ),
    "logfmt": (
        {"format": "logfmt", "time": "ts", "columns": COLUMNS},
        lambda key: f'{MORE_PAIRS} ts={TIME} a={key} x="some \\" words" b="{key}"',
    ),
    "csv": (
        {"format": "csv", "time": "1", "columns": {"a": "2 string", "b": "4 string"}},
        lambda key: f'{TIME},{key},"x, ""y""","{key}"',
    ),
    "regex": (
        {
            "format": "regex",
            "pattern": r"^(?<when>\S+) (?<a>\S+) \[(?<b>[^\]]*)\]$",
            "time": "when",
            "columns": COLUMNS,
        },
        lambda key: f"{TIME} {key} [{key}]",
    ),
    "syslog": (
        {"format": "syslog"},
        lambda key: f"<134>1 {TIME} {key} {key} 17 - - said {key}",
    ),
    "combined": (
        {"format": "combined"},
        lambda key: f'{key} - - [01/Aug/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "{key}"',
    ),
    "combined_escaped": (
        {"format": "combined"},
        lambda key: (
            f'{key} - - [01/Aug/2026:10:00:00 +0000] "GET /\\"x HTTP/1.1" 200 5 "-" "{key}"'
        ),
    ),
}
PAIRS: Mapping[str, list[str]] = {
    "syslog": ["host", "program"],
    "combined": ["remote_addr", "user_agent"],
    "combined_escaped": ["remote_addr", "user_agent"],
}


@pytest.mark.parametrize("form", FORMS)
def test_tasks_beside_each_other_judge_their_own_lines_only(form: str) -> None:
    section, line = FORMS[form]
    metric = {"name": "pairs", "key": PAIRS.get(form, ["a", "b"]), "windows": ["all"]}
    plan = compile_plan(StreamSection.model_validate(one_input(dict(section), metric)))
    of_task = [[f"10.0.{task}.{place}" for place in range(KEYS)] for task in range(TASKS)]
    lines = [line(some[n % KEYS]) for some in of_task for n in range(LINES_OF_TASK)]
    # Spark must run as many tasks at once as there are frames.
    assert spark().sparkContext.defaultParallelism == TASKS
    counts = Folding(plan, as_blocks=False).fold_in_tasks(frame_for_tasks(lines, TASKS))
    assert reasons(counts) == {}
    assert keys(counts, "pairs") == {
        (key, key): LINES_OF_TASK // KEYS for some in of_task for key in some
    }


@dataclass(frozen=True, slots=True)
class Hit:
    """One access line. Lines of different tasks never have the same address, so a mix-up shows."""

    octets: tuple[int, int, int, int]
    path: str
    status: int
    size: int
    minute: int

    @property
    def address(self) -> str:
        return ".".join(map(str, self.octets))

    @property
    def line(self) -> str:
        return (
            f"{self.address} - - [01/Aug/2026:10:{self.minute:02}:00 +0000] "
            f'"GET {self.path} HTTP/1.1" {self.status} {self.size} "-" "agent"'
        )


STATUSES = (200, 304, 404, 500)
SECTIONS = ("shop/cart", "shop/items", "about", "cart/10.5")


def hits(task: int) -> Iterator[Hit]:
    for n in range(LINES_OF_TASK):
        octets = (10, task, n % 199, n % 251)
        path = f"/{SECTIONS[n % len(SECTIONS)]}/{n % 97}"
        yield Hit(octets, path, STATUSES[n % 7 % len(STATUSES)], n % 1_009, n % 60)


def digits(text: str) -> int:
    return sum(map(int, re.findall("[0-9]+", text)))


# Functions whose expression keeps state, or whose code calls the expression. Each has an SQL
# expression, and a Python function that computes the same value of a line.
EXPRESSIONS: Mapping[str, tuple[str, Callable[[Hit], int]]] = {
    "exists": (
        "if(exists(split(path, '/'), x -> x = 'cart'), 1, 0)",
        lambda hit: int("cart" in hit.path.split("/")),
    ),
    "aggregate": (
        "aggregate(split(remote_addr, '[.]'), 0L, (a, x) -> a + int(x))",
        lambda hit: sum(hit.octets),
    ),
    "filter": (
        "size(filter(split(path, '/'), x -> length(x) > 3))",
        lambda hit: sum(len(part) > 3 for part in hit.path.split("/")),
    ),
    "transform": (
        "element_at(transform(split(remote_addr, '[.]'), (x, i) -> int(x) * (i + 1)), 4)",
        lambda hit: 4 * hit.octets[3],
    ),
    "zip_with": (
        "zip_with(split(path, '/'), split(remote_addr, '[.]'), (x, y) -> length(concat(x, y)))[1]",
        lambda hit: len(hit.path.split("/")[1]) + len(str(hit.octets[1])),
    ),
    "array_sort": (
        "int(array_sort(split(remote_addr, '[.]'), (x, y) -> int(x) - int(y))[3])",
        lambda hit: max(hit.octets),
    ),
    "transform_values": (
        "transform_values(map(path, bytes), (k, v) -> v + length(k))[path]",
        lambda hit: hit.size + len(hit.path),
    ),
    "str_to_map": (
        "int(str_to_map(concat('b=', bytes, '&p=', path), '&', '=')['b'])",
        lambda hit: hit.size,
    ),
    "from_json": (
        """from_json(concat('{"k":', bytes, '}'), 'map<string,bigint>')['k']""",
        lambda hit: hit.size,
    ),
    "to_json": (
        "length(to_json(named_struct('a', remote_addr, 'b', bytes)))",
        lambda hit: len(f'{{"a":"{hit.address}","b":{hit.size}}}'),
    ),
    "get_json_object": (
        """int(get_json_object(concat('{"k":', bytes, '}'), '$.k'))""",
        lambda hit: hit.size,
    ),
    "from_csv": (
        "length(to_csv(from_csv(concat(bytes, ',x'), 'k bigint, x string')))",
        lambda hit: len(f"{hit.size},x"),
    ),
    "to_csv": (
        "length(to_csv(named_struct('a', remote_addr, 'b', bytes)))",
        lambda hit: len(f"{hit.address},{hit.size}"),
    ),
    "regexp_replace": (
        "length(regexp_replace(path, concat(status, '|[0-9]+'), '#'))",
        lambda hit: len(re.sub("[0-9]+", "#", hit.path)),
    ),
    "regexp_extract": (
        "int(regexp_extract(remote_addr, '([0-9]+)$', 1))",
        lambda hit: hit.octets[3],
    ),
    "regexp_extract_all": (
        "aggregate(regexp_extract_all(path, '([0-9]+)', 1), 0, (a, x) -> a + int(x))",
        lambda hit: digits(hit.path),
    ),
    "rlike": (
        "if(path rlike concat('/', bytes % 97, '$'), 1, 0)",
        lambda hit: int(hit.path.endswith(f"/{hit.size % 97}")),
    ),
    "like": ("if(path like '%cart/_', 1, 0)", lambda hit: int(hit.path[:-1].endswith("cart/"))),
    "format_string": (
        "length(format_string('%s-%05d-%x', remote_addr, bytes, status))",
        lambda hit: len(f"{hit.address}-{hit.size:05}-{hit.status:x}"),
    ),
    "format_number": ("length(format_number(bytes, 2))", lambda hit: len(f"{hit.size:,.2f}")),
    "to_number": ("int(to_number(string(bytes), '99999'))", lambda hit: hit.size),
    "date_format": (
        "int(date_format(from_utc_timestamp(time, 'Asia/Kolkata'), 'HHmm'))",
        lambda hit: (15 * 60 + 30 + hit.minute) // 60 * 100 + (30 + hit.minute) % 60,
    ),
    "to_timestamp": (
        "minute(to_timestamp(concat('2026-08-01 10:', minute(time)), 'yyyy-MM-dd HH:m'))",
        lambda hit: hit.minute,
    ),
    "parse_url": (
        "length(parse_url(concat('http://h', path, '?a=', bytes), 'QUERY', 'a'))",
        lambda hit: len(str(hit.size)),
    ),
    "sha2": (
        "int(conv(substr(sha2(path, 256), 1, 4), 16, 10))",
        lambda hit: int(hashlib.sha256(hit.path.encode()).hexdigest()[:4], 16),
    ),
    "translate": (
        "length(translate(path, concat('/', bytes % 10), '-'))",
        lambda hit: len(hit.path) - hit.path.count(str(hit.size % 10)),
    ),
    "in_set": (
        "if(path in ('/about/2', '/shop/cart/4', '/x', '/y', '/z', '/0', '/1', '/2', '/3', '/4', "
        "'/5'), 1, 0)",
        lambda hit: int(hit.path in ("/about/2", "/shop/cart/4")),
    ),
}


def counted(metrics: list[dict[str, Any]]) -> BatchCounts:
    """Return the counts of two parallel tasks, each of which folds its own hits."""
    config = one_input({"format": "combined"}, *metrics)
    plan = compile_plan(StreamSection.model_validate(config))
    lines = [hit.line for task in range(TASKS) for hit in hits(task)]
    assert spark().sparkContext.defaultParallelism == TASKS
    counts = Folding(plan, as_blocks=False).fold_in_tasks(frame_for_tasks(lines, TASKS))
    assert reasons(counts) == {}
    return counts


def cells_of(counts: BatchCounts, metric: str) -> dict[str | None, Aggregate]:
    """Return for each key the aggregate over all tasks."""
    parts: dict[str | None, list[Aggregate]] = defaultdict(list)
    for row in counts.rows:
        if row.metric == metric:
            one = Aggregate(row.count, row.sum, row.min, row.max, row.hll, row.kll)
            parts[row.key[0]].append(one)
    return {key: combined(some) for key, some in parts.items()}


# More expressions in one plan would generate more code than the JVM compiles.
AT_ONCE = 7
GROUPS = [list(EXPRESSIONS)[at : at + AT_ONCE] for at in range(0, len(EXPRESSIONS), AT_ONCE)]


@pytest.mark.parametrize("names", GROUPS, ids="-".join)
def test_what_expressions_keep_in_themselves_is_one_tasks(names: list[str]) -> None:
    counts = counted(
        [
            {"name": name, "key": "status", "measure": "sum", "value": EXPRESSIONS[name][0]}
            for name in names
        ]
        + [{"name": "where", "key": "status", "where": f"({EXPRESSIONS[names[0]][0]}) % 2 = 1"}]
    )
    lines: Counter[str] = Counter()
    odd: Counter[str] = Counter()
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for task in range(TASKS):
        for hit in hits(task):
            status = str(hit.status)
            lines[status] += 1
            for name in names:
                sums[name][status] += EXPRESSIONS[name][1](hit)
            odd[status] += EXPRESSIONS[names[0]][1](hit) % 2
    found = {
        name: {key: (row.count, row.sum) for key, row in cells_of(counts, name).items()}
        for name in names
    }
    expected = {
        name: {key: (lines[key], Decimal(sums[name][key])) for key in lines} for name in names
    }
    assert {n: (found[n], expected[n]) for n in names if found[n] != expected[n]} == {}
    assert keys(counts, "where") == dict(+odd)


def test_what_measures_gather_is_one_tasks() -> None:
    value = "aggregate(split(remote_addr, '[.]'), 0L, (a, x) -> a + int(x))"
    measures = ("count", "sum", "min", "max", "mean", "percentile")
    counts = counted(
        [
            {"name": f"of_{name}", "key": "status", "measure": name}
            | ({} if name == "count" else {"value": value})
            for name in measures
        ]
        + [
            {"name": "of_share", "key": "status", "measure": "share", "value": f"{value} > 200"},
            {"name": "of_unique", "key": "status", "measure": "unique", "value": "remote_addr"},
        ]
    )
    sums: dict[str, list[int]] = defaultdict(list)
    addresses: dict[str, set[str]] = defaultdict(set)
    for task in range(TASKS):
        for hit in hits(task):
            sums[str(hit.status)].append(sum(hit.octets))
            addresses[str(hit.status)].add(hit.address)
    for name in (*measures, "share", "unique"):
        assert keys(counts, f"of_{name}") == {key: len(values) for key, values in sums.items()}, (
            name
        )
    for key, values in sums.items():
        above = sum(value > 200 for value in values)
        assert cells_of(counts, "of_share")[key].sum == above
        for name in ("sum", "mean"):
            assert cells_of(counts, f"of_{name}")[key].sum == sum(values)
        assert cells_of(counts, "of_min")[key].min == min(values)
        assert cells_of(counts, "of_max")[key].max == max(values)
        ranked = datasketches.kll_doubles_sketch.deserialize(
            cells_of(counts, "of_percentile")[key].kll
        )
        assert (ranked.get_min_value(), ranked.get_max_value()) == (min(values), max(values))
        assert ranked.n == len(values)
        error = ranked.normalized_rank_error(False)
        middle = sorted(values)[len(values) // 2]
        assert abs(ranked.get_rank(middle) - 0.5) < 2 * error + values.count(middle) / len(values)
        seen = cells_of(counts, "of_unique")[key].hll
        assert seen is not None
        number = len(addresses[key])
        assert distinct.is_estimate(seen) == (number > UNIQUE_EXACT_MAX)
        # An estimate may be off by three standard deviations. An exact count may not be off at all.
        error = 1.5 * UNIQUE_ERROR if number > UNIQUE_EXACT_MAX else 0
        assert abs(distinct.number_of(seen) - number) <= error * number
