"""A mill in containers on three hosts: compose and the file agree, and each host knows its broker.

The conditions of decision 0225 are the same as on machines without containers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.checks.hosts import refusals
from appliance.cli import broker_turns, part_commands
from appliance.config.containers import host_broker
from appliance.config.faults import ConfigFaults
from appliance.config.load import load_text
from appliance.config.published import Published, published_of
from appliance.mill.certificates import TRUSTED
from appliance.mill.entry import cluster_entry
from appliance.mill.home import CODE, Home
from appliance.mill.host_secrets import initialise_mill
from appliance.mill.hosts import read_record
from appliance.mill.init import InitError, share_entry
from appliance.mill.parts import Placement, local_entry
from appliance.mill.settings import Mill, broker_settings, security_settings
from appliance.output import Exit
from appliance.supervisor.effects import ProbeResult, Readiness
from tests.unit.appliance.container_hosts import (
    FILE,
    HOSTED,
    LOOPBACK,
    Machine,
    environ,
    home_at,
    join_file,
    three_machines,
)
from tests.unit.appliance.hosted import HOSTS, has_authority, joined, write_voters


def faults_of(text: str, environ: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigFaults) as caught:
        load_text(text, "mill.yaml", Path("/nowhere"), environ)
    return [str(fault) for fault in caught.value.faults]


def mill(folder: Path, broker: int, text: str = FILE) -> Mill:
    config = load_text(text, "mill.yaml", folder, environ(broker)).config
    return Mill.of(home_at(folder, broker), config, in_containers=True)


def with_secrets(found: Mill) -> Mill:
    initialise_mill(found.home, found.config, found.placement)
    return found


# What compose publishes, and the file.


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_the_file_is_the_same_on_each_host(broker: int) -> None:
    load_text(FILE, "mill.yaml", Path("/nowhere"), environ(broker))


def test_hosts_need_the_compose_file_for_them() -> None:
    faults = faults_of(FILE, LOOPBACK)
    [fault] = [one for one in faults if "cluster.hosts" in one]
    assert "compose starts all brokers on this machine" in fault
    assert "COMPOSE_FILE=docker-compose.yml:docker-compose.hosts.yml in the file .env" in fault
    assert "COMPOSE_PROFILES=host-N" in fault


def test_the_compose_file_needs_hosts() -> None:
    """Otherwise each host would start one of three brokers that no other host can reach."""
    [fault] = faults_of("", environ(2))
    assert "docker-compose.hosts.yml publishes the ports of broker 2" in fault
    assert "start the mill without docker-compose.hosts.yml" in fault


@pytest.mark.parametrize("profiles", ["", "host-4", "host-", "host-1,host-2", "main", "host-x"])
def test_the_profile_names_one_broker(profiles: str) -> None:
    [fault] = faults_of(FILE, {**HOSTED, "MILLRACE_PUBLISHED_HOST": profiles})
    assert "MILLRACE_PUBLISHED_HOST: found" in fault
    assert "expected one of host-1, host-2, host-3: write COMPOSE_PROFILES=host-N" in fault


def test_other_profiles_can_stand_beside_it() -> None:
    assert host_broker({**LOOPBACK, "MILLRACE_PUBLISHED_HOST": "debug, host-3"}) == 3
    assert host_broker({"MILLRACE_PUBLISHED_HOST": "host-3"}) is None, "this is no container"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("listen: 0.0.0.0", "listen: 192.0.2.1", "MILLRACE_LISTEN=192.0.2.1 in the file .env"),
        ("open: [kafka]", "open: []", "[kafka]: the parts of the mill reach the brokers"),
        ("login: users", "login: null", "because other machines may reach the brokers only with"),
        ("[admin]", "[]", "at least one user"),
        ("brokers: 3", "brokers: [1, 2, 4]", "the brokers 1, 2, 3: the compose files have"),
    ],
)
def test_every_condition_holds_in_containers(old: str, new: str, expected: str) -> None:
    text = FILE.replace(old, new)
    if "4" in new:
        text = text.replace("3: mill-3", "4: mill-3")
    assert any(expected in fault for fault in faults_of(text, environ(1)))


@pytest.mark.parametrize(("key", "port"), [("broker", 29092), ("net", 9192)])
def test_a_port_is_the_same_inside_and_outside(key: str, port: int) -> None:
    [fault] = faults_of(f"{FILE}ports: {{{key}: 9300}}\n", environ(1))
    assert f"ports.{key}: found 9300, expected {port}" in fault
    assert "docker-compose.hosts.yml" in fault


def test_the_page_is_published_on_the_main_host_alone() -> None:
    page = FILE.replace("[kafka]", "[kafka, page]").replace("login:", "names: [a.b], login:")
    text = f"{page}monitor: {{listen: '0.0.0.0:8090', login: users}}\n"
    load_text(text, "mill.yaml", Path("/nowhere"), environ(2))
    [fault] = faults_of(text, environ(1))
    assert "docker-compose.yml:docker-compose.hosts.yml:docker-compose.open-page.yml" in fault


def test_what_is_published_is_known() -> None:
    found = published_of(environ(2))
    assert found == Published(("0.0.0.0", 9192), links=("0.0.0.0", 29092), broker=2)
    assert not found.has_other_parts
    assert Published().has_other_parts


# The parts of a host, and their settings.


def test_each_host_has_its_broker_and_the_main_host_the_rest(tmp_path: Path) -> None:
    assert [part.name for part in mill(tmp_path, 2).parts] == ["broker-2"]
    names = [part.name for part in mill(tmp_path, 1).parts]
    assert {"broker-1", "monitor", "mysql", "redis"} <= set(names)
    assert not {"broker-2", "broker-3"} & set(names)


def test_listeners_of_a_container(tmp_path: Path) -> None:
    """A container does not have the addresses of its machine, and a local client of MILL is never
    sent to another host."""
    found = with_secrets(mill(tmp_path, 1))
    listeners: dict[str, Any] = broker_settings(found, "broker-1")["listeners"]
    assert {name: (one["host"], one["advertised_host"]) for name, one in listeners.items()} == {
        "HOST_1": ("0.0.0.0", "127.0.0.1"),
        "MILL_1": ("0.0.0.0", "broker-1"),
        "BROKER": ("0.0.0.0", HOSTS[1]),
        "NET": ("0.0.0.0", HOSTS[1]),
    }
    assert listeners["BROKER"]["security_protocol"] == "SSL"
    assert listeners["NET"]["security_protocol"] == "SASL_SSL"
    assert local_entry(found.config, found.placement, 1) == "broker-1:19092"
    assert local_entry(found.config, Placement(), 1) == "127.0.0.1:9092"


def test_the_parts_log_in_with_what_they_share(tmp_path: Path) -> None:
    found = with_secrets(mill(tmp_path, 1))
    (found.home.data / TRUSTED).write_text("the CA")
    share_entry(found.home)
    security = security_settings(found)
    assert security is not None
    folder = found.home.secrets / "mill"
    assert security["ca"] == str(folder / "ca.pem")
    assert security["password_file"] == str(folder / "password")
    assert (folder / "ca.pem").read_text() == "the CA"
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        "ca.pem": 0o640,
        "password": 0o640,
    }
    assert folder.stat().st_mode & 0o777 == 0o750
    assert str(cluster_entry(found)).startswith(f"{HOSTS[1]}:9192,")


# Which host this is.


def as_init(found: Mill) -> Mill:
    """Return the mill as the container `init` sees it, which has the folder of the CA."""
    (found.home.secrets / "ca").mkdir(parents=True, exist_ok=True)
    return found


def refusal(found: Mill) -> str:
    return "; ".join(str(one) for one in refusals(found))


def test_a_host_that_has_not_joined_starts_nothing(tmp_path: Path) -> None:
    text = refusal(as_init(mill(tmp_path, 2)))
    assert "the host of broker 2, and it has not joined the mill" in text
    assert "init enrol broker 2 --out - >broker-2.join)` on mill-1.example.org" in text
    assert "`docker compose run --rm -T init join - <broker-2.join`" in text
    with pytest.raises(InitError, match="init enrol broker 2 --out -"):
        with_secrets(mill(tmp_path, 2))


def test_the_profile_of_another_host_is_refused(tmp_path: Path) -> None:
    joined(tmp_path / "two", 2)
    assert "the secrets of the host of broker 2" in refusal(as_init(mill(tmp_path / "two", 3)))
    assert "the secrets of the host of broker 2" in refusal(as_init(mill(tmp_path / "two", 1)))
    assert refusal(as_init(mill(tmp_path / "two", 2))) == ""
    has_authority(tmp_path / "one")
    assert "the secrets of the host of broker 1" in refusal(as_init(mill(tmp_path / "one", 2)))
    assert refusal(as_init(mill(tmp_path / "one", 1))) == ""


def test_the_main_host_begins_without_anything(tmp_path: Path) -> None:
    assert refusal(as_init(mill(tmp_path, 1))) == ""


def test_other_containers_do_not_ask(tmp_path: Path) -> None:
    """They see neither the record of the host nor the key of the CA."""
    assert refusal(mill(tmp_path, 2)) == ""


def test_a_mill_of_one_machine_is_not_spread(tmp_path: Path) -> None:
    found = as_init(mill(tmp_path, 1))
    write_voters(found.home, 1, {1: "broker-1", 2: "broker-2", 3: "broker-3"})
    assert "cannot be spread over hosts yet" in refusal(found)


# The commands.


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Machine]:
    return three_machines(tmp_path, monkeypatch)


def test_a_host_joins_in_containers(
    machines: dict[int, Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    file = join_file(machines, capsys)
    assert machines[2].run("join", str(file)) == 0
    assert "docker compose up -d" in capsys.readouterr().err
    record = read_record(machines[2].home)
    assert record is not None
    assert record.broker == 2
    assert machines[2].home.config_file.read_text() == FILE, "compose mounts it read-only"
    assert machines[2].run("init") == 0
    assert (machines[2].home.secrets / "mill" / "ca.pem").exists()
    assert not (machines[2].home.secrets / "ca" / "ca.key").exists()
    assert not (machines[2].home.secrets / "redis" / "redis.conf").exists()


def test_a_host_with_a_broker_alone_gets_no_secrets_of_servers(
    machines: dict[int, Machine],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The file can be the same on each host, also if it opens servers of the main host."""
    monkeypatch.setenv("MILLRACE_PUBLISHED_REDIS", "0.0.0.0:6380")
    monkeypatch.setenv("MILLRACE_PUBLISHED_MYSQL", "0.0.0.0:3307")
    text = FILE.replace("[kafka]", "[kafka, redis, mysql]").replace(
        "login:", "names: [a.b], login:"
    )
    for one in machines.values():
        one.home.config_file.write_text(text)
    file = join_file(machines, capsys)
    for number in (1, 2):
        if number == 2:
            assert machines[2].run("join", str(file)) == 0
        assert machines[number].run("init") == 0
    secrets = {
        number: {path.name for path in machines[number].home.secrets.iterdir()} for number in (1, 2)
    }
    assert {"readers", "redis", "mysql"} <= secrets[1]
    assert secrets[2] == {"broker-2", "ca", "host.json", "mill"}


