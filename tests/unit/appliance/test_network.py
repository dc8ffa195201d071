"""`network.listen` beyond the loopback: its conditions, and what the commands say about it."""

import socket
from pathlib import Path
from typing import Any

import pytest

from appliance.checks import startup
from appliance.checks.opened import check, opened_text
from appliance.checks.startup import CheckLevel
from appliance.cli.summary import summary
from appliance.config.faults import ConfigFaults
from appliance.config.load import load_text
from appliance.machine.processes import has_address
from appliance.mill.home import find_home
from appliance.mill.init import initialise
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill, settings_for
from appliance.supervisor.changes import differences
from tests.harness.ports import free_port

NAMES = "names: [mill.example.org, localhost]"
OPEN = f"network: {{open: [kafka], login: users, {NAMES}, listen: 0.0.0.0}}"
NOT_HERE = "192.0.2.77"
"""An address for documentation (RFC 5737), which no machine has."""


def mill(tmp_path: Path, text: str) -> Mill:
    home = find_home({"MILLRACE_HOME": str(tmp_path)})
    config = load_text(text, "mill.yaml", tmp_path, {}).config
    initialise(home, config.cluster.broker_ids)
    return Mill(home, config, Placement())


def faults_of(text: str) -> list[str]:
    with pytest.raises(ConfigFaults) as raised:
        load_text(text, "mill.yaml", Path("/nowhere"), {})
    return [str(fault) for fault in raised.value.faults]


@pytest.mark.parametrize("listen", ["0.0.0.0", "'::'", "192.0.2.5", "2001:db8::5", "127.0.0.2"])
def test_a_mill_with_logins_a_super_user_and_a_name_may_be_open(listen: str) -> None:
    text = OPEN.replace("0.0.0.0", listen)
    config = load_text(text, "mill.yaml", Path("/nowhere"), {}).config
    assert config.network.listen == listen.strip("'")


CONDITIONS = [
    ("open: [kafka], ", "open: [], ", "network.open: found [] beside network.listen: 0.0.0.0"),
    ("login: users, ", "", "network.login: found null beside network.listen: 0.0.0.0"),
    (f"{NAMES}, ", "", "network.open: found [kafka] without network.names"),
]
REMEDIES = ("[kafka], because", "login: users, because", "the names or addresses")


@pytest.mark.parametrize(
    ("old", "new", "found", "remedy"),
    [(*one, remedy) for one, remedy in zip(CONDITIONS, REMEDIES, strict=True)],
)
def test_a_condition_that_is_missing_is_a_fault_of_its_key(
    old: str, new: str, found: str, remedy: str
) -> None:
    [fault] = faults_of(OPEN.replace(old, new))
    assert f"{found}, expected {remedy}" in fault


@pytest.mark.parametrize(
    "more", ["security: {super_users: []}", "cluster: {settings: {super.users: ''}}"]
)
def test_without_a_super_user_it_is_not_open(more: str) -> None:
    [fault] = faults_of(f"{OPEN}\n{more}")
    assert "super" in fault
    assert "found no user, beside network.listen: 0.0.0.0, expected at least one user" in fault


def test_all_missing_conditions_are_reported_together() -> None:
    text = "network: {listen: 0.0.0.0}\nsecurity: {super_users: []}"
    assert {fault.split(": ")[1] for fault in faults_of(text)} == {
        "network.open",
        "network.login",
        "security.super_users",
    }


@pytest.mark.parametrize(
    "name",
    [
        "localhost",
        "LOCALHOST",
        "mill.localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "127.0.0.1",
        "127.1.2.3",
        "'::1'",
        "'::ffff:127.0.0.1'",
    ],
)
def test_a_name_that_leads_clients_to_themselves_is_not_advertised(name: str) -> None:
    [fault] = faults_of(OPEN.replace(NAMES, f"names: [{name}, mill.example.org]"))
    assert "network.names[0]: found " in fault
    assert "a first name that clients on other machines can dial" in fault
    closed = OPEN.replace(NAMES, f"names: [{name}]").replace("0.0.0.0", "127.0.0.1")
    assert load_text(closed, "mill.yaml", Path("/nowhere"), {}).config.network.opens_kafka


