"""The proposed types and times of columns, and the proposed metrics."""

import json
import random
from pathlib import Path

import pytest

from appliance.config.load import load_text
from appliance.detect.columns import FieldsSeen, declarations, leaves, times_of
from appliance.detect.detect import detect
from appliance.detect.detection import Detection
from appliance.detect.proposing import name_of
from appliance.detect.seen import SeenColumn
from appliance.detect.yaml_text import to_paste
from stream.config.format_files import load_formats
from stream.config.input_section import ParsedInputSection
from tests.harness.log_files import CSV_HEADER, made_lines

FORMATS = load_formats()


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["1", "-7", "999999"], "int"),
        (["1", "1000000"], "bigint"),
        (["9223372036854775807"], "bigint"),
        # No SQL type holds whole numbers above 64 bits exactly, so the column is a string.
        (["1", "9223372036854775808"], "string"),
        (["1", "1.5"], "double"),
        (["1e5", ".5", "3."], "double"),
        (["1", "1.5", "x"], "string"),
        (["007", "8"], "string"),
        (["true", "false"], "boolean"),
        (["true", "1"], "string"),
        (["True"], "string"),
        (["2025-03-03T10:00:00Z", "2025-03-03 10:00:00,123"], "timestamp"),
        (["2025-03-03T10:00:00Z", "yesterday"], "string"),
        (["1", "", "-", "2"], "int"),
        (["", "-"], "string"),
        (["1.5.2"], "string"),
        (["0x1f"], "string"),
        (["NaN"], "string"),
    ],
)
def test_a_type_holds_for_every_value(texts: list[str], wanted: str) -> None:
    column = SeenColumn()
    for text in texts:
        column.add(text)
    assert column.type == wanted


def test_a_later_value_of_another_kind_widens_the_type() -> None:
    column = SeenColumn()
    for number in range(5_000):
        column.add(str(number))
    assert column.type == "int"
    column.add("n/a")
    assert column.type == "string"


def of(lines: list[object], file: str = "app.log") -> Detection:
    return detect(
        [line if isinstance(line, str) else json.dumps(line) for line in lines], file, FORMATS
    )


def stream_of(found: Detection) -> dict[str, object]:
    assert found.proposal is not None
    return dict(found.proposal.stream)


def test_columns_of_json() -> None:
    found = of(list(made_lines()["json"]))
    assert stream_of(found) == {
        "topic": "logs.app",
        "format": "json",
        "time": "ts",
        "columns": {
            "level": "string",
            "http_status": {"path": "http.status", "type": "int"},
            "http_path": {"path": "http.path", "type": "string"},
            "took_ms": "double",
            "ok": "boolean",
            "bytes": "bigint",
            "zip": "string",
        },
    }
    assert found.proposal is not None
    assert [metric["name"] for metric in found.proposal.metrics] == [
        "app_by_http_status",
        "app_top_http_path",
        "app_took_ms",
    ]
    # A metric's values have at most twelve decimal places. A value with more would not be counted.
    assert found.proposal.metrics[2]["value"] == "round(took_ms, 6)"
    assert found.proposal.metrics[2]["measure"] == "percentile"


def test_names_that_sql_or_the_file_cannot_use() -> None:
    line = {
        "@timestamp": "2025-03-03T10:00:00Z",
        "line": 7,
        "user-agent": "x",
        "a.b": 1,
        "a": {"b": "two"},
        "date": "monday",
        "1st": 1,
        "back`tick": 1,
        "list": [1],
        "": 1,
    }
    found = of([line] * 3)
    keys = stream_of(found)
    assert keys["time"] == "@timestamp"
    assert keys["columns"] == {
        "line_value": {"path": "line", "type": "int"},
        "user_agent": {"path": "user-agent", "type": "string"},
        "a_b": {"path": "`a.b`", "type": "int"},
        "a_b_value": {"path": "a.b", "type": "string"},
        "date": "string",
        "_1st": {"path": "1st", "type": "int"},
        "back_tick": {"path": "`back``tick`", "type": "int"},
    }
    ParsedInputSection.model_validate(keys)
    assert found.rows[0]["a_b_value"] == "two"
    assert found.rows[0]["back_tick"] == "1"


