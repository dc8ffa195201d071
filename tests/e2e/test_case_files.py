"""Each log file of the shared cases is dropped into one running mill and gives the expected counts.

The files come from public bug reports of other log tools. `docs/traps.md` lists similar cases. The
same mill counts all cases at the same time, so the test fails if one case stops the others.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.mill import TempMill, temp_mill
from tests.e2e.reading import PARTITIONS, Reading
from tests.harness.logs import shared_case
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

COUNTED_S = 120.0


@dataclass(frozen=True)
class Case:
    """One input of the mill: its folder, its configuration, and the expected values of its metrics.

    `metrics` maps a metric's definition, without its name, to the expected totals by key. `hours`
    maps hours in UTC ("07-01 09") to their number of lines. `refused` maps the reasons in the table
    `unparsed` to the number of lines.
    """

    folder: str
    read: str
    metrics: dict[str, dict[str, str]]
    files: tuple[str, ...] = ("a.log",)
    collect: str = ""
    refused: dict[str, int] = field(default_factory=dict)
    hours: dict[str, int] | None = None


COUNT = "measure: count"
JSON = "format: json, time: t"
STATUS = "key: status, measure: count"

CASES = {
    "c01": Case(
        "01-json-keys-by-case",
        JSON + ", columns: {l1: {path: Level}, l2: {path: level}}",
        {"key: [l1, l2], measure: count": {"A|b": "1"}},
        ("a.json",),
    ),
    "c05": Case("05-nginx-main", "format: combined", {STATUS: {"200": "1", "404": "1"}}),
    "c06": Case("06-ingress-nginx", "format: combined", {STATUS: {"200": "1"}}),
    "c06i": Case("06-ingress-nginx", "format: ingress_nginx", {STATUS: {"200": "1"}}),
    "c07": Case(
        "07-vhost-combined",
        "format: combined",
        {COUNT: {}},
        refused={"format:combined, looks like vhost_combined": 3},
    ),
    "c07v": Case(
        "07-vhost-combined",
        "format: vhost_combined",
        {
            "measure: unique, value: remote_addr": {"*": "3"},
            "key: user, measure: count": {"(null)": "2", "ann": "1"},
        },
    ),
    "c08": Case(
        "08-forwarded-list-first",
        "format: combined",
        {"key: remote_addr, measure: count": {"203.0.113.5": "1"}},
        refused={"format:combined, looks like forwarded_combined": 2},
    ),
    "c08f": Case(
        "08-forwarded-list-first",
        "format: forwarded_combined",
        {"key: remote_addr, measure: count": {"203.0.113.5": "3"}},
    ),
    "c12": Case(
        "12-rlike-backslash",
        "format: combined",
        {r"key: path, measure: count, where: path rlike '^/v\d+/'": {"/v1/a": "1", "/v2/b": "1"}},
    ),
    "c14": Case(
        "14-docker-json-in-json",
        "format: json, time: time, columns: {level: {path: log.level}, whole: {path: log}}",
        {"key: level, measure: count": {"error": "3"}},
    ),
    "c14b": Case(
        "14-docker-json-in-json",
        "format: json, time: time, columns: {level: {path: log.level}, whole: {path: log}}",
        {
            "key: level, measure: count": {"error": "3"},
            "measure: unique, value: whole": {"*": "1"},
        },
    ),
    "c15a": Case(
        "15-csv-header-and-quotes",
        "format: csv, header: 'id,when,who,note', time: when",
        {"key: who, measure: count": {"ann": "1", "bob": "1", "cy": "1", "di": "1"}},
        ("a-a.csv",),
        r"multiline: {start: '^\W*(\d+|id),'}",
    ),
    "c15b": Case(
        "15-csv-header-and-quotes",
        "format: csv, columns: {state: {position: 3}}",
        {"key: state, measure: count": {"Open": "4", "Closed": "1"}},
        ("b-a.csv",),
    ),
    "c16": Case(
        "16-w3c-header-lines",
        "format: w3c, header: [date time c-ip cs-method cs-uri-stem sc-status,"
        " date time cs-method c-ip cs-uri-stem sc-status]",
        {"key: c_ip, measure: count": {"192.0.2.1": "2"}},
    ),
    "c17": Case(
        "17-cri-partial-lines",
        "format: cri",
        {"key: message, measure: count": {"part one and two": "1", "err": "1", "whole": "1"}},
        collect="multiline: cri",
    ),
    "c19": Case(
        "19-no-time-of-its-own",
        "format: json, columns: {level: string},"
        " time: ['@timestamp', timestamp, time, ts, eventTime, datetime, date]",
        {"key: level, measure: count": {"info": "5", "30": "1"}},
        ("a.json",),
        refused={"time": 2},
    ),
    "c21": Case(
        "21-small-means",
        "format: json, columns: {v: double}",
        {"measure: mean, value: v": {"*": "0.000001466666666667"}},
        ("a.json",),
    ),
    "c26": Case(
        "26-zip-tar-utf16",
        "format: combined",
        {"key: remote_addr, measure: count": {"192.0.2.7": "5"}},
    ),
    "c27": Case(
        "27-nul-before-a-line",
        "format: combined",
        {"key: remote_addr, measure: count": {"192.0.2.7": "3"}},
        # The last line consists only of NULs, so it does not parse.
        refused={"format:combined": 1},
    ),
    "c28": Case(
        "28-cef",
        "format: cef, columns: {sev: severity}",
        {"key: severity, measure: count": {"10": "1", "7": "1"}},
    ),
    "c29": Case(
        "29-logfmt-ansi",
        "format: logfmt, time: ts, columns: {level: string}",
        {
            "key: level, measure: count": {
                "info": "2", "warn": "1", "err": "1", "": "1", "(null)": "2",
            },
        },
        collect="strip_ansi: true",
    ),
    "c30": Case(
        "30-whole-numbers-of-17-digits",
        JSON + ", columns: {ns: bigint}",
        {
            "measure: max, value: ns": {"*": "1725724716113000125"},
            "measure: sum, value: ns": {"*": "3451449432226000248"},
        },
        ("a.json",),
    ),
    "c32g": Case(
        "32-line-ends-that-never-come",
        "format: json, columns: {a: string}",
        {"key: a, measure: count": {"1": "1", "2": "1", "3": "1"}},
        ("gelf.log",),
        "line_end: nul",
    ),
    "c32t": Case(
        "32-line-ends-that-never-come",
        "format: json",
        {COUNT: {"*": "1"}},
        ("cloudtrail.json",),
        "flush_after: 5s",
    ),
    "c18": Case(
        "18-syslog-variants",
        "format: syslog",
        {
            "key: host, measure: count": {
                **{f"host{number}": "1" for number in (1, 2, 3, 4, 6, 7, 10, 11)},
                "fe80::1": "1",
                "(null)": "3",
            },
            "key: program, measure: count, where: message rlike '^last message'": {"(null)": "1"},
        },
    ),
    "c33a": Case(
        "33-json-odd-lines",
        JSON + ", columns: {req: string}",
        {
            "key: req, measure: count": {
                **dict.fromkeys(("GET /a", 'GET /"b', "caf�"), "1"),
                **dict.fromkeys(("tab\there", "dots"), "1"),
            },
        },
        ("a-a.json",),
        refused={"format:json": 1},
    ),
    "c33b": Case(
        "33-json-odd-lines",
        JSON + ", columns: {k: string}",
        {"key: k, measure: count": {"a": "1", "b": "1"}},
        ("b-a.json",),
    ),
    "c09": Case(
        "09-zone-abbreviations",
        "format: csv, time: '1', tz: Europe/London, columns: {k: {position: 2}}",
        {COUNT: {"*": "8"}},
        ("a.csv",),
        refused={f"time:zone {name}": 1 for name in ("NST", "ECT", "SST", "ART")},
        hours={"07-01 09": 1, "01-01 10": 1, "07-01 07": 1, "07-01 00": 1},
    ),
    "c09d": Case(
        "09-zone-abbreviations",
        "format: postgresql_csv",
        {"key: error_severity, measure: count": {"ERROR": "1", "LOG": "1"}},
        ("de.csv",),
        r"multiline: {start: '^\d{4}-'}",
        hours={"07-01 08": 1, "01-02 09": 1},
    ),
    "c10n": Case(
        "10-time-spellings",
        "format: nginx_error",
        {"key: level, measure: count": {"error": "1", "warn": "1"}},
        ("nginx-error.log",),
        hours={"11-28 10": 2},
    ),
    "c10a": Case(
        "10-time-spellings",
        "format: apache_error",
        {COUNT: {"*": "1"}},
        ("apache-error.log",),
        hours={"11-28 10": 1},
    ),
    "c10i": Case(
        "10-time-spellings", "format: combined", {COUNT: {"*": "1"}}, ("access-iso.log",),
        hours={"09-07 13": 1},
    ),
    "c10s": Case(
        "10-time-spellings", "format: syslog", {COUNT: {"*": "2"}}, ("auth.log",),
        hours={"11-28 10": 2},
    ),
    "c10c": Case(
        "10-time-spellings", "format: w3c, header: date time x-edge-location sc-bytes",
        {COUNT: {"*": "2"}}, ("cloudfront.log",), hours={"09-07 00": 2},
    ),
    "c10h": Case(
        "10-time-spellings", "format: haproxy_http", {COUNT: {"*": "1"}}, ("haproxy.log",),
        hours={"11-28 12": 1},
    ),
    "c11": Case(
        "11-epoch-nanoseconds",
        JSON,
        {COUNT: {"*": "8"}},
        ("a.json",),
        hours={"09-07 15": 8},
    ),
    "c20": Case(
        "20-unique-is-estimated",
        JSON + ", columns: {u: string}",
        {COUNT: {"*": "20000"}},
        ("a.json",),
    ),
    "c25": Case("25-folder-behind-symlink", "format: raw", {COUNT: {"*": "1"}}),
    "c22": Case(
        "22-local-days",
        JSON + ", tz: Europe/Berlin, columns: {k: string}",
        {COUNT: {"*": "3"}},
        ("a.json",),
        hours={"06-30 22": 1, "07-01 21": 1, "07-01 22": 1},
    ),
}  # fmt: skip

ESTIMATED = "unique_20000"
DAYS = "local_days"
FURTHER = f"""\
    - {{name: {ESTIMATED}, from: c20, measure: unique, value: u, windows: [all]}}
    - {{name: {DAYS}, from: c22, measure: count, windows: [1d]}}
