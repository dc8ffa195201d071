"""A mill on three hosts whose hosts change while it counts: a host is lost and replaced.

The tests run in the order of this file, on one mill.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.e2e.hosted_mill import FOURTH, HOSTS, SPARE, HostedMill
from tests.e2e.hosted_scene import COUNTED_S, HostedScene, hosted_scene
from tests.e2e.mill import temp_mill, until_it_says
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(1_800)]

REPLACED_S = 300.0


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedScene]:
    folder = tmp_path_factory.mktemp("hosts")
    with hosted_scene(folder) as scene:
        yield scene


@pytest.fixture(scope="module")
def machines() -> Iterator[ExitStack]:
    """Yield the stack of the machines that take the place of a host."""
    with ExitStack() as stack:
        yield stack


def voters(mill: HostedMill) -> list[int]:
    shown = mill.run(1, "broker", "describe", "--json")
    assert shown.code == 0, shown.err
    rows = json.loads(shown.out)["data"]["brokers"]
    return [row["broker"] for row in rows if row["voter"]]


def test_a_host_that_is_lost_is_replaced_by_a_new_machine(
    scene: HostedScene, machines: ExitStack
) -> None:
    mill = scene.mill
    scene.write()
    scene.is_exact()
    scene.in_sync()
    mill.lose(3)
    mill.wait_for(1, {2: "in service", 3: "out of service"})
    scene.write()

    # A join file from before the replacement is for the disk that votes.
    early = mill.run(1, "enrol", "broker", "3", "--out", str(scene.folder))
    assert early.code == 0, early.err
    assert "type `./millrace broker replace-disk 3` first" in early.err

    planned = mill.run(2, "broker", "replace-disk", "3", "--dry-run")
    assert planned.code == 0, planned.err
    assert "broker 3 copies" in planned.err
    assert f"start {mill.name_of(3)} again, and type `./millrace up` there" in planned.err
    assert "only two brokers vote until broker 3 has all metadata" in planned.err
    assert voters(mill) == [1, 2, 3]

    # The command is killed once, and the same command continues on another host.
    with mill.inside(1), mill.main.begin("broker", "replace-disk", "3", "--yes") as killed:
        until_it_says(killed, "remove broker 3 from the voters")
        killed.send_signal(signal.SIGKILL)
    with mill.inside(2):
        waiting = mill.hosts[2].begin("broker", "replace-disk", "3", "--yes")
    said = until_it_says(waiting, "this command waits for broker 3")
    assert f"on {mill.name_of(1)}: `./millrace enrol broker 3`" in said
    assert f"on {mill.name_of(3)}: " in said and "`./millrace join broker-3.join`" in said
    assert voters(mill) == [1, 2]

    machine = machines.enter_context(temp_mill(scene.folder / "host-3-again"))
    machine.home.config_file.unlink()
    mill.moves_to(3, machine, SPARE)
    mill.joins(3, scene.folder)
    up = mill.run(3, "up")
    assert up.code == 0, f"{up.err}\n{mill.ends(3)}"
    _, err = waiting.communicate(timeout=REPLACED_S)
    assert waiting.returncode == 0, f"{err}\n{mill.ends(3)}"
    assert "broker 3 has all its replicas in sync again" in err
    assert voters(mill) == [1, 2, 3]
    assert mill.under_replicated() == 0
    scene.write()
    scene.is_exact()


def test_the_new_disk_votes_and_its_host_restarts_like_any_other(scene: HostedScene) -> None:
    mill = scene.mill
    assert mill.run(3, "down").code == 0
    back = mill.run(3, "up")
    assert back.code == 0, f"{back.err}\n{mill.ends(3)}"
    mill.wait_for(1, {2: "in service", 3: "in service"})
    scene.in_sync()
    mill.kill_broker(2)
    scene.write()
    scene.is_exact()
    mill.wait_for(3, {1: "in service", 2: "in service"})


def incarnations(mill: HostedMill) -> dict[int, str]:
    """Return the process of each broker, as the cluster knows it."""
    shown = mill.run(1, "broker", "describe", "--json")
    assert shown.code == 0, shown.err
    return {row["broker"]: row["incarnation"] for row in json.loads(shown.out)["data"]["brokers"]}


def controller(mill: HostedMill) -> int:
    shown = mill.run(1, "broker", "list", "--json")
    found = [row["broker"] for row in json.loads(shown.out)["data"] if row["controller"]]
    assert len(found) == 1, found
    return int(found[0])


def test_brokers_restart_on_one_host_after_the_other(scene: HostedScene) -> None:
    """Each host waits for the brokers of the others, and says which hosts are left."""
    mill = scene.mill
    scene.in_sync()
    before, last = incarnations(mill), controller(mill)
    away = 3 if last != 3 else 2
    (first,) = set(HOSTS) - {away, last}

    # While another host is away, the broker of this host is not restarted.
    assert mill.run(away, "down").code == 0
    with mill.inside(first):
        waiting = mill.hosts[first].begin("restart", "--rolling")
    shown = wait_until(lambda: reason_to_wait(mill, first), 60, "the broker waits")
    assert f"broker-{away}, which is out of service" in shown
    scene.write()
    assert incarnations(mill)[first] == before[first]
    back = mill.run(away, "up")
    assert back.code == 0, back.err
    _, err = waiting.communicate(timeout=COUNTED_S)
    assert waiting.returncode == 0, err
    assert incarnations(mill)[first] != before[first]
    line = err.splitlines()[-1]
    assert line.startswith(f"left: broker {away} on {mill.name_of(away)}, ")
    assert f"then broker {last} on {mill.name_of(last)} (the active controller, so last)" in line
    assert "Type there `./millrace restart --rolling`" in line

    before = incarnations(mill)
    for host in (away, last):
        scene.write()
        told = mill.run(host, "restart", "--rolling")
        assert told.code == 0, f"{told.err}\n{mill.ends(host)}"
        assert incarnations(mill)[host] != before[host]
    assert "is the active controller: take this host last" in told.err
    assert told.err.splitlines()[-1].count(", unless its start ") == 2
    scene.is_exact()


def reason_to_wait(mill: HostedMill, host: int) -> str:
    """Return why the broker of a host still waits for its turn; empty if it does not wait."""
    with mill.inside(host):
        row = mill.hosts[host].status()[f"broker-{host}"]
    return str(row["reason"]) if "waits for" in row["reason"] else ""


@pytest.mark.slow
def test_each_host_is_upgraded(scene: HostedScene) -> None:
    """The brokers of the hosts restart in turns, and on the main host the other parts too."""
    mill = scene.mill
    scene.in_sync()
    before = incarnations(mill)
    with mill.inside(1):
        pids = {name: row["pid"] for name, row in mill.main.status().items()}
    planned = mill.run(2, "upgrade", "--dry-run")
    assert planned.code == 0, planned.err
    assert "would restart, in this order: broker-2" in planned.err
    for host in HOSTS:
        scene.write()
        told = mill.run(host, "upgrade")
        assert told.code == 0, f"{told.err}\n{mill.ends(host)}"
        assert "upgrade finalize" in told.err
    after = incarnations(mill)
    assert all(before[host] != after[host] for host in HOSTS)
    with mill.inside(1):
        new_pids = {name: row["pid"] for name, row in mill.main.status().items()}
    assert {name for name in pids if pids[name] != new_pids[name]} == {
        "broker-1", "collector", "stream", "monitor",
    }  # fmt: skip
    scene.is_exact()


@pytest.mark.slow
def test_a_fourth_host_is_added_and_another_is_removed(
    scene: HostedScene, machines: ExitStack
) -> None:
    mill = scene.mill
    refused = mill.run(1, "broker", "add", "4", "--yes")
    assert refused.code == 3
    assert "`brokers: [1, 2, 3, 4]`, and the host of broker 4 in `hosts`" in refused.err
    mill.list_hosts(1, 2, 3, 4)
    before = incarnations(mill)
    machine = machines.enter_context(temp_mill(scene.folder / "host-4"))
    machine.home.config_file.unlink()
    mill.moves_to(4, machine, FOURTH)
    for host in HOSTS:
        applied = mill.run(host, "up", "--apply")
        assert applied.code == 0, f"{applied.err}\n{mill.ends(host)}"
    assert incarnations(mill) == before

    with mill.inside(2):
        adding = mill.hosts[2].begin("broker", "add", "4", "--yes")
    said = until_it_says(adding, "this command waits for broker 4")
    assert f"on {mill.name_of(1)}: `./millrace enrol broker 4`" in said
    mill.joins(4, scene.folder)
    up = mill.run(4, "up")
    assert up.code == 0, f"{up.err}\n{mill.ends(4)}"
    _, err = adding.communicate(timeout=REPLACED_S)
    assert adding.returncode == 0, f"{err}\n{mill.ends(4)}"
    assert voters(mill) == [1, 2, 3]
    scene.write()
    scene.is_exact()

    # The main host asks the cluster, because broker 4 is no part of this host.
    made = mill.run(1, "topic", "create", "on-all", "--partitions", "4")
    assert made.code == 0, made.err
    mill.list_hosts(1, 2, 3)
    refused = mill.run(1, "up", "--apply")
    assert refused.code == 3, refused.err
    assert "broker 4 still has 3 replicas" in refused.err
    mill.list_hosts(1, 2, 3, 4)

    main = mill.run(2, "broker", "remove", "1", "--yes")
    assert (main.code, "is on the main host" in main.err) == (3, True)
    with mill.inside(1):
        removing = mill.main.begin("broker", "remove", "3", "--yes")
    until_it_says(removing, f"on {mill.name_of(3)}: `./millrace down`")
    assert voters(mill) == [1, 2, 4]
    assert mill.run(3, "down").code == 0
    _, err = removing.communicate(timeout=REPLACED_S)
    assert removing.returncode == 0, err
    assert "broker 3 has left the cluster" in err
    assert "out of `cluster.brokers` and `cluster.hosts`" in err
    mill.list_hosts(1, 2, 4)
    for host in (1, 2, 4):
        applied = mill.run(host, "up", "--apply")
        assert applied.code == 0, f"{applied.err}\n{mill.ends(host)}"
    mill.wait_for(1, {2: "in service", 4: "in service"})
    assert mill.under_replicated() == 0
    scene.write()
    scene.is_exact()


def test_each_host_is_stopped_at_the_end(scene: HostedScene) -> None:
    for host in sorted(scene.mill.hosts, reverse=True):
        assert scene.mill.run(host, "down").code == 0