@pytest.mark.parametrize("name", ["0.0.0.0", "'::'"])
@pytest.mark.parametrize("listen", ["0.0.0.0", "127.0.0.1"])
def test_an_address_that_nobody_can_dial_is_no_name(name: str, listen: str) -> None:
    text = OPEN.replace("localhost", name).replace("listen: 0.0.0.0", f"listen: {listen}")
    [fault] = faults_of(text)
    assert f"network.names[1]: found {name if ':' in name else repr(name)}" in fault
    assert "that clients can dial" in fault


def test_the_page_stays_on_the_loopback_in_an_open_mill() -> None:
    [fault] = faults_of(f"{OPEN}\nmonitor: {{listen: 0.0.0.0:8090}}")
    assert "monitor.listen: found '0.0.0.0:8090', expected a loopback address" in fault


def test_only_the_listener_with_logins_leaves_the_loopback(tmp_path: Path) -> None:
    ours = mill(tmp_path, f"{OPEN}\ncluster: {{brokers: 3}}")
    hosts: dict[str, set[str]] = {}
    for part in (part for part in ours.parts if part.name.startswith("broker-")):
        settings = settings_for(ours, part.name)
        for name, listener in settings["listeners"].items():
            hosts.setdefault(name, set()).add(listener["host"])
        assert settings["listeners"]["NET"]["advertised_host"] == "mill.example.org"
        assert settings["listeners"]["NET"]["security_protocol"] == "SASL_SSL"
        assert settings["status"]["host"] == "127.0.0.1"
    assert hosts.pop("NET") == {"0.0.0.0"}
    assert hosts == {name: {"127.0.0.1"} for name in ("HOST", "MILL", "BROKER")}


def test_another_address_restarts_the_brokers_in_turn_and_nothing_else(tmp_path: Path) -> None:
    text = f"{OPEN}\ncluster: {{brokers: 3}}"
    closed, opened = mill(tmp_path, text.replace("0.0.0.0", "127.0.0.1")), mill(tmp_path, text)
    found = differences(closed, opened)
    assert found.changed == found.in_turn == ("broker-1", "broker-2", "broker-3")


def test_commands_say_what_is_open(tmp_path: Path) -> None:
    ours = mill(tmp_path, f"{OPEN}\ncluster: {{brokers: 3}}")
    text = (
        "Kafka with TLS and logins at 0.0.0.0, ports 9192, 9193, 9194;"
        " names mill.example.org, localhost"
    )
    assert opened_text(ours) == text
    assert f"  other machines   {text}" in summary(ours)
    assert str(check(ours)) == f"open to other machines: {text}"
    closed = mill(tmp_path, OPEN.replace("0.0.0.0", "127.0.0.1"))
    assert not any("other machines" in line for line in summary(closed))
    assert str(check(closed)) == "open to other machines: nothing"
    assert str(check(mill(tmp_path, ""))) == "open to other machines: nothing"
    sixth = mill(tmp_path, OPEN.replace("0.0.0.0", "'::'"))
    assert "at [::], ports 9192;" in opened_text(sixth)


def test_an_address_that_this_machine_does_not_have_stops_the_start(tmp_path: Path) -> None:
    ours = mill(tmp_path, OPEN.replace("0.0.0.0", NOT_HERE))
    [found] = startup.listen_address(ours)
    assert found.level is CheckLevel.FAILED
    assert str(found).startswith(
        f"network.listen: this machine does not have the address {NOT_HERE};"
        " write one of its addresses (127.0.0.1"
    )
    assert found in startup.before_start(ours)
    assert list(startup.listen_address(mill(tmp_path, OPEN))) == []
    assert not has_address(NOT_HERE)
    assert has_address("127.0.0.2")


def test_a_port_is_tried_at_the_address_where_it_will_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that has the port of NET at another address of the machine is found."""
    port = free_port()
    ours = mill(tmp_path, f"{OPEN}\nports: {{net: {port}}}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.3", port))
        taken.listen()
        failed = [one for one in startup.ports(ours) if one.level is CheckLevel.FAILED]
        nets = [one.what for one in failed if "ports.net" in one.what]
        assert nets == [f"port {port} (ports.net, for broker-1)"]
        tried: list[Any] = []

        def is_free(host: str, number: int) -> bool:
            tried.append((host, number))
            return True

        monkeypatch.setattr(startup, "port_is_free", is_free)
        list(startup.ports(ours))
    assert ("0.0.0.0", port) in tried
    assert {host for host, one in tried if one != port} == {"127.0.0.1"}