def test_the_address_of_the_listeners_may_differ(
    machines: dict[int, Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the address at which compose publishes on each machine."""
    file = join_file(machines, capsys)
    machines[2].home.config_file.write_text(FILE.replace("mill-3", "mill-4"))
    assert machines[2].run("join", str(file)) == Exit.CONDITION
    said = capsys.readouterr().err
    assert "differs from that of the main host in cluster.hosts: copy that file" in said


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("profile", "the join file is for broker 2, and COMPOSE_PROFILES names host-3"),
        ("file", "configs/millrace.yaml is missing or still the shipped file: copy it from the"),
        ("shipped", "configs/millrace.yaml is missing or still the shipped file: copy it from the"),
        ("cli", "run `docker compose run --rm -T init join - <broker-2.join`"),
    ],
)
def test_join_says_what_is_wrong(
    machines: dict[int, Machine], capsys: pytest.CaptureFixture[str], change: str, expected: str
) -> None:
    file = join_file(machines, capsys)
    at = machines[3 if change == "profile" else 2]
    if change == "file":
        at.home.config_file.unlink()
    if change == "shipped":
        at.home.config_file.write_bytes((CODE / "configs" / "millrace.yaml").read_bytes())
    assert at.run("join", str(file), is_init=change != "cli") == Exit.CONDITION
    assert expected in capsys.readouterr().err
    assert not at.home.host_record.exists()
    assert not (at.home.secrets / "broker-2" / "tls.key").exists(), "nothing was written"


def test_a_container_without_secrets_checks_a_join_file(
    machines: dict[int, Machine],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only `cli` can dial other hosts, and it may not look into the folders of secrets."""

    def refuse(*_: object) -> None:
        raise PermissionError

    file = join_file(machines, capsys)
    monkeypatch.setattr("appliance.enrol.broker_host.refuse_other_mill", refuse)
    monkeypatch.setattr("appliance.cli.join_broker.dial_fault", lambda *_: "no answer")
    assert machines[2].run("join", "--check", str(file), is_init=False) == Exit.UNREACHABLE
    assert "broker 3 cannot be reached from this host: no answer" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["topic list", "broker replace-disk 3 --dry-run"])
def test_a_host_that_was_never_started_says_how(
    machines: dict[int, Machine], capsys: pytest.CaptureFixture[str], words: str
) -> None:
    """Otherwise the user read only that a file of the CA is missing."""
    for machine in (machines[1], machines[2]):
        assert machine.run(*words.split(), is_init=False) == Exit.UNREACHABLE
        said = capsys.readouterr().err
        assert "never started on this host" in said
        assert "run `docker compose up -d`" in said


def test_a_broker_restarts_in_its_turn_on_its_host(
    machines: dict[int, Machine],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def probe(part: object, home: object) -> tuple[ProbeResult, str]:
        return ProbeResult.OK, ""

    asked: list[list[str]] = []

    def readiness(addresses: dict[str, object]) -> Readiness:
        asked.append(list(addresses))
        return Readiness(0, "", None)

    monkeypatch.setattr(broker_turns, "probe", probe)
    monkeypatch.setattr(broker_turns, "readiness", readiness)
    assert machines[2].run("broker", "turns") == 0
    assert capsys.readouterr().out.split() == ["broker-2"]
    assert asked == [["broker-2"]]


def test_one_container_keeps_the_user_of_the_parts(
    machines: dict[int, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know what compose publishes for the others, and asks the broker of its host."""
    kept: list[Home] = []

    class Keeper:
        def __init__(self, home: Home) -> None:
            kept.append(home)

        async def keep(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr("appliance.supervisor.entry_user.EntryUser", Keeper)
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    monkeypatch.setenv("MILLRACE_HOME", str(machines[1].home.folder))
    with pytest.raises(KeyboardInterrupt):
        part_commands.run("entry")
    assert [home.in_containers for home in kept] == [True]
