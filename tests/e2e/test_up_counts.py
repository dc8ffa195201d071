"""The whole mill as a user sees it. Files are dropped, Redis and MySQL show the counts, and the
mill goes down and up.

The expected numbers were counted with other tools (see the notes of the shared logs). The mill also
counts the lines of the other tests that share it, so a test compares with the counts before.
"""

import json
from collections import Counter

import pytest

from tests.e2e.conftest import config
from tests.e2e.mill import TempMill
from tests.e2e.reading import Reading
from tests.harness.logs import shared_log
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

STATUSES = Counter(
    {
        "200": 9126,
        "304": 445,
        "404": 213,
        "301": 164,
        "206": 45,
        "500": 3,
        "416": 2,
        "403": 2,
    }
)
COUNTED_S = 60.0
"""The longest wait of a test. The benchmark measures the promise of ten seconds."""

CONFIG = config()


@pytest.fixture
def mill(mill_at_work: TempMill) -> TempMill:
    return mill_at_work


def by_status(reading: Reading) -> Counter[str]:
    """Return the number of counted access lines of each status."""
    found = reading.redis("mill:requests_by_status:all")
    return Counter({status: int(count) for status, count in found.items()})


def counts(reading: Reading, expected: Counter[str]) -> None:
    """Check that Redis and MySQL have exactly these counts."""
    wait_until(lambda: by_status(reading) == expected, COUNTED_S, "Redis has counted the file")
    query = "SELECT status, count FROM requests_by_status WHERE size = 'all'"
    rows = {str(status): int(count) for status, count in reading.mysql(query)}
    assert rows == expected


def test_a_dropped_file_is_counted_doubled_and_kept(mill: TempMill, reading: Reading) -> None:
    log = shared_log("apache_access.log")
    before = by_status(reading)
    mill.drop(log, "access/apache_access.log")
    counts(reading, before + STATUSES)
    mill.drop(log, "access/the_same_again.log")
    counts(reading, before + STATUSES + STATUSES)

    assert mill.run("down").code == 0
    mill.up()
    counts(reading, before + STATUSES + STATUSES)
    # After the restart earlier lines must not be counted again. One more line shows that the mill
    # has gone past them.
    line = log.read_text().splitlines()[0] + "\n"
    (mill.home.folder / "watched" / "access" / "one.log").write_text(line)
    wait_until(lambda: reading.lines_of("access/one.log") == 1, COUNTED_S, "the next line counts")
    status = line.split('"')[2].split()[0]
    counts(reading, before + STATUSES + STATUSES + Counter([status]))
    assert mill.show("requests_by_status") == reading.redis("mill:requests_by_status:all")
    assert reading.redis("mill:meta")["lag"] == "0"


def test_windows_hold_what_the_lines_say(mill: TempMill, reading: Reading) -> None:
    """MySQL has the windows of an old file, by the timestamps in its lines."""
    log = shared_log("apache_access.log")
    test_file = mill.home.folder / "watched" / "access" / "again.log"
    if not test_file.exists():
        test_file.write_bytes(log.read_bytes())
    wait_until(lambda: reading.lines_of("access/again.log") == 10_000, COUNTED_S, "counted")
    hours = Counter(line.split("[")[1][:14] for line in log.read_text().splitlines())
    query = (
        "SELECT start_at, SUM(count) FROM lines_by_file"
        " WHERE size = '1h' AND file = 'access/again.log' GROUP BY start_at"
    )
    found = {f"{start:%d/%b/%Y:%H}": int(count) for start, count in reading.mysql(query)}
    assert found == dict(hours)


def test_an_incomplete_last_line_waits(mill: TempMill, reading: Reading) -> None:
    log = shared_log("OpenSSH_2k.log")
    mill.drop(log, "text/OpenSSH_2k.log")
    wait_until(
        lambda: reading.lines_of("text/OpenSSH_2k.log") == 1_999, COUNTED_S, "1,999 whole lines"
    )
    with (mill.home.folder / "watched" / "text" / "OpenSSH_2k.log").open("ab") as file:
        file.write(b"\r\n")
    wait_until(
        lambda: reading.lines_of("text/OpenSSH_2k.log") == 2_000, COUNTED_S, "the last line too"
    )
    query = "SELECT count FROM lines_by_file WHERE size = 'all' AND file = 'text/OpenSSH_2k.log'"
    assert reading.mysql(query) == [(2_000,)]


