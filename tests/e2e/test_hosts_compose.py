"""A mill in containers on three hosts: the documented commands, counts that stay exact while a
broker is killed and hosts are away, and what other machines reach.

The tests run in the order of this file, on one mill.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.output import Exit
from tests.e2e.hosted_containers import HOSTS, MAIN, HostedContainers, hosted_containers
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(3_600)]

PASSWORD = "correct-horse-battery"
OTHERS = [one for one in HOSTS if one != MAIN]


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedContainers]:
    with hosted_containers(tmp_path_factory.mktemp("hosts")) as found:
        yield found


@pytest.fixture(scope="module")
def before(mill: HostedContainers) -> dict[int, list[int]]:
    """The ports that another machine reaches before anything is started."""
    return {host: mill.reached(host) for host in HOSTS}


def secrets_of(mill: HostedContainers, host: int) -> dict[str, str]:
    """Return owner, group and mode of each file and folder of secrets on a host."""
    command = r"find /mill/data/secrets -mindepth 1 -printf '%P %U:%G:%m\n'"
    listed = mill.hosts[host].compose(
        *("run", "--rm", "-T", "--entrypoint", "sh", "init", "-c", command)
    )
    return dict(line.split() for line in listed.splitlines())


def test_a_host_that_has_not_joined_starts_nothing(
    mill: HostedContainers, before: dict[int, list[int]]
) -> None:
    refused = mill.hosts[2].attempt("run", "--rm", "-T", "init")
    assert refused.returncode != 0
    assert "it has not joined the mill" in refused.stderr
    assert mill.hosts[2].attempt("up", "--detach").returncode != 0
    assert mill.reached(2) == before[2]


def test_hosts_join_with_files_of_the_main_host(mill: HostedContainers) -> None:
    files = {
        host: mill.main.compose(
            *("run", "--rm", "-T", "init", "enrol", "broker", f"{host}", "--out", "-")
        )
        for host in OTHERS
    }
    wrong = mill.hosts[3].attempt("run", "--rm", "-T", "init", "join", "-", stdin=files[2])
    assert wrong.returncode != 0
    assert "the join file is for broker 2, and COMPOSE_PROFILES names host-3" in wrong.stderr
    words = ("run", "--rm", "-T", "cli", "join", "--check", "-")
    asked = mill.hosts[2].attempt(*words, stdin=files[2])
    assert asked.returncode == Exit.UNREACHABLE, asked.stderr
    assert "broker 3 cannot be reached from this host" in asked.stderr
    for host in OTHERS:
        mill.hosts[host].compose("run", "--rm", "-T", "init", "join", "-", stdin=files[host])
    # Every later start compares the profile with the data.
    mill.profile(3, 2)
    refused = mill.hosts[3].attempt("run", "--rm", "-T", "init")
    assert "the secrets of the host of broker 3" in refused.stderr
    mill.profile(3, 3)


def test_the_mill_counts_and_each_host_sees_the_others(mill: HostedContainers) -> None:
    for host in OTHERS:
        mill.hosts[host].compose("up", "--detach")
    mill.drop()
    mill.main.compose("up", "--detach", "--wait")
    mill.wait_counted()
    for host in HOSTS:
        mill.wait_for_others(host)
    services = {host: set(mill.hosts[host].compose("ps", "--services").split()) for host in HOSTS}
    assert services[2] == {"broker-2"}
    assert services[3] == {"broker-3"}
    assert services[MAIN] >= {"broker-1", "collector", "stream", "entry"}
    assert not services[MAIN] & {"broker-2", "broker-3"}


def test_secrets_have_their_owners_and_the_key_of_the_ca_stays(mill: HostedContainers) -> None:
    main, other = secrets_of(mill, MAIN), secrets_of(mill, 2)
    assert main["ca/ca.key"] == "0:0:600"
    assert not any(name.startswith("ca/") for name in other)
    for found, broker in (main, MAIN), (other, 2):
        assert found[f"broker-{broker}/tls.key"] == "10001:10000:600"
        assert found["mill/password"] == "0:10000:640"
    assert "broker-2/tls.key" not in main


def test_commands_work_on_each_host(mill: HostedContainers) -> None:
    mill.main.compose(
        *("run", "--rm", "-T", "cli", "user", "add", "admin", "--password-file", "-"),
        stdin=PASSWORD,
    )
    for host in HOSTS:
        assert "logs.access" in mill.hosts[host].cli("topic", "list")
        assert "admin" in mill.hosts[host].cli("user", "list")


def test_pitfall_40_other_machines_reach_two_ports_of_each_host(
    mill: HostedContainers, before: dict[int, list[int]]
) -> None:
    for host in HOSTS:
        assert mill.reached(host) == sorted([*before[host], 9191 + host, 29091 + host])


def test_a_broker_is_killed_while_lines_arrive(mill: HostedContainers) -> None:
    mill.hosts[2].kill("broker-2")
    mill.drop()
    mill.wait_counted()
    mill.wait_for(2, "in service")


@pytest.mark.parametrize("host", [3, MAIN])
def test_a_whole_host_is_away_and_returns(mill: HostedContainers, host: int) -> None:
    mill.hosts[host].compose("kill")
    mill.drop()
    if host != MAIN:
        mill.wait_counted()
        mill.wait_for(host, "out of service")
    mill.hosts[host].compose("up", "--detach", "--wait")
    mill.drop()
    mill.wait_counted()
    mill.wait_for_others(MAIN)


def test_a_host_is_restarted_when_the_others_are_in_sync(mill: HostedContainers) -> None:
    mill.drop()
    said = mill.hosts[2].roll()
    assert [one for one in said if one.startswith("restarting ")] == ["restarting broker-2"]
    mill.wait_counted()


def test_a_lost_host_is_replaced(mill: HostedContainers, tmp_path: Path) -> None:
    """Its volumes are gone. The command on the main host says what to type, and waits for it."""
    lost, said = mill.hosts[3], tmp_path / "said.txt"
    lost.remove()
    mill.drop()
    words = ("run", "--rm", "-T", "cli", "broker", "replace-disk", "3", "--yes")
    with said.open("w") as file, mill.main.begin(*words, to=file) as replacing:
        typed = "docker compose run --rm -T init join - <broker-3.join"
        wait_until(lambda: typed in said.read_text(), 180, "what to type")
        join = mill.main.compose("run", "--rm", "-T", "init", "enrol", "broker", "3", "--out", "-")
        lost.compose("run", "--rm", "-T", "init", "join", "-", stdin=join)
        lost.compose("up", "--detach")
        assert replacing.wait(300) == 0, said.read_text()
    mill.wait_for(3, "in service")
    mill.drop()
    mill.wait_counted()


def test_down_removes_every_volume(mill: HostedContainers) -> None:
    for host in HOSTS:
        mill.hosts[host].remove()
        assert mill.hosts[host].volumes() == []
