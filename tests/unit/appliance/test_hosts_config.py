"""`cluster.hosts` in the file: what it may be, and what must be beside it."""

from pathlib import Path

import pytest

from appliance.config.faults import ConfigFaults
from appliance.config.load import load_text
from tests.unit.appliance.hosted import HOSTS, LOCAL, OPEN, STATED, TEXT


def faults_of(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigFaults) as raised:
        load_text(text, "mill.yaml", Path("/nowhere"), environ)
    return [str(fault) for fault in raised.value.faults]


def test_three_hosts_with_logins_and_without_names() -> None:
    config = load_text(TEXT, "mill.yaml", Path("/nowhere"), {}).config
    assert config.cluster.hosts == HOSTS
    assert config.network.names == ()


def test_a_host_can_be_given_by_a_variable() -> None:
    environ = {"MILLRACE_CLUSTER__HOSTS__2": "other.example.org"}
    config = load_text(TEXT, "mill.yaml", Path("/nowhere"), environ).config
    assert config.cluster.hosts == {**HOSTS, 2: "other.example.org"}


def test_hosts_on_the_loopback_may_be_closed_to_other_machines() -> None:
    text = LOCAL.replace("listen: 0.0.0.0, ", "")
    assert load_text(text, "mill.yaml", Path("/nowhere"), {}).config.cluster.hosts


@pytest.mark.parametrize("host", ["2001:db8::2", "192.0.2.2", "mill-2"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    text = TEXT.replace("mill-2.example.org", f"'{host}'")
    hosts = load_text(text, "mill.yaml", Path("/nowhere"), {}).config.cluster.hosts
    assert hosts is not None and hosts[2] == host


def test_racks_stay_possible() -> None:
    text = TEXT.replace("brokers: 3", "brokers: 3, racks: [a, b, c]")
    assert load_text(text, "mill.yaml", Path("/nowhere"), {}).config.cluster.racks == (
        "a",
        "b",
        "c",
    )


WRONG = [
    ("hosts: {1: a, 2: b}", "cluster.hosts: found 2 hosts", "of two, neither can go on alone"),
    ("hosts: {1: a}", "cluster.hosts: found 1 host", "3 or more hosts, one for each broker"),
    ("hosts: {}", "cluster.hosts: found no host", "3 or more hosts, one for each broker"),
    (
        "hosts: {1: a, 2: b, 3: A}",
        "cluster.hosts.3: found 'A' a second time",
        "this is that of broker 1",
    ),
    (
        "hosts: {1: a, 2: b, 4: d}",
        "cluster.hosts.4: found broker 4, which is not in cluster.brokers",
        "only brokers of cluster.brokers, which are 1, 2, 3",
    ),
    ("hosts: {1: a, 2: b, 4: d}", "cluster.hosts: found no host of broker 3", "which are 1, 2, 3"),
    ("hosts: {1: a, 2: b, 3: 'c:9192'}", "cluster.hosts.3: found 'c:9192'", "without a port"),
    ("hosts: {1: a, 2: b, 3: 0.0.0.0}", "cluster.hosts.3: found '0.0.0.0'", "can dial"),
    ("hosts: {1: a, 2: b, 3: localhost}", "cluster.hosts.3: found 'localhost'", "their own"),
    ("hosts: {1: a, 2: b, 3: 4}", "cluster.hosts: found 4 for broker 3", "the host of each"),
    ("hosts: {one: a, 2: b, 3: c}", "cluster.hosts: found the key 'one'", "the host of each"),
    ("hosts: [a, b, c]", "cluster.hosts: found a list", "the host of each broker by its id"),
]


@pytest.mark.parametrize(("stated", "found", "expected"), WRONG)
def test_wrong_hosts_are_a_fault(stated: str, found: str, expected: str) -> None:
    # Without hosts that can be read, the listener also lacks its names.
    [fault] = [one for one in faults_of(TEXT.replace(STATED, stated)) if found in one]
    assert expected in fault.partition(found)[2]


def test_the_number_of_brokers_must_be_stated() -> None:
    faults = faults_of(TEXT.replace("brokers: 3, ", ""))
    assert [one.split(": ")[1] for one in faults] == ["cluster.hosts.2", "cluster.hosts.3"]
    assert "only brokers of cluster.brokers, which are 1" in faults[0]


@pytest.mark.parametrize(
    ("old", "new", "found", "expected"),
    [
        (
            OPEN,
            "network: {login: users, names: [a.example.org]}",
            "network.open: found no kafka beside cluster.hosts",
            "[kafka]: the parts of the mill reach the brokers of other hosts",
        ),
        (
            "listen: 0.0.0.0, ",
            "",
            "network.listen: found '127.0.0.1' beside cluster.hosts",
            "an address that the other hosts reach",
        ),
        (
            "listen: 0.0.0.0, login: users",
            "listen: 127.0.0.1",
            "network.login: found null beside cluster.hosts",
            "because other machines may reach the brokers only with a login",
        ),
    ],
)
def test_what_hosts_need_is_a_fault_of_its_key(
    old: str, new: str, found: str, expected: str
) -> None:
    [fault] = [one for one in faults_of(TEXT.replace(old, new)) if found in one]
    assert expected in fault


def test_hosts_are_those_of_the_own_brokers() -> None:
    text = f"cluster: {{bootstrap_servers: 'a:1', {STATED}}}"
    [fault] = faults_of(text)
    assert "cluster.hosts: found cluster.bootstrap_servers beside it" in fault
    assert "only one of the two" in fault
