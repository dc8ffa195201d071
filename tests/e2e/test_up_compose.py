"""The mill in containers: dropped files are counted, and the counts survive down and up.

This test is slow and uses the mill's own ports, because compose publishes those. It is skipped if
there is no container engine or a port is in use.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.containers import Containers, counted, mill_in_containers
from tests.e2e.test_up_counts import STATUSES
from tests.harness.logs import shared_log
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(3_600)]

COUNTED_S = 240.0


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    with mill_in_containers(tmp_path) as made:
        yield made


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
    assert str(STATUSES["200"] * 2) in containers.cli("show", "requests_by_status")
    assert "broker-3" in containers.cli("status"), "it exits with 0 if each part is healthy"


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
