"""`millrace cert`: the CA of a mill, and certificates that its brokers can load."""

from __future__ import annotations

import contextlib
import json
import shutil
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from appliance.checks import startup
from appliance.checks.certificates import ends
from appliance.checks.startup import CheckLevel
from appliance.cli import mill_commands
from appliance.cli.app import main
from appliance.config.load import load
from appliance.machine.files import write_atomically
from appliance.mill import certificates
from appliance.mill.authority import LeafRequest, names_of, new_authority, new_leaf
from appliance.mill.certificate_holders import CertificateUse, Holder
from appliance.mill.certificates import CertificateFault, make_needed, renew, shown
from appliance.mill.home import Home, find_home
from appliance.mill.init import initialise, read_secret
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill, broker_settings
from appliance.output import CommandError
from broker.config import BrokerConfig, Listener, TlsFiles
from broker.real.certificates import Certificates

BROKERS = ("broker-1", "broker-2", "broker-3")


def brokers(*names: str, of: tuple[str, ...] = BROKERS) -> list[Holder]:
    """Return the brokers as holders of certificates with these names."""
    return [Holder(one, names, CertificateUse.BROKER) for one in of]


NOW = datetime.now(UTC)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    found = find_home({"MILLRACE_HOME": str(tmp_path)})
    found.config_file.parent.mkdir()
    found.config_file.write_text("cluster: {brokers: 3}\n")
    initialise(found, (1, 2, 3))
    yield found


def taken_by_its_broker(home: Home, broker: str, name: str) -> None:
    """Load the certificate as the broker does at its start. Raises ConfigError."""
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
    renew(home, brokers("mill.example.org", "192.0.2.7"), NOW)
    for broker in BROKERS:
        for name in ("mill.example.org", "192.0.2.7", "127.0.0.1", "localhost", broker):
            taken_by_its_broker(home, broker, name)


def test_a_part_that_is_no_broker_gets_a_certificate_for_servers_only(home: Home) -> None:
    """With it, the part cannot connect to a broker as a broker."""
    holders = [*brokers("mill.example.org"), Holder("monitor", ("mill.example.org", "192.0.2.7"))]
    written = renew(home, holders, NOW)
    folder = home.part_secrets("monitor")
    assert {folder / name for name in ("tls.pem", "tls.key", "ca.pem")} <= set(written)
    found = x509.load_pem_x509_certificate((folder / "tls.pem").read_bytes())
    purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names = {"mill.example.org", "192.0.2.7", "127.0.0.1", "localhost", "monitor"}
    assert set(names_of(found)) == names
    broker = x509.load_pem_x509_certificate((home.secrets / "broker-1" / "tls.pem").read_bytes())
    purposes = broker.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(purposes) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert found.not_valid_after_utc == broker.not_valid_after_utc
    assert found.issuer == broker.issuer


def test_keys_are_private_and_what_clients_trust_is_not(home: Home) -> None:
    written = renew(home, brokers(), NOW)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in written}
    public = home.data / "ca.pem"
    assert modes.pop(public) == 0o644
    assert set(modes.values()) == {0o600}
    assert {path.name for path in modes} == {"ca.key", "ca.pem", "tls.key", "tls.pem"}
    assert stat.S_IMODE((home.secrets / "ca").stat().st_mode) == 0o700
    assert b"PRIVATE" not in public.read_bytes()


def test_a_private_key_is_not_printed() -> None:
    assert "PRIVATE" not in repr(new_authority("a cluster", NOW))


def test_a_second_time_the_ca_stays_and_the_certificates_are_new(home: Home) -> None:
    renew(home, brokers(), NOW)
    before = {path: path.read_bytes() for path in home.secrets.rglob("*") if path.is_file()}
    renew(home, brokers(of=("broker-2",)), NOW)
    changed = {path for path, content in before.items() if path.read_bytes() != content}
    assert changed == {home.secrets / "broker-2" / name for name in ("tls.pem", "tls.key")}


