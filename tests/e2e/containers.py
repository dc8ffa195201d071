"""The mill in containers, from a copy of this tree, for tests with a container engine."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
import redis

from appliance.machine.processes import port_is_free
from appliance.mill.home import CODE
from tests.e2e.test_up_counts import STATUSES
from tests.harness.wait import wait_until
from tests.house import tree

PUBLISHED = (9092, 9093, 9094, 8090, 8091, 8092, 8093, 8094, 8095, 6380, 3307)
PROJECT = "millrace-test"
COMMAND_S = 1_800
LOGGED_S = 60.0


class Containers:
    """A copy of this tree as in a fresh clone, and its containers in a separate compose project.

    The copy has no `.cache`, and `build` uses no layer of an earlier build.
    """

    def __init__(self, folder: Path, project: str = PROJECT) -> None:
        self.folder = folder
        self.environment = {**os.environ, "COMPOSE_PROJECT_NAME": project}
        for name in tree.files():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CODE / name, target)
        for kind in ("access", "json", "text"):
            (folder / "watched" / kind).mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o755)

    def compose(self, *arguments: str, stdin: str = "") -> str:
        """Run one compose command. Return its output."""
        done = self.attempt(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr[-3_000:]
        return done.stdout

    def attempt(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run one compose command, which may fail."""
        return subprocess.run(
            ["docker", "compose", *arguments],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )

    def begin(self, *arguments: str, to: IO[str]) -> subprocess.Popen[bytes]:
        """Begin one compose command, which writes its output and errors into a file."""
        return subprocess.Popen(
            ["docker", "compose", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=to,
            stderr=subprocess.STDOUT,
        )

    def cli(self, *arguments: str) -> str:
        """Run one command of the mill in the service `cli`. Return its output."""
        return self.compose("run", "--rm", "-T", "cli", *arguments)

    def roll(self) -> list[str]:
        """Run `bin/compose-roll`. Return what it said."""
        done = subprocess.run(
            [self.folder / "bin" / "compose-roll"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=1_200,
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        return done.stderr.splitlines()

    def kill(self, service: str) -> None:
        """Kill the container of a service with SIGKILL. The engine starts it again."""
        [container] = self.compose("ps", "--quiet", service).split()
        done = subprocess.run(
            ["docker", "inspect", "-f", "{{.State.Pid}}", container],
            capture_output=True,
            text=True,
            check=True,
        )
        os.kill(int(done.stdout), signal.SIGKILL)

    def remove(self) -> None:
        """Stop the containers, and remove them and their volumes."""
        self.compose("down", "--volumes", "--timeout", "20")

    def volumes(self) -> list[str]:
        """Return the volumes of this project."""
        label = f"label=com.docker.compose.project={self.environment['COMPOSE_PROJECT_NAME']}"
        done = subprocess.run(
            ["docker", "volume", "ls", "--quiet", "--filter", label],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    def wait_logged(self, service: str, text: str) -> None:
        """Wait until the log of a container has this text."""
        wait_until(
            lambda: text in self.compose("logs", service), LOGGED_S, f"{service} logs {text!r}"
        )

    def build(self) -> None:
        """Build both images without a cache, as the first `up` of a fresh clone does."""
        self.compose("build", "--no-cache", "init", "stream")


@contextmanager
def mill_in_containers(folder: Path) -> Iterator[Containers]:
    """Yield containers that are not started yet, and remove them and their volumes at the end. Skip
    the test if it cannot run here."""
    skip_without_engine()
    made = Containers(folder)
    try:
        yield made
    finally:
        made.remove()


def skip_without_engine() -> None:
    """Skip the test if there is no container engine, or if a mill runs on this machine."""
    if shutil.which("docker") is None:
        pytest.skip("there is no docker here")
    probe = subprocess.run(["docker", "compose", "ps"], cwd=CODE, capture_output=True, timeout=60)
    if probe.returncode != 0:
        pytest.skip("docker compose does not work here")
    taken = [port for port in PUBLISHED if not port_is_free("127.0.0.1", port)]
    if taken:
        pytest.skip(f"the mill's own ports are in use: {taken}")


def counts() -> dict[str, str]:
    """Return the number of counted access lines of each status, from Redis on the host."""
    with redis.Redis(port=6380, decode_responses=True) as client:
        return dict(client.hgetall("mill:requests_by_status:all"))


def counted(times: int) -> bool:
    """Return whether the shared log is counted this many times, and nothing else."""
    return counts() == {status: str(count * times) for status, count in STATUSES.items()}
