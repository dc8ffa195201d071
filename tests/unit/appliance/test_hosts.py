"""A mill on three hosts: which parts each host has, their settings, and what is checked first."""

import socket
from pathlib import Path

import pytest

from appliance.checks import hosts, startup
from appliance.checks.opened import opened_text
from appliance.checks.startup import CheckLevel
from appliance.enrol.mill_side import entry_of, note_on
from appliance.mill.entry import cluster_entry
from appliance.mill.host_secrets import initialise_mill
from appliance.mill.hosts import HostRecordFault, is_this_machine, own_broker
from appliance.mill.init import InitError
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill, settings_for
from broker.config import BrokerConfig
from tests.unit.appliance.hosted import (
    CLUSTER_ID,
    HOSTS,
    LOCAL,
    TEXT,
    has_authority,
    home_of,
    joined,
    mill,
    write_secrets,
    write_voters,
)


def names(of: Mill) -> list[str]:
    return [part.name for part in of.parts]


def main_host(folder: Path, text: str = TEXT) -> Mill:
    has_authority(folder)
    found = mill(folder, text)
    initialise_mill(found.home, found.config, found.placement)
    return found


def other_host(folder: Path, broker: int, text: str = TEXT) -> Mill:
    joined(folder, broker)
    write_secrets(folder, broker)
    found = mill(folder, text)
    initialise_mill(found.home, found.config, found.placement)
    return found


def test_the_main_host_has_its_broker_and_all_other_parts(tmp_path: Path) -> None:
    assert names(main_host(tmp_path)) == ["mysql", "redis", "broker-1", "collector", "monitor"]


@pytest.mark.parametrize("broker", [2, 3])
def test_another_host_has_only_its_broker(tmp_path: Path, broker: int) -> None:
    """The file can be the same on each host, with inputs and metrics."""
    text = TEXT + "collector: {inputs: [{paths: ['watched/a/**'], topic: logs.a}]}\n"
    found = other_host(tmp_path, broker, text)
    assert names(found) == [f"broker-{broker}"]
    [part] = found.parts
    assert dict(part.ports) == {
        "ports.broker_status": 8092 + broker,
        "ports.host": 9091 + broker,
        "ports.broker": 29091 + broker,
        "ports.net": 9191 + broker,
    }


@pytest.mark.parametrize("broker", [1, 2])
def test_listeners_of_a_broker_on_its_host(tmp_path: Path, broker: int) -> None:
    found = main_host(tmp_path) if broker == 1 else other_host(tmp_path, broker)
    settings = settings_for(found, f"broker-{broker}")
    config = BrokerConfig.from_json(settings)
    assert {
        name: (one.host, one.advertised_host, one.advertised_port, one.security_protocol)
        for name, one in config.listeners.items()
    } == {
        f"HOST_{broker}": ("127.0.0.1", "127.0.0.1", 9091 + broker, "PLAINTEXT"),
        "BROKER": ("0.0.0.0", HOSTS[broker], 29091 + broker, "SSL"),
        "NET": ("0.0.0.0", HOSTS[broker], 9191 + broker, "SASL_SSL"),
    }
    assert config.voters == {number: (host, 29091 + number) for number, host in HOSTS.items()}
    assert config.status_host == "127.0.0.1"
    secrets = found.home.part_secrets(f"broker-{broker}")
    assert settings["link_tls"] == {
        "certificate": str(secrets / "tls.pem"),
        "key": str(secrets / "tls.key"),
        "ca": str(secrets / "ca.pem"),
    }


def test_brokers_show_each_other_the_mills_certificates_beside_own_files(tmp_path: Path) -> None:
    own = "login: users, tls: {certificate: own.pem, key: own.key}"
    found = main_host(tmp_path, TEXT.replace("login: users", own))
    settings = settings_for(found, "broker-1")
    assert settings["tls"]["certificate"] == str(tmp_path / "own.pem")
    assert settings["link_tls"]["certificate"].endswith("secrets/broker-1/tls.pem")
    entry = cluster_entry(found)
    assert entry.security is not None and entry.security.ca is None


def test_brokers_on_one_machine_have_no_files_for_each_other(tmp_path: Path) -> None:
    text = TEXT.split("hosts:")[0].rstrip(", ") + "}\n"
    found = mill(tmp_path, text)
    initialise_mill(found.home, found.config, found.placement)
    assert names(found)[2:5] == ["broker-1", "broker-2", "broker-3"]
    assert settings_for(found, "broker-1")["link_tls"] is None
    assert not (found.home.secrets / "mill").exists()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", {"admin", "mill"}),
        ("security: {super_users: [ops]}\n", {"ops", "mill"}),
        ("security: {super_users: [ops, mill]}\n", {"ops", "mill"}),
    ],
)
def test_the_user_of_the_parts_may_do_everything(
    tmp_path: Path, more: str, expected: set[str]
) -> None:
    config = BrokerConfig.from_json(settings_for(main_host(tmp_path, TEXT + more), "broker-1"))
    assert config.super_user_names == expected


