"""`stream recount` with a real stream prints progress lines without a terminal, and ends at
Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from appliance.mill.home import CODE
from appliance.output import Exit
from sinks.config import MySqlSettings, SinksSettings
from tests.crash.test_stream_changes import BY_PATH, BY_STATUS, TOPIC, line, section
from tests.harness.broker import BrokerProcess
from tests.harness.mysql import MySqlServer
from tests.harness.stream import StreamProcess
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

LINES = 4_000
AT_ONCE = 20
"""Offsets that the stream recounts in one step. They are few, so that the test can see the page
during the recount."""
DEADLINE_S = 150.0

PROGRESS = re.compile(r"by_path: ([\d,]+) of 4,000 offsets.* \((\d+) s\)")


@pytest.fixture
def stream(tmp_path: Path, mysql_server: MySqlServer) -> Iterator[StreamProcess]:
    """Yield a stream that has counted all lines by status."""
    sinks = SinksSettings(mysql=mysql_server.new_database(), redis=None)
    patch = f"import stream.recount as r; r.OFFSETS_AT_ONCE = {AT_ONCE}"
    run = "from stream.__main__ import main; raise SystemExit(main())"
    with BrokerProcess(tmp_path) as broker:
        stream = StreamProcess(tmp_path, section(BY_STATUS), sinks, broker.mill_bootstrap)
        stream.command = [sys.executable, "-c", f"{patch}; {run}"]
        with stream:
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            for number in range(LINES):
                producer.produce(TOPIC, line(number), key=f"f{number % 5}".encode())
            assert producer.flush(60) == 0
            wait_until(
                lambda: counted(mysql_server, sinks.mysql, "by_status") == LINES,
                DEADLINE_S,
                "all is counted by status",
            )
            yield stream


def counted(server: MySqlServer, database: MySqlSettings | None, metric: str) -> int:
    assert database is not None
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT COALESCE(SUM(`count`), 0) AS n FROM windows WHERE size_s = 0 AND metric = %s",
            (metric,),
        )
        [row] = cursor.fetchall()
        return int(row["n"])


def config(stream: StreamProcess) -> dict[str, Any]:
    """Return a configuration that names the test's broker and MySQL."""
    database = stream.sinks.mysql
    assert database is not None
    server = database.model_dump(mode="json", include={"host", "port", "user", "database"})
    return {
        "cluster": {"bootstrap_servers": stream.bootstrap_servers},
        "collector": {"inputs": []},
        "stream": stream.section,
        "sinks": {"redis": None, "mysql": server | {"password": database.password}},
    }


def recount(home: Path) -> subprocess.Popen[str]:
    """Start `stream recount` with a short interval between progress lines."""
    patch = "import appliance.cli.progress as p; p.FIRST_AFTER_S, p.LINE_EVERY_S = 0.1, 0.2"
    run = "from appliance.cli.app import run_main; run_main()"
    return subprocess.Popen(
        [sys.executable, "-c", f"{patch}; {run}", "stream", "recount", "by_path"],
        cwd=CODE,
        env={"PATH": os.environ["PATH"], "MILLRACE_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def next_progress(process: subprocess.Popen[str]) -> re.Match[str]:
    """Return the next progress line."""
    assert process.stderr is not None
    for text in process.stderr:
        if found := PROGRESS.fullmatch(text.rstrip("\n")):
            return found
    raise AssertionError(f"it ended with {process.wait()} before it said how far it was")


def done(found: re.Match[str]) -> int:
    return int(found[1].replace(",", ""))


@pytest.mark.slow
def test_it_says_how_far_it_is_and_goes_on_without_who_watches(
    tmp_path: Path, stream: StreamProcess, mysql_server: MySqlServer
) -> None:
    stream.change(section(BY_STATUS, BY_PATH))
    wait_until(
        lambda: stream.details()["metrics"] == ["by_status", "by_path"], DEADLINE_S, "both count"
    )
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "millrace.yaml").write_text(yaml.safe_dump(config(stream)))

    watching = recount(tmp_path)
    try:
        first = next_progress(watching)
        while done(later := next_progress(watching)) <= done(first):
            assert int(later[2]) >= int(first[2])
        assert done(later) < LINES
        os.killpg(watching.pid, signal.SIGINT)
        out, err = watching.communicate(timeout=DEADLINE_S)
    finally:
        watching.kill()
        watching.wait()
    assert watching.returncode == Exit.INTERRUPTED
    assert (out, "Traceback" in err) == ("", False)
    assert "the stream continues to recount; run the same command again to follow it" in err

    again = recount(tmp_path)
    out, err = again.communicate(timeout=DEADLINE_S)
    assert (again.returncode, out) == (0, ""), err
    assert err.splitlines()[-1].startswith("by_path has counted every line")
    assert counted(mysql_server, stream.sinks.mysql, "by_path") == LINES