def test_nested_fields_are_measured(mill: TempMill, reading: Reading) -> None:
    log = shared_log("nginxplus_json.log")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    mill.drop(log, "json/nginxplus.log")
    wait_until(lambda: reading.lines_of("json/nginxplus.log") == 500, COUNTED_S, "500 lines")
    most = max(row["connections"]["active"] for row in rows)
    hg = max(row["server_zones"]["hg.nginx.org"]["requests"] for row in rows)
    assert reading.redis("mill:most_active:all") == {"*": str(most)}
    assert reading.redis("mill:hg_requests:all") == {"*": str(hg)}
    assert mill.show("most_active", "--size", "all") == {"*": str(most)}


def test_the_demo_is_counted_line_by_line(mill: TempMill, reading: Reading) -> None:
    result = mill.run("demo", "--seconds", "2", "--rate", "40", "--seed", "1")
    assert result.code == 0, result.err
    [path] = (mill.home.folder / "watched" / "access").glob("demo-*.log")
    written = path.read_text().count("\n")
    assert written > 0
    wait_until(
        lambda: reading.lines_of(f"access/{path.name}") == written, COUNTED_S, "every demo line"
    )


def test_a_metric_saved_into_the_file_counts_what_comes_and_can_be_forgotten(
    mill: TempMill, reading: Reading
) -> None:
    driver = mill.status()["stream"]["pid"]
    before = int(reading.redis("mill:requests_by_status:all")["200"])
    metric = "    - {name: by_status_again, from: access, key: status, measure: count}\n"
    mill.write_config(CONFIG.replace("\nsinks:", f"{metric}\nsinks:", 1))
    wait_until(
        lambda: "by_status_again" in mill.run("stream", "status", "--json").out,
        COUNTED_S,
        "the new metric is counted",
    )
    log = mill.home.folder / "watched" / "access" / "later.log"
    line = '192.0.2.7 - - [01/Aug/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "x"'
    log.write_text(f"{line}\n" * 50)
    wait_until(
        lambda: reading.redis("mill:by_status_again:all") == {"200": "50"}, COUNTED_S, "50 lines"
    )
    assert reading.mysql("SELECT status, count FROM by_status_again WHERE size = 'all'") == [
        ("200", 50)
    ]
    assert int(reading.redis("mill:requests_by_status:all")["200"]) == before + 50
    mill.write_config(CONFIG.replace("key: status", "key: stratus", 1))
    wait_until(
        lambda: "unknown column 'stratus'" in mill.run("status").err, COUNTED_S, "the fault is said"
    )
    mill.write_config(CONFIG)
    wait_until(
        lambda: "by_status_again" not in mill.run("stream", "status", "--json").out,
        COUNTED_S,
        "the metric has left",
    )
    assert mill.run("stream", "forget", "visitors").code != 0
    assert mill.run("stream", "forget", "by_status_again").code == 0
    assert reading.redis("mill:by_status_again:all") == {}
    row = mill.status()["stream"]
    assert (row["state"], row["pid"]) == ("healthy", driver)


def test_everything_is_healthy_and_says_so(mill: TempMill) -> None:
    rows = mill.status()
    brokers = {"broker-1", "broker-2", "broker-3"}
    assert set(rows) == {"mysql", "redis", "collector", "stream", "monitor"} | brokers
    assert {row["state"] for row in rows.values()} == {"healthy"}
    assert mill.run("status").code == 0

    def groups() -> set[str]:
        return {row["group"] for row in json.loads(mill.run("lag", "--json").out)["data"]}

    # The group appears after the stream's first commit and the monitor's next sample.
    wait_until(lambda: "millrace-stream" in groups(), COUNTED_S, "the stream's lag is known")


def test_spark_keeps_its_temporary_files_in_the_mills_folder(mill: TempMill) -> None:
    """Spark's temporary files must be in this folder, because the next driver empties it. A driver
    killed with -9 removes no file itself."""
    scratch = mill.home.folder / "data" / "stream" / "scratch"
    kinds = {path.name.split("-")[0] for path in scratch.iterdir()}
    assert {"blockmgr", "spark"} <= kinds


def test_the_stream_restarts_by_one_command_and_counts_on(mill: TempMill, reading: Reading) -> None:
    driver = mill.status()["stream"]["pid"]
    restarted = mill.run("restart", "stream")
    assert restarted.code == 0, restarted.err
    row = mill.status()["stream"]
    assert row["state"] == "healthy"
    assert row["pid"] != driver
    log = mill.home.folder / "watched" / "access" / "after-the-restart.log"
    log.write_text('192.0.2.7 - - [01/Aug/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "x"\n')
    wait_until(lambda: reading.lines_of(f"access/{log.name}") == 1, COUNTED_S, "the line counts")
