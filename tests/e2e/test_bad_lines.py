"""Malformed lines and frozen servers: the mill loses no line, counts none twice and hides none.

All lines go through the whole mill. Each test uses different file names, so one mill serves all
tests.
"""

import json
import re
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from appliance.machine.processes import read_record
from tests.e2e.mill import TempMill
from tests.e2e.reading import Reading, stopped
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

COUNTED_S = 90.0
HUGE_BYTES = 100_000_000
PIECE_BYTES_MAX = 1 << 20

SPARKS_OWN = re.compile(r" spark (SparkStringUtils|DAGScheduler) ")
"""Loggers that warn about Spark's plans and jobs, not about the broker."""


def watched(mill: TempMill, name: str) -> Path:
    return mill.home.folder / "watched" / name


def access_line(path: str, when: str = "10/Oct/2026:13:55:36 +0000") -> bytes:
    line = f'192.0.2.1 - - [{when}] "GET {path} HTTP/1.1" 200 12 "-" "test"'
    return line.encode("utf-8", "surrogateescape") + b"\n"


def values_of(reading: Reading, topic: str, file: str) -> list[bytes]:
    """Return the values of a file's records, in order."""
    found: list[bytes] = []
    reading.records(topic, lambda key, value: found.append(value) if key == file else None)
    return found


def wait_counted(reading: Reading, file: str, lines: int) -> None:
    wait_until(lambda: reading.lines_of(file) >= lines, COUNTED_S, f"{lines} lines of {file}")
    assert reading.lines_of(file) == lines


def unparsed(reading: Reading, file: str) -> dict[tuple[str, str], int]:
    """Return the number of a file's lines that were not parsed, by topic and reason."""
    query = "SELECT topic, reason, count FROM unparsed WHERE file = %s"
    return {(topic, reason): int(count) for topic, reason, count in reading.mysql(query, file)}


def test_a_line_that_does_not_parse_is_counted_kept_and_shown(
    mill_at_work: TempMill, reading: Reading
) -> None:
    garbage = [b"no access line at all\n", b'<script>alert("x")</script>\n', b"\xff\xfe\x00\n"]
    never = access_line("/never", "31/Feb/2026:10:00:00 +0000")
    lines = [access_line("/good"), *garbage, access_line("/good"), never]
    watched(mill_at_work, "access/bad.log").write_bytes(b"".join(lines))
    wait_counted(reading, "access/bad.log", 3)
    found = unparsed(reading, "access/bad.log")
    assert found == {("logs.access", "format:combined"): 3, ("logs.access", "time"): 1}

    kept = reading.mysql(
        "SELECT line FROM unparsed_lines WHERE topic = 'logs.access' ORDER BY part, `offset`"
    )
    assert [line for (line,) in kept] == [line.rstrip(b"\n") for line in (*garbage, never)]

    def row() -> str:
        rows: list[str] = re.findall(r"<tr>.*?</tr>", reading.page("/stream"), re.DOTALL)
        return next(one for one in rows if "access/bad.log" in one and "format:combined" in one)

    wait_until(lambda: ">3<" in row(), COUNTED_S, "the page's row")
    assert reading.details("stream", "stream")["unparsed_total"] >= 4


def test_a_json_line_that_is_none_and_a_value_that_cannot_be(
    mill_at_work: TempMill, reading: Reading
) -> None:
    now = datetime.now(UTC).isoformat()
    rows = [
        {"timestamp": now, "level": "warn", "user.name": {"a b": "Ann"}, "io": {"size": 4}},
        {"timestamp": now, "level": "warn", "user.name": {"a b": "Ann"}, "io": {"size": 0}},
        {"timestamp": now, "level": "error", "user.name": {"a b": "Ann"}, "io": {"size": "x"}},
        {"timestamp": "yesterday", "level": "lost"},
        {"level": "lost"},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows) + '{"timestamp": \n[1, 2]\n'
    watched(mill_at_work, "json/bad.log").write_text(text)
    wait_counted(reading, "json/bad.log", 5)
    found = unparsed(reading, "json/bad.log")
    assert found["logs.json", "format:json"] == 2
    assert found["logs.json", "time"] == 2
    assert found["logs.json", "expression_null:twisted"] >= 1
    assert reading.redis("mill:levels:all") == {"warn": "2", "error": "1", "lost": "2"}
    assert reading.redis("mill:busiest:all") == {"Ann": "4"}
    assert reading.redis("mill:twisted:all") == {"*": "25"}


def test_strange_bytes_arrive_as_they_are(mill_at_work: TempMill, reading: Reading) -> None:
    values = [
        b"with a carriage return",
        b"NUL \x00 inside \x00",
        b"\xff\xfe invalid \xc3\x28 UTF-8 \xed\xa0\x80",
        b"a lone \r inside",
        "Ünïcödé 🌊 \u2028 next".encode(),
        b"",
        b"\x00",
        b"@start|(null)\\",
    ]
    ends = [b"\r\n", *[b"\n"] * (len(values) - 1)]
    path = watched(mill_at_work, "text/strange.log")
    whole = b"".join(value + end for value, end in zip(values, ends, strict=True))
    path.write_bytes(whole + b"not yet")
    wait_counted(reading, "text/strange.log", len(values))
    # The collector drops NULs at the beginning of a line (decision 0102).
    arrived = [value.lstrip(b"\x00") for value in values]
    assert values_of(reading, "logs.text", "text/strange.log") == arrived
    with path.open("ab") as file:
        file.write(b" whole\n")
    wait_counted(reading, "text/strange.log", len(values) + 1)
    assert values_of(reading, "logs.text", "text/strange.log")[-1] == b"not yet whole"