def test_the_user_of_the_parts_is_a_super_user_beside_the_brokers_key(tmp_path: Path) -> None:
    text = TEXT.replace("brokers: 3,", "brokers: 3, settings: {super.users: 'User:ops'},")
    config = BrokerConfig.from_json(settings_for(main_host(tmp_path, text), "broker-1"))
    assert config.super_user_names == {"ops", "mill"}


@pytest.mark.parametrize("broker", [1, 2])
def test_parts_and_commands_enter_as_this_user_on_each_host(tmp_path: Path, broker: int) -> None:
    found = main_host(tmp_path) if broker == 1 else other_host(tmp_path, broker)
    entry = cluster_entry(found)
    assert entry.servers == ",".join(f"{host}:{9191 + n}" for n, host in HOSTS.items())
    assert entry.security is not None
    assert entry.security.user == "mill"
    assert entry.security.ca == str(found.home.data / "ca.pem")
    assert entry.security.password is None
    password = found.home.secrets / "mill" / "password"
    assert entry.security.password_file == str(password)
    assert password.stat().st_mode & 0o777 == 0o600 or broker == 2


def test_secrets_are_made_once_and_only_for_the_parts_of_the_host(tmp_path: Path) -> None:
    found = main_host(tmp_path)
    password = (found.home.secrets / "mill" / "password").read_text()
    assert len(password) >= 24
    assert sorted(one.name for one in found.home.secrets.glob("broker-*")) == ["broker-1"]
    again = initialise_mill(found.home, found.config, found.placement)
    assert again.names == ()
    assert (found.home.secrets / "mill" / "password").read_text() == password


def test_another_host_never_makes_secrets(tmp_path: Path) -> None:
    """With a cluster id of its own the host would form another cluster."""
    joined(tmp_path, 2)
    found = mill(tmp_path)
    with pytest.raises(InitError, match=r"broker-2/cluster_id is missing: join this host again"):
        initialise_mill(found.home, found.config, found.placement)
    write_secrets(tmp_path, 2)
    assert initialise_mill(found.home, found.config, found.placement).names == ()
    assert sorted(one.name for one in found.home.secrets.iterdir()) == [
        "broker-2",
        "host.json",
        "mill",
    ]


def test_the_main_host_is_recognised_by_the_key_of_the_ca_or_by_its_address(tmp_path: Path) -> None:
    assert own_broker(home_of(tmp_path), mill(tmp_path, LOCAL).config) == 1
    config = mill(tmp_path).config
    assert own_broker(home_of(tmp_path), config) is None
    has_authority(tmp_path)
    assert own_broker(home_of(tmp_path), config) == 1


def test_only_the_record_makes_a_machine_another_host(tmp_path: Path) -> None:
    """If two machines have the same name or address, this alone never lets both run the same
    broker."""
    text = TEXT.replace("mill-2.example.org", socket.gethostname().lower() or "localhost")
    config = mill(tmp_path, text).config
    assert config.cluster.hosts is not None and is_this_machine(config.cluster.hosts[2])
    assert own_broker(home_of(tmp_path), config) is None
    joined(tmp_path, 2)
    assert own_broker(home_of(tmp_path), config) == 2


def test_a_record_that_cannot_be_read_is_no_other_host(tmp_path: Path) -> None:
    joined(tmp_path, 2)
    home_of(tmp_path).host_record.write_text("{")
    with pytest.raises(HostRecordFault, match="join again"):
        mill(tmp_path)


def refusal(of: Mill) -> startup.Check:
    [check] = hosts.refusals(of)
    assert check.remedy
    return check


def test_a_machine_that_is_no_host_starts_nothing(tmp_path: Path) -> None:
    found = mill(tmp_path)
    assert names(found) == []
    check = refusal(found)
    assert (
        "none of the hosts mill-1.example.org, mill-2.example.org, mill-3.example.org"
        in check.found
    )
    assert "lead to this machine (DNS or /etc/hosts)" in check.remedy


def test_a_host_that_has_not_joined_is_told_how(tmp_path: Path) -> None:
    # A file with an address of the loopback beside others has a fault.
    found = mill(tmp_path, LOCAL)
    stated = {1: "a.invalid", 2: "b.invalid", 3: "127.0.0.3"}
    cluster = found.config.cluster.model_copy(update={"hosts": stated})
    config = found.config.model_copy(update={"cluster": cluster})
    check = refusal(Mill(found.home, config, Placement()))
    assert (
        check.found
        == "this machine is 127.0.0.3, the host of broker 3, and has not joined the mill"
    )
    assert "`./millrace enrol broker 3` on a.invalid" in check.remedy


def test_a_broker_that_the_file_no_longer_has_is_refused(tmp_path: Path) -> None:
    joined(tmp_path, 4)
    assert "this host has joined as broker 4" in refusal(mill(tmp_path)).found


def test_a_mill_of_one_machine_is_not_spread_over_hosts(tmp_path: Path) -> None:
    """Host 2 would begin with an empty folder, and the data of broker 2 would stay here."""
    found = main_host(tmp_path)
    folder = found.home.part_data("broker-2")
    folder.mkdir(parents=True)
    (folder / "meta.properties").write_text(f"cluster.id={CLUSTER_ID}\nnode.id=2\n")
    check = refusal(found)
    assert check.what == f"data folder {folder}"
    assert "by cluster.hosts this broker runs on mill-2.example.org" in check.found


