"""`up --foreground` runs under a service manager, and ends together with its mill."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.machine.processes import read_record
from appliance.mill.home import CODE
from appliance.operate import lifecycle
from tests.e2e.mill import TempMill, temp_mill
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

DEADLINE_S = 120.0

WITHOUT_MYSQL_AND_SPARK = """
collector: {inputs: []}
stream: {metrics: []}
sinks: {redis: {}, mysql: null}
monitor: {listen: 127.0.0.1:8090}
"""


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[TempMill]:
    with temp_mill(tmp_path / "mill") as found:
        found.write_config(WITHOUT_MYSQL_AND_SPARK)
        yield found


@contextmanager
def in_front(mill: TempMill) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """Start the command. Yield its process, and the socket to which it sends its notices for a
    service manager."""
    path = mill.home.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.setblocking(False)
        process = subprocess.Popen(
            [sys.executable, "-m", "appliance", "up", "--foreground"],
            cwd=CODE,
            env={
                "PATH": "/usr/bin:/bin",
                "MILLRACE_HOME": str(mill.home.folder),
                "NOTIFY_SOCKET": str(path),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process, manager
        finally:
            process.kill()
            process.communicate()


def becomes_ready(process: subprocess.Popen[str], manager: socket.socket) -> bool:
    """Return True if the service manager gets the ready notice before the command ends."""

    def heard() -> bytes:
        try:
            return manager.recv(100)
        except BlockingIOError:
            return b"ended" if process.poll() is not None else b""

    return wait_until(heard, DEADLINE_S, "it says that it is ready") == b"READY=1"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_says_when_it_is_ready_and_ends_the_mill_with_itself(
    mill: TempMill, number: signal.Signals, code: int
) -> None:
    with in_front(mill) as (process, manager):
        assert becomes_ready(process, manager)
        assert {row["state"] for row in mill.status().values()} == {"healthy"}
        process.send_signal(number)
        said = process.communicate(timeout=DEADLINE_S)[1]
        assert process.returncode == code, said
        assert not lifecycle.is_running(mill.home)
        assert "the mill is stopped" in said


def test_sigterm_while_it_starts_leaves_nothing_running(mill: TempMill) -> None:
    with in_front(mill) as (process, _):
        wait_until(lambda: lifecycle.snapshot(mill.home), DEADLINE_S, "the supervisor answers")
        process.terminate()
        said = process.communicate(timeout=DEADLINE_S)[1]
        assert process.returncode == 0, said
        assert not lifecycle.is_running(mill.home)


@pytest.mark.slow
def test_it_ends_with_its_supervisor_and_leaves_nothing_running(mill: TempMill) -> None:
    with in_front(mill) as (process, manager):
        assert becomes_ready(process, manager)
        supervisor = read_record(mill.home.pid_file)
        assert supervisor is not None
        supervisor.signal(signal.SIGKILL)
        said = process.communicate(timeout=DEADLINE_S)[1]
        assert process.returncode == 1, said
        assert "the supervisor has died" in said
        assert list(mill.home.run.glob("*.json")) == []
