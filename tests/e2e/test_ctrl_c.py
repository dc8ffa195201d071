"""Ctrl-C ends every long-running command, with exit code 130 and without a traceback.

A terminal sends SIGINT to the whole process group, and so does this test. `test_up_foreground`
tests `up --foreground`, and `test_recount_shown` tests `stream recount`.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from appliance.mill.home import CODE, find_home
from appliance.mill.init import initialise
from appliance.output import Exit
from tests.harness.broker import BrokerProcess
from tests.harness.redis import redis_server
from tests.harness.silent import silent_server
from tests.harness.wait import wait_until
from tests.unit.appliance.scripted_monitor import answering

pytestmark = pytest.mark.live

DEADLINE_S = 60.0
LINES = 20_000

CONFIG = """
cluster: {{bootstrap_servers: '{servers}'}}
collector:
  inputs:
    - {{paths: ['watched/access/**'], topic: logs.access, max_bytes_per_second: 64KiB}}
stream:
  from: {{access: {{topic: logs.access, format: raw}}}}
  metrics: [{{name: m, from: access, measure: count}}]
sinks: {{redis: {{host: 127.0.0.1, port: {redis}}}, mysql: null}}
"""


def answer(path: str) -> dict[str, Any]:
    """Return a monitor's response for the commands `lag` and `top`."""
    group = {"group": "g", "status": "ok", "lag": 1, "known": 3, "partitions": 3}
    group |= dict.fromkeys(("time_lag_ms", "eta_s", "read_rate", "write_rate"))
    rows = [] if "health" in path or "parts" in path else [group]
    now_ms = round(time.time() * 1000)
    return {"data": rows, "errors": [], "ts_ms": now_ms, "kafka_at_ms": now_ms}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of a mill with a real broker, a real Redis and a fake monitor."""
    folder = tmp_path_factory.mktemp("ctrl-c")
    with (
        BrokerProcess(folder / "broker") as broker,
        redis_server(folder / "redis") as redis,
        answering(folder, answer),
    ):
        path = folder / "configs" / "millrace.yaml"
        text = CONFIG.format(servers=broker.bootstrap, redis=redis.port)
        path.write_text(f"{path.read_text()}\n{text}")
        initialise(find_home({"MILLRACE_HOME": str(folder)}), (1,))
        logs = folder / "data" / "logs"
        logs.mkdir(parents=True)
        (logs / "stream.log").write_text("2026-08-01T10:00:00.000Z it begins\n")
        watched = folder / "watched" / "access"
        watched.mkdir(parents=True)
        (watched / "a.log").write_bytes(b"".join(b"%0100d\n" % number for number in range(LINES)))
        yield folder


def started(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "appliance", *arguments],
        cwd=CODE,
        env={"PATH": os.environ["PATH"], "MILLRACE_HOME": str(home)},
        # A command that reads this pipe waits, as on a terminal where the user types nothing.
        stdin=subprocess.PIPE,
        stdout=(home / "out").open("w"),
        stderr=(home / "err").open("w"),
        text=True,
        start_new_session=True,
    )


def interrupted(home: Path, shows: str, *arguments: str) -> tuple[int, str]:
    """Start a command, and interrupt it when its output contains `shows`. Return its exit code and
    its whole output."""

    def said() -> str:
        return (home / "out").read_text() + (home / "err").read_text()

    process = started(home, *arguments)
    try:
        wait_until(
            lambda: shows in said() or process.poll() is not None, DEADLINE_S, f"it shows {shows}"
        )
        assert process.poll() is None, said()
        os.killpg(process.pid, signal.SIGINT)
        return process.wait(DEADLINE_S), said()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "shows"),
    [
        ("lag --watch --every 50ms", "GROUP"),
        ("top -n 1000 --every 50ms", "READER"),
        ("status --watch", "not running"),
        ("logs -f", "it begins"),
        ("show m --watch", "nothing counted yet"),
        ("demo --seconds 60", "watch them"),
        ("collector once", "progress"),
        ("consume logs.access -o start", "0000000"),
        ("consume logs.access -g a-group -o start", "0000000"),
        ("stream dry-run watched/access/a.log", "Spark tries the lines"),
        ("config check", "Spark checks the metrics"),
    ],
)
def test_it_ends_with_130(home: Path, arguments: str, shows: str) -> None:
    words = [str(home / word) if "/" in word else word for word in arguments.split()]
    code, said = interrupted(home, shows, *words)
    assert code == Exit.INTERRUPTED, said
    assert "Traceback" not in said
    wait_until(lambda: left_of(home) == [], DEADLINE_S, "no process of it is left")


def left_of(home: Path) -> list[str]:
    """Return the processes that have this folder as MILLRACE_HOME in their environment, which child
    processes inherit."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.environ().get("MILLRACE_HOME") == str(home):
                found.append(" ".join(one.cmdline())[:80])
    return found


@pytest.mark.parametrize("command", ["topic list", "produce t", "consume t", "broker describe"])
def test_it_ends_with_130_while_brokers_are_silent(home: Path, command: str) -> None:
    with silent_server() as server:
        elsewhere = ("-b", f"127.0.0.1:{server.port}")
        code, said = interrupted(home, "asking 127.0.0.1", *command.split(), *elsewhere)
    assert code == Exit.INTERRUPTED, said
    assert "Traceback" not in said


def test_a_command_that_has_hardly_begun_leaves_no_trace(home: Path) -> None:
    """Ctrl-C while Python still imports modules must print no traceback. The imports take longer
    than some commands themselves."""
    code = (
        "import os, signal, sys; sys.meta_path.insert(0, type('Finder', (), {'find_spec':"
        " lambda name, *_: os.kill(os.getpid(), signal.SIGINT) if name == 'typer' else None}));"
        "import runpy; sys.argv[0] = 'appliance';"
        "runpy.run_module('appliance', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CODE, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode in (-signal.SIGINT, Exit.INTERRUPTED)
    assert done.stderr == ""