"""

WRITTEN = {
    "w02": ("02-preallocated-in-place", "writer.py", ("8192", "20", "0.2"), 20),
    "w03": ("03-preallocated-beyond-max-line", "writer.py", ("4194304", "20", "0.2"), 20),
    "w04": ("04-open-line-rewritten-shorter", "writer.py", (), 4),
    "w24": ("24-trimmed-log", "do.sh", (), 11),
}
"""Files that a program writes: the case, the program, its other arguments, and the lines."""


def config() -> str:
    """Return a configuration with one input, one topic and the metrics for each case."""
    topics, collect, read, metrics = [], [], [], []
    for name, case in CASES.items():
        more = f", {case.collect}" if case.collect else ""
        topics.append(name)
        collect.append(f'    - {{paths: ["watched/{name}/**"], topic: cases.{name}{more}}}')
        read.append(f"    {name}: {{topic: cases.{name}, {case.read}}}")
        for place, rest in enumerate(case.metrics):
            metrics.append(
                f"    - {{name: {name}_{place}, from: {name}, {rest}, windows: [1h, all]}}"
            )
    for name in WRITTEN:
        topics.append(name)
        collect.append(f'    - {{paths: ["watched/{name}/**"], topic: cases.{name}}}')
        read.append(f"    {name}: {{topic: cases.{name}, format: raw}}")
    made = [f"  - {{name: cases.{name}, partitions: {PARTITIONS}}}" for name in topics]
    return "\n".join(
        [
            "cluster: {brokers: 1}", "topics:", *made, "collector:", "  inputs:", *collect,
            "stream:", "  from:", *read, "  metrics:", *metrics,
        ]
    ) + f"\n{FURTHER}monitor: {{listen: 127.0.0.1:8090}}\n"  # fmt: skip


def drop_all(mill: TempMill) -> None:
    """Copy the files of each case into its watched folder. Then run the programs of the cases in
    `WRITTEN` at the same time."""
    watched = mill.home.folder / "watched"
    for name, case in CASES.items():
        (watched / name).mkdir()
        if name == "c20":
            made = "".join(f'{{"t":1725724716,"u":"u{number}"}}\n' for number in range(1, 20001))
            (watched / name / "a.json").write_text(made)
            continue
        if name == "c25":
            release = mill.home.folder / "release-1"
            release.mkdir()
            (release / "app.log").write_text("a\n")
            (watched / name / "current").symlink_to(release)
            continue
        for file in case.files:
            shutil.copyfile(shared_case(case.folder) / file, watched / name / file)
    with ThreadPoolExecutor(len(WRITTEN)) as pool:
        list(pool.map(lambda name: write(mill.home.folder, name), WRITTEN))


def write(home: Path, name: str) -> None:
    """Run the program of a case, which writes into the case's watched folder."""
    folder, program, arguments, _ = WRITTEN[name]
    target = home / "watched" / name
    target.mkdir()
    scratch = home / "scratch" / name
    (scratch / "watched").mkdir(parents=True)
    (scratch / "watched" / "text").symlink_to(target)
    command = ["sh"] if program == "do.sh" else [sys.executable]
    path = shared_case(folder) / program
    subprocess.run([*command, path, target / "app.log", *arguments], cwd=scratch, check=True)


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reading]:
    shared_case("05-nginx-main")
    with temp_mill(tmp_path_factory.mktemp("cases") / "mill") as mill:
        mill.write_config(config())
        mill.up()
        drop_all(mill)
        yield Reading(mill)