def test_pitfall_24_they_do_not_end_together(home: Home) -> None:
    renew(home, brokers(), NOW)
    ca, *leaves = shown(home, load(home.config_file, home.folder, {}).config)
    assert [one.days_left(NOW) for one in leaves] == [396, 366, 336]
    assert ca.days_left(NOW) == 3_649


def test_a_ca_without_its_key_is_not_replaced_in_silence(home: Home) -> None:
    """Removing the CA's key is good practice. `renew` must refuse instead of creating a new CA,
    which would invalidate the files of all clients."""
    renew(home, brokers(), NOW)
    (home.secrets / "ca" / "ca.key").unlink()
    with pytest.raises(
        CertificateFault, match=r"ca\.key, the key of the CA, is missing, and without it"
    ):
        renew(home, brokers(), NOW)


def test_the_key_of_another_ca_signs_nothing(home: Home, tmp_path: Path) -> None:
    renew(home, brokers(), NOW)
    other = find_home({"MILLRACE_HOME": str(tmp_path / "other")})
    initialise(other, (1,))
    renew(other, brokers(of=("broker-1",)), NOW)
    theirs, ours = (one.secrets / "ca" / "ca.key" for one in (other, home))
    ours.write_bytes(theirs.read_bytes())
    with pytest.raises(CertificateFault, match="does not belong to its certificate"):
        renew(home, brokers(), NOW)


