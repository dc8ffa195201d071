"""`millrace cert`: the CA of a mill, and its brokers' certificates as the brokers take them."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from appliance.cli.app import main
from appliance.config.faults import ConfigFaults
from appliance.config.load import load
from appliance.mill.certificates import CertificateFault, make_missing, renew, shown
from appliance.mill.home import Home, find_home
from appliance.mill.init import initialise, read_secret
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill, broker_settings
from broker.config import BrokerConfig, Listener, TlsFiles
from broker.real.certificates import Certificates

BROKERS = ("broker-1", "broker-2", "broker-3")
NOW = datetime.now(UTC)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    found = find_home({"MILLRACE_HOME": str(tmp_path)})
    found.config_file.parent.mkdir()
    found.config_file.write_text("cluster: {brokers: 3}\n")
    initialise(found, 3)
    yield found


def taken_by_its_broker(home: Home, broker: str, name: str) -> None:
    """Raises ConfigError as the broker does at its start."""
    folder = home.part_secrets(broker)
    files = TlsFiles(
        certificate=str(folder / "tls.pem"),
        key=str(folder / "tls.key"),
        ca=str(folder / "ca.pem"),
    )
    address = Listener(
        host="127.0.0.1", port=1, advertised_host=name, advertised_port=1, security_protocol="SSL"
    )
    config = BrokerConfig(
        part=broker,
        node_id=int(broker[-1]),
        cluster_id=read_secret(home, f"{broker}/cluster_id"),
        log_dir="",
        listeners={"BROKER": address},
        status_host="",
        status_port=0,
        tls=files,
        voters={number: (name, number) for number in (1, 2, 3)},
    )
    Certificates(config, files)


def test_each_broker_takes_its_certificate_by_each_name(home: Home) -> None:
    renew(home, BROKERS, ("mill.example.org", "192.0.2.7"), NOW)
    for broker in BROKERS:
        for name in ("mill.example.org", "192.0.2.7", "127.0.0.1", "localhost", broker):
            taken_by_its_broker(home, broker, name)


def test_keys_are_private_and_what_clients_trust_is_not(home: Home) -> None:
    written = renew(home, BROKERS, (), NOW)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in written}
    public = home.data / "ca.pem"
    assert modes.pop(public) == 0o644
    assert set(modes.values()) == {0o600}
    assert {path.name for path in modes} == {"ca.key", "ca.pem", "tls.key", "tls.pem"}
    assert stat.S_IMODE((home.secrets / "ca").stat().st_mode) == 0o700
    assert b"PRIVATE" not in public.read_bytes()


def test_a_second_time_the_ca_stays_and_the_certificates_are_new(home: Home) -> None:
    renew(home, BROKERS, (), NOW)
    before = {path: path.read_bytes() for path in home.secrets.rglob("*") if path.is_file()}
    renew(home, ("broker-2",), (), NOW)
    changed = {path for path, content in before.items() if path.read_bytes() != content}
    assert changed == {home.secrets / "broker-2" / name for name in ("tls.pem", "tls.key")}


def test_pitfall_24_they_do_not_end_together(home: Home) -> None:
    renew(home, BROKERS, (), NOW)
    ca, *leaves = shown(home, BROKERS)
    assert [one.days_left(NOW) for one in leaves] == [396, 366, 336]
    assert ca.days_left(NOW) == 3_649


def test_a_ca_without_its_key_is_not_replaced_in_silence(home: Home) -> None:
    """It was taken away, as is right; another CA would make all clients' files wrong."""
    renew(home, BROKERS, (), NOW)
    (home.secrets / "ca" / "ca.key").unlink()
    with pytest.raises(CertificateFault, match=r"ca\.key is not here, and only it can sign"):
        renew(home, BROKERS, (), NOW)