def refusals(reading: Reading, topic: str) -> dict[str, int]:
    """Return the number of lines of a topic that were not parsed, by reason."""
    rows = reading.mysql(
        "SELECT reason, SUM(count) FROM unparsed WHERE topic = %s GROUP BY 1", topic
    )
    return {reason: int(count) for reason, count in rows}


def hours(reading: Reading, metric: str) -> dict[str, int]:
    """Return the number of lines of each hour, summed over all keys."""
    rows = reading.mysql(
        "SELECT DATE_FORMAT(start_at, '%%m-%%d %%H'), SUM(value) FROM windows "
        "WHERE metric = %s AND size_s = 3600 GROUP BY 1",
        metric,
    )
    return {hour: int(count) for hour, count in rows}


@pytest.mark.parametrize("name", CASES)
def test_a_case_gives_its_numbers(reading: Reading, name: str) -> None:
    case = CASES[name]
    expected = {f"{name}_{place}": values for place, values in enumerate(case.metrics.values())}

    def shown() -> dict[str, dict[str, str]]:
        return {metric: reading.redis(f"mill:{metric}:all") for metric in expected}

    wait_until(lambda: reading.is_counted(f"cases.{name}"), COUNTED_S, "all lines are counted")
    assert shown() == expected
    assert refusals(reading, f"cases.{name}") == case.refused
    if case.hours is not None:
        assert hours(reading, f"{name}_0") == case.hours


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_that_changes_in_place_gives_each_line_once(reading: Reading, name: str) -> None:
    *_, lines = WRITTEN[name]
    topic = f"cases.{name}"

    def values() -> list[bytes]:
        found: list[bytes] = []
        reading.records(topic, lambda _, value: found.append(value))
        return found

    wait_until(lambda: len(values()) >= lines, COUNTED_S, f"{lines} lines of {name}")
    found = values()
    assert len(found) == len(set(found)) == lines
    assert not any(b"\0" in value for value in found)
    status = reading.mill.run("status").out
    assert "may be lost" not in status


def test_many_distinct_values_are_an_estimate_that_says_so(reading: Reading) -> None:
    def row() -> tuple[int, int]:
        query = "SELECT value, estimate FROM windows WHERE metric = %s AND size_s = 0"
        [(value, estimate)] = reading.mysql(query, ESTIMATED)
        return int(value), estimate

    wait_until(lambda: reading.is_counted("cases.c20"), COUNTED_S, "all lines are counted")
    value, estimate = row()
    assert estimate == 1
    assert value == pytest.approx(20_000, rel=0.033)
    assert "above that an estimate, within 3.3%" in reading.mill.run("show", ESTIMATED).err


def test_days_begin_in_the_zone_of_the_input(reading: Reading) -> None:
    wait_until(lambda: reading.is_counted("cases.c22"), COUNTED_S, "all lines are counted")
    query = "SELECT CAST(start_at AS CHAR), value FROM windows WHERE metric = %s AND size_s = 86400"
    days = {start[:16]: int(value) for start, value in reading.mysql(query, DAYS)}
    assert days == {"2024-06-30 22:00": 2, "2024-07-01 22:00": 1}