ODD_NAMES = (
    "time", "ts", "line", "date", "a b", "a.b", "é", "日本", "", "1", "-", "__", "A", "a", "{x}",
    "[0]", "`q`", "null", "true", "1e5", "0x1f", "on", "1:30", "it's", "a=b", "#c", "x: y", "%d",
    "\t", "\\", "status ", "STATUS", "select", "from", "a + b",
)  # fmt: skip
ODD_VALUES: tuple[object, ...] = (
    -7, 10**30, 0.1, None, True, "x y", "", "-", "2025-03-03T10:00:00Z", [1], {}, "é\u2028", 1e300,
    "\x1b[31mred", "null", "1e5",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_no_name_and_no_value_breaks_the_printed_yaml(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)

    def thing(depth: int) -> dict[str, object]:
        return {
            key: thing(depth + 1)
            if depth < 3 and chance.random() < 0.2
            else chance.choice(ODD_VALUES)
            for key in chance.sample(ODD_NAMES, 9)
        }

    things: list[object] = [thing(0) for _ in range(6)]
    pairs: list[object] = [
        " ".join(f"{key}=1" for key in chance.sample(ODD_NAMES, 9)) for _ in range(6)
    ]
    for lines in (things, pairs):
        found = of(lines)
        if lines is things:
            assert found.format == "json"
        if found.proposal is not None:
            load_text(to_paste(found.proposal), "m", tmp_path, {})


def test_a_time_in_either_of_two_fields() -> None:
    one, other = {"ts": "2025-03-03T10:00:00Z", "n": 1}, {"time": 1_741_000_000, "n": 2}
    assert stream_of(of([one, other] * 3))["time"] == ["time", "ts"]
    assert stream_of(of([{"ts": "soon", "at": "2025-03-03T10:00:00Z"}] * 3))["time"] == "at"
    found = of([{"n": 1}] * 3)
    assert "time" not in stream_of(found)
    assert "at its arrival" in found.notes[0]


def test_fields_beyond_the_most_are_counted() -> None:
    found = of([{f"k{number}": number for number in range(100)}] * 3)
    columns = stream_of(found)["columns"]
    assert isinstance(columns, dict)
    assert len(columns) == 30
    assert found.notes[-1].startswith("70 more fields")


def test_columns_of_logfmt() -> None:
    keys = stream_of(of(list(made_lines()["logfmt"])))
    assert keys["time"] == "time"
    assert keys["columns"] == {
        "level": "string",
        "msg": "string",
        "duration": "double",
        "attempts": "int",
        "ok": "boolean",
    }


def test_columns_of_a_table() -> None:
    found = of([CSV_HEADER, *made_lines()["csv"]])
    assert stream_of(found) == {
        "topic": "logs.app",
        "format": "csv",
        "header": CSV_HEADER,
        "time": "when",
        "columns": {"items": "int", "price": "double", "paid": "boolean"},
    }
    assert found.rows[0]["comment"] == 'a, "b"'
    assert found.rows[0]["country"] in ("DE", "FR", "IT")
    assert found.share == 1.0


def test_a_field_of_a_table_whose_name_is_no_column() -> None:
    lines = ["Event ID;Date and Time;File", *(f"{at};2025-03-03 10:00:00;1.5" for at in range(9))]
    keys = stream_of(of(list(lines)))
    assert keys["delimiter"] == ";"
    assert keys["columns"] == {
        "event_id": {"field": "Event ID", "type": "int"},
        "file_value": {"field": "File", "type": "double"},
    }
    assert keys["time"] == "Date and Time"


def test_a_table_without_a_header_is_read_by_positions() -> None:
    lines = [f"{at},2025-03-03 10:00:{at:02d},x" for at in range(20)]
    assert stream_of(of(list(lines))) == {
        "topic": "logs.app",
        "format": "csv",
        "time": "2",
        "columns": {
            "field1": {"position": 1, "type": "int"},
            "field3": {"position": 3, "type": "string"},
        },
    }


def test_a_proposed_pattern_has_named_columns() -> None:
    found = of(list(made_lines()["regex"]))
    names = [column.name for column in found.columns]
    assert names == ["time", "level", "field", "logger", "invoice", "took_ms", "message"]
    types = {column.name: column.type for column in found.columns}
    assert (types["invoice"], types["took_ms"]) == ("int", "int")
    assert found.rows[0]["logger"] == "billing.invoice"
    assert found.proposal is not None
    assert [metric["measure"] for metric in found.proposal.metrics] == [
        "count",
        "count",
        "percentile",
    ]


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        ("[2025-03-03T10:00:0{},1][WARN ][o.e.Node  ] [n1] up", "level field field2 message"),
        ("2025-03-03 10:00:0{}.123 +01:00 [INF] listening on 80", "level message"),
        ("[2025-03-03 10:00:0{},123] INFO [Server id=0] started", "level field message"),
        ("WARN 2025-03-03T10:00:0{}Z disk full", "level message"),
        ("2025-03-03 10:00:0{} 10.0.0.1 my.app.Cart: took 12.5 s", "client logger took_seconds"),
        ("2025-03-03 10:00:0{} user=ann id=7 x", "user id message"),
    ],
)
def test_pieces_that_all_lines_have_are_columns(line: str, columns: str) -> None:
    found = of([line.format(at) for at in range(9)])
    names = [column.name for column in found.columns]
    assert names[: len(columns.split()) + 1] == ["time", *columns.split()]
    assert found.share == 1.0