def test_strange_keys_agree_in_both_sinks(mill_at_work: TempMill, reading: Reading) -> None:
    paths = ["/a", "/A", "/\udcff\udcfe", "/\x00x", "/a|b\\c", "@start", "/" + "long" * 2_000]
    lines = [access_line(path) for path in paths for _ in range(3)]
    watched(mill_at_work, "access/keys.log").write_bytes(b"".join(lines))
    wait_counted(reading, "access/keys.log", 3 * len(paths))
    shown = reading.redis("mill:top_paths:all")
    rows = dict(reading.mysql("SELECT path, value FROM top_paths WHERE size = 'all'"))
    assert len(shown) == len(rows)
    assert sorted(map(int, shown.values())) == sorted(map(int, rows.values()))
    assert shown["/a"] == shown["/A"] == shown["/a\\|b\\\\c"] == shown["\\@start"] == "3"
    assert [value for key, value in shown.items() if key.startswith("/long")] == ["3"]


def test_a_line_of_a_hundred_megabytes_comes_in_pieces(
    mill_at_work: TempMill, reading: Reading
) -> None:
    block = b"".join(b"%09d " % number for number in range(HUGE_BYTES // 10))
    watched(mill_at_work, "text/huge.log").write_bytes(block + b"\nafter\n")

    def is_whole() -> bool:
        values = values_of(reading, "logs.text", "text/huge.log")
        return values[-1:] == [b"after"]

    wait_until(is_whole, COUNTED_S, "the line after the long one")
    values = values_of(reading, "logs.text", "text/huge.log")
    assert b"".join(values[:-1]) == block
    assert max(map(len, values)) <= PIECE_BYTES_MAX
    wait_counted(reading, "text/huge.log", len(values))


def test_sparks_connector_has_read_all_of_it_without_a_warning(
    mill_at_work: TempMill, reading: Reading
) -> None:
    """No test up to here stops a broker, so any warning of Spark's connector shows a defect of our
    broker."""
    wait_until(lambda: reading.stream_lag() == 0, COUNTED_S, "everything is read")
    log = (mill_at_work.home.logs / "stream.log").read_text()
    said = [line for line in log.splitlines() if re.search(r" (WARN|ERROR|FATAL) spark ", line)]
    assert [line for line in said if not SPARKS_OWN.search(line)] == []


@pytest.mark.parametrize("sink", ["redis", "mysql"])
def test_a_sink_that_stands_still_costs_nothing(
    mill_at_work: TempMill, reading: Reading, sink: str
) -> None:
    """Freeze a sink: its connections stay open without traffic, so the stream gets no error."""
    file = f"text/while-{sink}-stands.log"
    wait_until(lambda: reading.stream_lag() == 0, COUNTED_S, "no lag at first")
    before = reading.commits()

    def waits(lines: int) -> bool:
        """Return True if the lag equals this number of lines plus at most the transaction
        markers."""
        lag = reading.stream_lag()
        return lag is not None and lines < lag <= lines + reading.commits() - before

    with stopped(reading, sink):
        watched(mill_at_work, file).write_text("first\n" * 100)
        wait_until(lambda: waits(100), COUNTED_S, "the lag of the first lines")
        with watched(mill_at_work, file).open("a") as more:
            more.write("second\n" * 150)
        wait_until(lambda: waits(250), COUNTED_S, "the lag of all lines")
        assert str(reading.stream_lag()) in reading.page("/")
    wait_counted(reading, file, 250)
    wait_until(lambda: reading.stream_lag() == 0, COUNTED_S, "no lag at last")
    query = "SELECT count FROM lines_by_file WHERE size = 'all' AND file = %s"
    assert reading.mysql(query, file) == [(250,)]


def test_a_redis_that_lost_everything_is_filled_again_without_a_new_line(
    mill_at_work: TempMill, reading: Reading
) -> None:
    watched(mill_at_work, "text/before-the-loss.log").write_text("a line\n" * 7)
    wait_counted(reading, "text/before-the-loss.log", 7)
    wait_until(lambda: reading.stream_lag() == 0, COUNTED_S, "nothing on its way")
    before = reading.redis_hashes()
    record = read_record(mill_at_work.home.part_record("redis"))
    assert record is not None and record.signal(signal.SIGKILL)
    wait_until(lambda: reading.redis_hashes() == before, COUNTED_S, "the view is whole again")


@pytest.mark.slow
def test_a_broker_that_stands_still_is_named_and_holds_nothing_up(
    mill_at_work: TempMill, reading: Reading
) -> None:
    def answering() -> dict[int, bool]:
        return {row["node_id"]: row["alive"] for row in reading.api("brokers")}

    file = "text/while-the-broker-stands.log"
    with stopped(reading, "broker-1"):
        watched(mill_at_work, file).write_text("a line\n" * 50)
        wait_until(
            lambda: answering() == {1: False, 2: True, 3: True},
            COUNTED_S,
            "the broker is shown as down",
        )
        page = reading.page("/brokers")
        row = page[page.index('data-node="1"') :]
        assert "✕ down" in row[: row.index("</tr>")]
        assert f"127.0.0.1:{mill_at_work.ports['mill']}" in row
        # The broker may have frozen between two requests of one sample. Then only the next sample
        # shows its part as down, too.
        wait_until(
            lambda: (
                [row["part"] for row in reading.api("parts") if row["health"] == "down"]
                == ["broker-1"]
            ),
            COUNTED_S,
            "and so is its part, alone",
        )
        wait_counted(reading, file, 50)
    assert values_of(reading, "logs.text", file) == [b"a line"] * 50
    wait_until(lambda: all(answering().values()), COUNTED_S, "up again")