def test_the_hosts_of_a_cluster_do_not_change(tmp_path: Path) -> None:
    found = main_host(tmp_path)
    write_voters(found.home, 1, HOSTS)
    assert hosts.refusals(found) == []
    check = refusal(mill(tmp_path, TEXT.replace("mill-3", "mill-9")))
    assert check.found == (
        "mill-9.example.org for broker 3, whose host is mill-3.example.org in the data of the"
        " cluster"
    )
    assert "let DNS or /etc/hosts lead the name to the new address" in check.remedy
    closed = mill(tmp_path, "cluster: {brokers: 3}")
    assert "write cluster.hosts as it was" in refusal(closed).remedy


def test_a_cluster_of_one_machine_gets_no_hosts(tmp_path: Path) -> None:
    found = main_host(tmp_path)
    write_voters(found.home, 1, dict.fromkeys(HOSTS, "127.0.0.1"))
    assert "cannot be spread over hosts yet" in refusal(found).remedy
    assert hosts.refusals(mill(tmp_path, "cluster: {brokers: 3}")) == []


def test_names_like_those_of_one_machine_are_hosts(tmp_path: Path) -> None:
    """Without its hosts in the file, such a cluster is not started on one machine."""
    text = TEXT.replace("mill-", "broker-")
    found = main_host(tmp_path, text)
    write_voters(found.home, 1, dict(found.config.cluster.hosts or {}))
    assert hosts.refusals(found) == []
    closed = mill(tmp_path, "cluster: {brokers: 3}")
    assert (
        refusal(closed).found
        == "no host for broker 1, whose host is broker-1.example.org in the data of the cluster"
    )
    changed = mill(tmp_path, text.replace("broker-1.", "broker-9."))
    assert "write broker-1.example.org again" in refusal(changed).remedy


def test_a_name_that_does_not_resolve_is_a_warning(tmp_path: Path) -> None:
    text = LOCAL.replace("127.0.0.3", "nowhere.invalid").replace("127.0.0.1", "a.invalid")
    found = main_host(tmp_path, text.replace("127.0.0.2", "b.invalid"))
    warned = [one for one in hosts.rows(found) if one.level is CheckLevel.WARNING]
    assert [one.what for one in warned] == [f"cluster.hosts.{number}" for number in (1, 2, 3)]
    assert warned[2].found == "the name nowhere.invalid does not resolve on this machine"
    assert hosts.refusals(found) == []


def test_a_name_that_leads_to_another_machine_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The join file was perhaps used on the wrong host, or the name is out of date."""
    found = other_host(tmp_path, 2, TEXT.replace(HOSTS[2], "192.0.2.77"))
    warnings = {one.what: one for one in hosts.rows(found) if one.level is CheckLevel.WARNING}
    warned = warnings["cluster.hosts.2"]
    assert warned.found.startswith("the name 192.0.2.77 leads to 192.0.2.77, but this machine has")
    monkeypatch.setattr(socket, "gethostname", lambda: "192.0.2.77")
    assert hosts.own_name("192.0.2.77", 2).level is CheckLevel.OK


def test_hosts_come_and_go_only_while_the_mill_is_stopped(tmp_path: Path) -> None:
    several, one = main_host(tmp_path), mill(tmp_path, "cluster: {bootstrap_servers: 'k:1'}")
    for started, wanted in ((one, several), (several, one)):
        [check] = hosts.change(started, wanted)
        assert (check.level, check.found) == (
            CheckLevel.FAILED,
            "the key was added or removed while the mill runs",
        )
    assert list(hosts.change(several, mill(tmp_path, TEXT + "ports: {net: 9300}\n"))) == []


def test_what_is_open_names_both_ports(tmp_path: Path) -> None:
    assert opened_text(other_host(tmp_path, 2)) == (
        "Kafka with TLS and logins at 0.0.0.0, ports 9193; the other brokers with certificates at"
        " port 29093; names mill-2.example.org"
    )


def test_ports_are_checked_where_they_are_opened(tmp_path: Path) -> None:
    """A program that has the port at another address of the machine is found too."""
    found = other_host(tmp_path, 2, LOCAL)
    with socket.socket() as taken:
        taken.bind(("127.0.0.9", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = LOCAL + f"ports: {{broker: {port - 1}}}\n"
        checks = {one.what: one for one in startup.ports(mill(tmp_path, text))}
        check = checks[f"port {port} (ports.broker, for broker-2)"]
    assert check.level is CheckLevel.FAILED
    assert found.placement.broker == 2


def test_collectors_join_a_mill_on_several_hosts_by_the_name_of_each(tmp_path: Path) -> None:
    found = main_host(tmp_path)
    (found.home.data / "ca.pem").write_text("the CA")
    entry = entry_of(found.config, found.home)
    assert entry.addresses == tuple(f"{host}:{9191 + n}" for n, host in HOSTS.items())
    assert entry.ca == "the CA"
    assert note_on(found.config) is None
