"""The mill in containers: dropped files are counted, and the counts survive down and up.

This test is slow and uses the mill's own ports, because compose publishes those. It is skipped if
there is no container engine or a port is in use.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from appliance.machine.processes import port_is_free
from appliance.mill.home import CODE
from tests.e2e.test_up_counts import STATUSES
from tests.harness.logs import shared_log
from tests.harness.wait import wait_until
from tests.house import tree

pytestmark = [pytest.mark.live, pytest.mark.slow]

PUBLISHED = (9092, 9093, 9094, 8090, 8091, 8092, 8093, 8094, 8095, 6380, 3307)
COMMAND_S = 1_800
COUNTED_S = 240.0


class Containers:
    """A copy of this tree as in a fresh clone, and its containers in a separate compose project.

    The copy has no `.cache`, and `build` uses no layer of an earlier build.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in tree.files():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(CODE / name, target)
        for kind in ("access", "json", "text"):
            (folder / "watched" / kind).mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o755)

    def compose(self, *arguments: str) -> str:
        """Run one compose command. Return its output."""
        done = subprocess.run(
            ["docker", "compose", "--project-name", "millrace-test", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        return done.stdout

    def build(self) -> None:
        """Build both images without a cache, as the first `up` of a fresh clone does."""
        self.compose("build", "--no-cache", "init", "stream")


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    if shutil.which("docker") is None:
        pytest.skip("there is no docker here")
    probe = subprocess.run(["docker", "compose", "ps"], cwd=CODE, capture_output=True, timeout=60)
    if probe.returncode != 0:
        pytest.skip("docker compose does not work here")
    taken = [port for port in PUBLISHED if not port_is_free("127.0.0.1", port)]
    if taken:
        pytest.skip(f"the mill's own ports are in use: {taken}")
    made = Containers(tmp_path)
    try:
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "20")


def counted(times: int) -> bool:
    with redis.Redis(port=6380, decode_responses=True) as client:
        found = client.hgetall("mill:requests_by_status:all")
    return bool(found == {status: str(count * times) for status, count in STATUSES.items()})


def test_containers_count_and_keep(containers: Containers) -> None:
    log = shared_log("apache_access.log")
    containers.build()
    containers.compose("up", "--detach", "--wait")
    access = containers.folder / "watched" / "access"
    shutil.copyfile(log, access / "one.log")
    wait_until(lambda: counted(1), COUNTED_S, "the file is counted")
    shutil.copyfile(log, access / "two.log")
    wait_until(lambda: counted(2), COUNTED_S, "the same file again doubles the counts")

    containers.compose("down", "--timeout", "60")
    containers.compose("up", "--detach", "--wait")
    wait_until(lambda: counted(2), COUNTED_S, "the counts are kept")
    query = "SELECT CONCAT(status, '=', count) FROM requests_by_status WHERE size = 'all'"
    command = (
        'MYSQL_PWD="$(cat /run/millrace/reader)"'
        f' mysql --no-defaults -N -h 127.0.0.1 -u reader millrace -e "{query}"'
    )
    rows = containers.compose("exec", "-T", "mysql", "sh", "-c", command).split()
    assert set(rows) == {f"{status}={count * 2}" for status, count in STATUSES.items()}
    shown = containers.compose("run", "--rm", "-T", "cli", "show", "requests_by_status")
    assert str(STATUSES["200"] * 2) in shown


def test_a_killed_broker_of_three_changes_no_count(containers: Containers) -> None:
    """After `docker kill` the container engine does not restart a container. So the broker stays
    down until the test starts it."""
    log = shared_log("apache_access.log")
    containers.compose("build", "init", "stream")
    containers.compose("up", "--detach", "--wait")
    access = containers.folder / "watched" / "access"
    dropped = 0

    def drop(copies: int) -> None:
        nonlocal dropped
        for _ in range(copies):
            dropped += 1
            shutil.copyfile(log, access / f"{dropped}.log")

    drop(1)
    wait_until(lambda: counted(1), COUNTED_S, "the file is counted")
    for name in ("broker-1", "broker-2", "broker-3"):
        drop(2)
        containers.compose("kill", name)
        drop(2)
        wait_until(lambda: counted(dropped), COUNTED_S, f"all is counted without {name}")
        status = containers.compose("ps", "--all", "--format", "{{.Service}} {{.State}}")
        assert f"{name} exited" in status.splitlines()
        containers.compose("up", "--detach", "--wait")
    containers.compose("down", "--timeout", "60")
    containers.compose("up", "--detach", "--wait")
    drop(1)
    wait_until(lambda: counted(dropped), COUNTED_S, "the counts are kept, and go on")