def test_lines_of_a_year_s_last_two_digits_get_a_layout() -> None:
    time = stream_of(of([f"25/03/03 10:00:{at:02d} INFO a.B: x" for at in range(9)]))["time"]
    assert time == {"column": "ts", "layout": "%y/%m/%d %H:%M:%S"}
    time = stream_of(of([f"03-03 10:00:{at:02d}.811  17  23 D W: x" for at in range(9)]))["time"]
    assert time == {"column": "ts", "layout": "%m-%d %H:%M:%S.%f"}


def test_the_order_of_days_and_months_is_found_or_left_open() -> None:
    lines = [f"{day:02d}/03/2025 10:00:00 job {day}" for day in range(1, 13)]
    found = of(list(lines))
    assert stream_of(found)["time"] == "ts"
    assert "cannot be told apart" in found.notes[-1]
    time = stream_of(of([*lines, "27/03/2025 10:00:00 job 27"]))["time"]
    assert time == {"column": "ts", "layout": "%d/%m/%Y %H:%M:%S"}
    time = stream_of(of([f"03/{day}/2025 10:00:00 job" for day in range(10, 30)]))["time"]
    assert time == {"column": "ts", "layout": "%m/%d/%Y %H:%M:%S"}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("app.log", "app"),
        ("access.log-20250303.gz", "access"),
        ("app-2024-01-01.log", "app"),
        ("catalina.2024-01-01.log", "catalina"),
        ("OpenSSH_2k.log", "openssh_2k"),
        ("error.log.1", "error"),
        ("7.log", "log"),
        ("Zugriffe (1).csv", "zugriffe"),
        ("é.log", "log"),
    ],
)
def test_an_input_is_called_after_its_file(file: str, name: str) -> None:
    assert name_of(file) == name


def test_a_field_of_json_that_is_in_few_lines_is_a_column() -> None:
    seen = FieldsSeen()
    for number in range(100):
        more: dict[str, object] = {"error": "x"} if number == 99 else {}
        seen.add(leaves({"n": number, **more}))
    assert times_of(seen) == []
    assert declarations(seen, "json", "path")[0] == {"n": "int", "error": "string"}