def test_the_commands(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    opened(home)
    assert main(["cert", "show"]) == 4
    assert "`./millrace cert renew` makes them" in capsys.readouterr().err
    assert main(["cert", "renew"]) == 0
    said = capsys.readouterr()
    assert "data/secrets/broker-3/tls.key" in said.out
    assert "clients trust" in said.err
    assert main(["cert", "show"]) == 0
    assert "mill.example.org, localhost, 127.0.0.1, broker-2" in capsys.readouterr().out
    assert main(["cert", "renew", "--for", "broker-9"]) == 2
    assert "expected one of broker-1, broker-2, broker-3" in capsys.readouterr().err


def test_what_ends_soon_or_cannot_be_read_is_due(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    renew(home, brokers(), NOW - timedelta(days=350))
    (home.secrets / "broker-1" / "tls.pem").write_text("half")
    assert main(["cert", "show"]) == 3
    said = capsys.readouterr()
    assert "not a certificate in PEM format" in said.out
    for broker in BROKERS:
        assert f"certificate of {broker}: " in said.err


def opened(home: Home, tls: str = "", names: str = "mill.example.org, localhost") -> Mill:
    home.config_file.write_text(
        f"network: {{open: [kafka], names: [{names}]{tls}}}\ncluster: {{brokers: 3}}\n"
    )
    config = load(home.config_file, home.folder, {}).config
    return Mill(home, config, Placement())


def changed_by(home: Home, mill: Mill, now: datetime = NOW) -> set[str]:
    """Return the files that a start of the mill writes, as paths below the folder `data`."""
    return {str(path.relative_to(home.data)) for path in make_needed(home, mill.config, now)}


PAIRS = {f"secrets/{broker}/{name}" for broker in BROKERS for name in ("tls.pem", "tls.key")}
COPIES = {f"secrets/{broker}/ca.pem" for broker in BROKERS}


def test_a_start_after_other_names_makes_other_certificates(home: Home) -> None:
    make_needed(home, opened(home).config, NOW)
    mill = opened(home, names="other.example.org")
    assert changed_by(home, mill) == PAIRS | COPIES
    for broker in BROKERS:
        taken_by_its_broker(home, broker, "other.example.org")
    assert shown(home, mill.config)[1].names[0] == "other.example.org"
    assert changed_by(home, mill) == set()
    fewer = opened(home, names="localhost")
    assert changed_by(home, fewer) == PAIRS | COPIES
    assert "other.example.org" not in shown(home, fewer.config)[1].names


def test_names_too_many_do_not_stop_a_mill_without_the_key_of_its_ca(home: Home) -> None:
    make_needed(home, opened(home).config, NOW)
    (home.secrets / "ca" / "ca.key").unlink()
    assert changed_by(home, opened(home, names="localhost")) == set()
    with pytest.raises(CertificateFault, match=r"ca\.key, the key of the CA, is missing"):
        make_needed(home, opened(home, names="other.example.org").config, NOW)


def test_a_start_makes_what_has_ended_and_what_does_not_belong_together(home: Home) -> None:
    mill = opened(home)
    make_needed(home, mill.config, NOW - timedelta(days=380))
    assert changed_by(home, mill) == {
        f"secrets/{broker}/{name}"
        for broker in ("broker-2", "broker-3")
        for name in ("ca.pem", "tls.pem", "tls.key")
    }
    ours, other = (home.secrets / broker / "tls.key" for broker in BROKERS[:2])
    ours.write_bytes(other.read_bytes())
    (home.secrets / "broker-3" / "tls.pem").write_text("half")
    assert {name.split("/")[1] for name in changed_by(home, mill)} == {"broker-1", "broker-3"}
    for broker in BROKERS:
        taken_by_its_broker(home, broker, "mill.example.org")


def test_missing_and_old_copies_of_the_ca_are_written_again(home: Home) -> None:
    mill = opened(home)
    make_needed(home, mill.config, NOW)
    kept = (home.secrets / "ca" / "ca.pem").read_bytes()
    (home.data / "ca.pem").unlink()
    (home.secrets / "broker-2" / "ca.pem").unlink()
    (home.secrets / "broker-3" / "ca.pem").write_text("old")
    (home.secrets / "ca" / "ca.key").unlink()
    assert changed_by(home, mill) == {
        "ca.pem",
        "secrets/broker-2/ca.pem",
        "secrets/broker-3/ca.pem",
    }
    assert (home.data / "ca.pem").read_bytes() == kept
    taken_by_its_broker(home, "broker-3", "mill.example.org")


def test_another_ca_reaches_all_files(home: Home) -> None:
    mill = opened(home)
    make_needed(home, mill.config, NOW)
    before = (home.data / "ca.pem").read_bytes()
    (home.secrets / "ca").rename(home.folder / "away")
    assert changed_by(home, mill) == set(), "the old CA serves until `cert renew`"
    renew(home, brokers(*mill.config.network.names, of=("broker-1",)), NOW)
    assert changed_by(home, mill) == {
        f"secrets/{broker}/{name}"
        for broker in ("broker-2", "broker-3")
        for name in ("ca.pem", "tls.pem", "tls.key")
    }
    assert (home.data / "ca.pem").read_bytes() != before
    for broker in BROKERS:
        taken_by_its_broker(home, broker, "mill.example.org")


class Killed(BaseException):
    """Stands for the end of the process between two files."""


class KilledWriter:
    """Writes a given number of files and then raises `Killed`."""

    def __init__(self, files: int) -> None:
        self.left = files

    def __call__(self, path: Path, data: bytes, *, mode: int) -> None:
        if not self.left:
            raise Killed
        self.left -= 1
        write_atomically(path, data, mode=mode)


def test_a_start_after_a_kill_at_each_step(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start is killed at each step, and so is a renewal. After the next start, every
    broker must use the CA that clients have."""
    mill = opened(home)
    for is_renewal in (False, True):
        for steps in range(13):
            shutil.rmtree(home.secrets / "ca", ignore_errors=True)
            if not is_renewal:
                for path in (home.data / "ca.pem", *home.secrets.rglob("*.pem")):
                    path.unlink(missing_ok=True)
            monkeypatch.setattr(certificates, "write_atomically", KilledWriter(steps))
            if steps < 12:
                with pytest.raises(Killed):
                    renew(home, brokers(*mill.config.network.names), NOW)
            else:
                renew(home, brokers(*mill.config.network.names), NOW)
            monkeypatch.setattr(certificates, "write_atomically", write_atomically)
            make_needed(home, mill.config, NOW)
            public = (home.data / "ca.pem").read_bytes()
            for broker in BROKERS:
                assert (home.secrets / broker / "ca.pem").read_bytes() == public
                taken_by_its_broker(home, broker, "mill.example.org")
            assert make_needed(home, mill.config, NOW) == []


def test_a_key_without_the_certificate_of_its_ca(home: Home) -> None:
    """`renew` reads the CA's certificate from the copy for clients. Without that copy it refuses,
    because a new CA would invalidate the clients' files."""
    mill = opened(home)
    make_needed(home, mill.config, NOW)
    (home.secrets / "ca" / "ca.pem").unlink()
    renew(home, brokers(*mill.config.network.names), NOW)
    (home.data / "ca.pem").unlink()
    with pytest.raises(CertificateFault, match=r"the certificate of the CA, is missing"):
        renew(home, brokers(*mill.config.network.names), NOW)


def test_no_certificate_ends_after_its_ca(home: Home) -> None:
    mill = opened(home)
    made_at = NOW - timedelta(days=3_600)
    renew(home, brokers(*mill.config.network.names), made_at)
    renew(home, brokers(*mill.config.network.names), NOW)
    assert {one.ends_at.date() for one in shown(home, mill.config)} == {
        (made_at + timedelta(days=3_650)).date()
    }
    with pytest.raises(
        CertificateFault, match=r"the CA's certificate ended on .*; move data/secrets/ca away"
    ):
        renew(home, brokers(*mill.config.network.names), NOW + timedelta(days=50))


def test_the_end_of_the_ca_is_told(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    mill = opened(home)
    renew(home, brokers(*mill.config.network.names), NOW - timedelta(days=3_600))
    assert main(["cert", "show"]) == 3
    assert "certificate of CA: ends on" in capsys.readouterr().err
    ca, *_ = ends(mill, NOW)
    assert (ca.level, ca.what) == (CheckLevel.WARNING, "certificate of CA")
    assert "in 49 days" in ca.found
    assert "give clients the new data/ca.pem" in ca.remedy


def test_renewed_files_as_json(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cert", "renew", "--for", "broker-1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "cert-renewed/1"
    assert len(found["data"]) == 6


def own_files(home: Home, *names: str, days: int = 90) -> Mill:
    """Return a mill with a key and a certificate of the user, which another CA has signed."""
    mill = opened(home, ", tls: {certificate: own.pem, key: own.key, ca: own-ca.pem}", *names)
    authority = new_authority("theirs", NOW - timedelta(days=100))
    leaf = new_leaf(
        authority,
        LeafRequest("mill", "theirs", ("mill.example.org", "localhost"), days),
        NOW - timedelta(days=50),
    )
    (home.folder / "own-ca.pem").write_bytes(authority.certificate)
    (home.folder / "own.pem").write_bytes(leaf.certificate)
    (home.folder / "own.key").write_bytes(leaf.key)
    (home.folder / "own.key").chmod(0o600)
    return mill


def test_files_of_the_users_own_are_shown_and_not_renewed(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    mill = own_files(home, days=60)
    assert main(["cert", "show"]) == 3
    said = capsys.readouterr()
    assert "mill.example.org, localhost" in said.out
    assert f"; write a new one to {home.folder / 'own.pem'}" in said.err
    assert main(["cert", "renew"]) == 1
    assert "your own files (network.tls), which only you can renew" in capsys.readouterr().err
    assert [check.level for check in ends(mill, NOW)] == [CheckLevel.OK, CheckLevel.WARNING]


def test_good_files_of_the_users_own_let_a_mill_start(home: Home) -> None:
    assert list(startup.own_certificate(own_files(home))) == []


@pytest.mark.parametrize(
    ("spoil", "what", "said"),
    [
        ("other name", "network.tls.certificate", "a certificate with other.example.org among"),
        ("ended", "network.tls.certificate", "expected a certificate that is valid now"),
        ("other key", "network.tls.key", "which is not the key of"),
        ("readable", "network.tls.key", "with mode 0644, so other users can read it"),
        ("missing", "network.tls.certificate", "own.pem: No such file or directory"),
        ("other CA", "network.tls.certificate", "a CA of tls.ca has signed"),
    ],
)
def test_wrong_files_of_the_users_own_are_a_fault_before_the_start(
    home: Home, spoil: str, what: str, said: str
) -> None:
    mill = own_files(home, days=10 if spoil == "ended" else 90)
    folder = home.folder
    if spoil == "other name":
        mill = own_files(home, "mill.example.org, other.example.org")
    elif spoil == "other key":
        (folder / "own.key").write_bytes(new_authority("x", NOW).key)
    elif spoil == "readable":
        (folder / "own.key").chmod(0o644)
    elif spoil == "missing":
        (folder / "own.pem").unlink()
    elif spoil == "other CA":
        (folder / "own-ca.pem").write_bytes(new_authority("x", NOW).certificate)
    [check] = startup.own_certificate(mill)
    assert (check.level, check.what) == (CheckLevel.FAILED, what)
    assert said in check.found
    assert check in startup.before_start(mill)


@pytest.mark.parametrize("spoil", [True, False])
def test_wrong_files_are_a_fault_before_a_running_mill_is_changed(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spoil: bool
) -> None:
    """Otherwise `up --apply` would stop a broker that then cannot start, and `restart` the mill."""
    monkeypatch.setattr(mill_commands, "judge", lambda *_: None)
    mill = own_files(home)
    if spoil:
        (home.folder / "own.pem").unlink()
    with pytest.raises(CommandError) if spoil else contextlib.nullcontext():
        mill_commands.refuse_what_cannot_run(mill, load(home.config_file, home.folder), None)
    assert ("network.tls.certificate: found" in capsys.readouterr().err) is spoil


def test_an_open_mill_gives_each_broker_a_listener_on_the_loopback(home: Home) -> None:
    mill = opened(home)
    assert make_needed(home, mill.config, NOW)
    assert make_needed(home, mill.config, NOW) == []
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


def test_an_open_mill_with_users_asks_for_a_login_and_its_brokers_share_a_secret(
    home: Home,
) -> None:
    mill = opened(home, ", login: users")
    make_needed(home, mill.config, NOW)
    found = [BrokerConfig.from_json(broker_settings(mill, broker)) for broker in BROKERS]
    assert {one.listeners["NET"].security_protocol for one in found} == {"SASL_SSL"}
    assert {one.listeners["HOST"].security_protocol for one in found} == {"PLAINTEXT"}
    assert {one.super_user_names for one in found} == {frozenset({"admin"})}
    secrets = {one.login_secret for one in found}
    assert len(secrets) == 1 and len(secrets.pop()) >= 24
    grown = home.secrets / "broker-3" / "login_secret"
    kept = grown.read_bytes()
    grown.unlink()
    initialise(home, (1, 2, 3))
    assert grown.read_bytes() == kept
    assert broker_settings(opened(home), "broker-1")["login_secret"] is None


def test_a_mill_that_opens_nothing_has_no_listener_and_makes_no_certificates(home: Home) -> None:
    mill = Mill(home, load(home.config_file, home.folder, {}).config, Placement())
    assert make_needed(home, mill.config, NOW) == []
    settings = broker_settings(mill, "broker-1")
    assert set(settings["listeners"]) == {"HOST", "MILL", "BROKER"}
    assert settings["tls"] is None
    assert not any("ports.net" in dict(part.ports) for part in mill.parts)


def test_files_of_the_users_own_are_taken_from_the_mills_folder(home: Home) -> None:
    mill = opened(home, ", tls: {certificate: own/mill.pem, key: /etc/mill.key}")
    assert make_needed(home, mill.config, NOW) == []
    assert broker_settings(mill, "broker-1")["tls"] == {
        "certificate": str(home.folder / "own" / "mill.pem"),
        "key": "/etc/mill.key",
        "ca": None,
    }