def test_the_key_of_another_ca_signs_nothing(home: Home, tmp_path: Path) -> None:
    renew(home, BROKERS, (), NOW)
    other = find_home({"MILLRACE_HOME": str(tmp_path / "other")})
    initialise(other, 1)
    renew(other, ("broker-1",), (), NOW)
    theirs, ours = (one.secrets / "ca" / "ca.key" for one in (other, home))
    ours.write_bytes(theirs.read_bytes())
    with pytest.raises(CertificateFault, match="does not belong to its certificate"):
        renew(home, BROKERS, (), NOW)


def test_the_commands(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cert", "show"]) == 4
    assert "`./millrace cert renew` makes them" in capsys.readouterr().err
    assert main(["cert", "renew", "--name", "mill.example.org"]) == 0
    said = capsys.readouterr()
    assert "data/secrets/broker-3/tls.key" in said.out
    assert "clients trust" in said.err
    assert main(["cert", "show"]) == 0
    assert "mill.example.org, 127.0.0.1, localhost, broker-2" in capsys.readouterr().out
    assert main(["cert", "renew", "--for", "broker-9"]) == 2
    assert "expected one of broker-1, broker-2, broker-3" in capsys.readouterr().err


def test_what_ends_soon_or_cannot_be_read_is_due(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    renew(home, BROKERS, (), NOW - timedelta(days=350))
    (home.secrets / "broker-1" / "tls.pem").write_text("half")
    assert main(["cert", "show"]) == 3
    said = capsys.readouterr()
    assert "not a certificate in PEM format" in said.out
    assert "due: broker-1, broker-2, broker-3" in said.err


def opened(home: Home, tls: str = "") -> Mill:
    home.config_file.write_text(
        f"network: {{open: [kafka], names: [mill.example.org, localhost]{tls}}}\n"
        "cluster: {brokers: 3}\n"
    )
    config = load(home.config_file, home.folder, {}).config
    return Mill(home, config, Placement())


def test_an_open_mill_gives_each_broker_a_listener_on_the_loopback(home: Home) -> None:
    mill = opened(home)
    assert make_missing(home, mill.config, NOW)
    assert make_missing(home, mill.config, NOW) == []
    for number, broker in enumerate(BROKERS):
        settings = BrokerConfig.from_json(broker_settings(mill, broker))
        net = settings.listeners["NET"]
        assert (net.host, net.port) == ("127.0.0.1", 9192 + number)
        assert (net.advertised_host, net.security_protocol) == ("mill.example.org", "SSL")
        assert {one.security_protocol for one in settings.listeners.values()} == {
            "PLAINTEXT",
            "SSL",
        }
        assert settings.tls is not None
        Certificates(settings, settings.tls)
    assert any(("ports.net", 9194) in part.ports for part in mill.parts)


def test_a_mill_that_opens_nothing_has_no_listener_and_makes_no_certificates(home: Home) -> None:
    mill = Mill(home, load(home.config_file, home.folder, {}).config, Placement())
    assert make_missing(home, mill.config, NOW) == []
    settings = broker_settings(mill, "broker-1")
    assert set(settings["listeners"]) == {"HOST", "MILL", "BROKER"}
    assert settings["tls"] is None
    assert not any("ports.net" in dict(part.ports) for part in mill.parts)


def test_files_of_the_users_own_are_taken_from_the_mills_folder(home: Home) -> None:
    mill = opened(home, ", tls: {certificate: own/mill.pem, key: /etc/mill.key}")
    assert make_missing(home, mill.config, NOW) == []
    assert broker_settings(mill, "broker-1")["tls"] == {
        "certificate": str(home.folder / "own" / "mill.pem"),
        "key": "/etc/mill.key",
        "ca": None,
    }


def test_in_containers_nothing_is_opened(home: Home) -> None:
    home.config_file.write_text("network: {open: [kafka], names: [localhost]}\n")
    with pytest.raises(ConfigFaults, match="it is not offered in containers yet"):
        load(home.config_file, home.folder, {"MILLRACE_PUBLISHED": "loopback"})
