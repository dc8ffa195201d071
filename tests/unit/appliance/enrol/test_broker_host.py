"""A broker's host joins: the file from the main host, what `join` writes, and what it refuses.

`cert renew --for` and `cert install` take a new certificate the same way.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from appliance.checks import startup
from appliance.checks.opened import opened_text
from appliance.checks.startup import CheckLevel
from appliance.cli.app import main
from appliance.config.load import load
from appliance.enrol.broker_file import (
    BrokerFile,
    encode_broker,
    encode_certificate,
    parse_broker,
    parse_certificate,
)
from appliance.enrol.broker_host import refuse_leaf
from appliance.enrol.envelope import JoinFileFault
from appliance.machine.files import write_atomically
from appliance.mill.authority import leaf_names, names_of
from appliance.mill.certificates import CertificateFault, make_needed, shown
from appliance.mill.home import CODE, Home
from appliance.mill.hosts import read_record
from appliance.mill.init import renew_readers
from appliance.mill.settings import settings_for
from appliance.operate import lifecycle
from appliance.output import CommandError
from broker.config import BrokerConfig
from tests.unit.appliance.hosted import (
    HOSTS,
    LOCAL,
    OPEN,
    TEXT,
    home_of,
    joined,
    mill,
    write_voters,
)

MORE = "topics: [{name: logs.a, partitions: 3}]\nports: {net: 9300}\n"


class Machines:
    """The main host and another one, with the command line of each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.homes = {number: home_of(folder / f"host-{number}") for number in (1, 2, 3)}
        self._monkeypatch = monkeypatch
        for home in self.homes.values():
            home.folder.mkdir()
        self.write(1, TEXT + MORE)
        # The main host is recognised by the key of its CA.
        place = self.homes[1].secrets / "ca"
        place.mkdir(parents=True)
        monkeypatch.chdir(folder)

    def write(self, number: int, text: str) -> None:
        path = self.homes[number].config_file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, number: int, *words: str) -> int:
        self._monkeypatch.setenv("MILLRACE_HOME", str(self.homes[number].folder))
        return main(list(words))

    def enrol(self, number: int = 2) -> Path:
        assert self.run(1, "enrol", "broker", str(number)) == 0
        return self.folder / f"broker-{number}.join"


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    monkeypatch.setattr(
        "appliance.mill.hosts.is_this_machine", lambda host: host in (HOSTS[1], "127.0.0.1")
    )
    return Machines(tmp_path, monkeypatch)


def content(home: Home, name: str) -> str:
    return (home.secrets / name).read_text()


def test_a_host_gets_what_it_needs_and_not_the_key_of_the_ca(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    file = machines.enrol()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().startswith("millrace-join-1 broker\n")
    main_home, home = machines.homes[1], machines.homes[2]
    key = main_home.authority_key.read_text()
    found = parse_broker(file.read_text())
    assert key not in json.dumps([found.leaf.ca, found.leaf.key, found.leaf.certificate])
    assert machines.run(2, "join", str(file)) == 0
    out = capsys.readouterr()
    assert "this host is the host of broker 2, beside mill-1.example.org" in out.out + out.err
    assert not home.authority_key.exists()
    for name in ("cluster_id", "login_secret"):
        assert content(home, f"broker-2/{name}") == content(main_home, f"broker-1/{name}")
    assert content(home, "mill/password") == content(main_home, "mill/password")
    assert (home.data / "ca.pem").read_bytes() == (main_home.data / "ca.pem").read_bytes()
    for path in home.secrets.rglob("*"):
        assert path.is_dir() or path.stat().st_mode & 0o777 == 0o600, path


def test_its_configuration_has_the_same_sections_and_its_broker_starts_with_them(
    machines: Machines,
) -> None:
    assert machines.run(2, "join", str(machines.enrol())) == 0
    config = load(machines.homes[2].config_file, machines.homes[2].folder, {}).config
    wanted = load(machines.homes[1].config_file, machines.homes[1].folder, {}).config
    for section in ("cluster", "topics", "network", "security", "ports"):
        assert getattr(config, section) == getattr(wanted, section)
    there = mill(machines.homes[2].folder, machines.homes[2].config_file.read_text())
    assert make_needed(there.home, there.config, datetime.now(UTC)) == []
    settings = settings_for(there, "broker-2")
    broker = BrokerConfig.from_json(settings)
    assert broker.node_id == 2
    link = settings["link_tls"]
    pair = Path(link["certificate"]).read_bytes(), Path(link["key"]).read_bytes()
    names = leaf_names(*pair, Path(link["ca"]).read_bytes(), datetime.now(UTC))
    assert names == {"mill-2.example.org", "broker-2", "localhost", "127.0.0.1"}


def test_texts_of_the_file_stay_what_they_are(machines: Machines) -> None:
    """In the written file no text becomes a number, a date or a reference."""
    racks = "racks: ['08', '2026-12-01', 'a$${b}'], settings: {log.retention.hours: 7}"
    machines.write(1, TEXT.replace("brokers: 3,", f"brokers: 3, {racks},"))
    assert machines.run(2, "join", str(machines.enrol())) == 0
    config = load(machines.homes[2].config_file, machines.homes[2].folder, {}).config
    assert config.cluster.racks == ("08", "2026-12-01", "a${b}")
    assert config.cluster.settings == {"log.retention.hours": 7}


def test_what_only_the_main_host_opens_stays_there(machines: Machines) -> None:
    """The page, Redis and MySQL open on the main host. Its whole file can be on each host."""
    monitor = "monitor: {listen: '192.0.2.77:8090', login: users}\n"
    opened = OPEN.replace("[kafka]", "[kafka, page, redis, mysql], names: [mill.example.org]")
    whole = TEXT.replace(OPEN, opened) + monitor
    machines.write(1, whole)
    file, home = machines.enrol(), machines.homes[2]
    assert machines.run(2, "join", str(file)) == 0
    written = mill(home.folder, home.config_file.read_text())
    machines.write(2, whole)
    assert machines.run(2, "join", str(file)) == 0
    assert home.config_file.read_text() == whole
    for there in (written, mill(home.folder, whole)):
        assert [part.name for part in there.parts] == ["broker-2"]
        assert [one for one in startup.network(there) if one.level is CheckLevel.FAILED] == []
        assert "page" not in opened_text(there)
        assert renew_readers(home, there.config.network.open) == []
    assert make_needed(home, written.config, datetime.now(UTC)) == []


def test_the_same_command_continues_after_an_interruption_anywhere(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is interrupted at each of its writes in turn. A host without a record starts
    nothing, and the same command completes the files."""
    file = machines.enrol()
    real = write_atomically
    names = [
        f"appliance.{one}.write_atomically" for one in ("enrol.broker_host", "mill.certificates")
    ]
    for count in range(20):
        left = [count]

        def failing(*args: object, left: list[int] = left, **more: object) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            real(*args, **more)  # type: ignore[arg-type]

        home = machines.homes[2]
        for name in names:
            monkeypatch.setattr(name, failing)
        code = machines.run(2, "join", str(file))
        for name in names:
            monkeypatch.setattr(name, real)
        if code == 0:
            break
        assert read_record(home) is None
        assert machines.run(2, "join", str(file)) == 0
        assert read_record(home) is not None
        for path in (*home.secrets.rglob("*.*"), home.config_file):
            path.unlink()
    assert count > 6


def test_it_can_be_repeated(machines: Machines) -> None:
    file = machines.enrol()
    assert machines.run(2, "join", str(file)) == 0
    before = machines.homes[2].config_file.read_bytes()
    assert machines.run(2, "join", str(file)) == 0
    assert machines.homes[2].config_file.read_bytes() == before


def test_the_operators_own_file_with_the_same_sections_is_kept(machines: Machines) -> None:
    own = TEXT + MORE + "# mine\ncollector: {inputs: []}\n"
    machines.write(2, own)
    assert machines.run(2, "join", str(machines.enrol())) == 0
    assert machines.homes[2].config_file.read_text() == own


def test_the_shipped_file_of_a_clone_is_replaced_and_that_is_said(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    machines.write(2, (CODE / "configs" / "millrace.yaml").read_text())
    assert machines.run(2, "join", str(machines.enrol())) == 0
    out = capsys.readouterr()
    assert "was the shipped file, and has the settings of this host now" in out.out + out.err


def refused(machines: Machines, number: int, *words: str, code: int = 3) -> None:
    before = {
        path: path.read_bytes()
        for path in machines.homes[number].folder.rglob("*")
        if path.is_file()
    }
    assert machines.run(number, *words) == code
    for path, data in before.items():
        assert path.read_bytes() == data
    assert {one for one in machines.homes[number].folder.rglob("*") if one.is_file()} == set(before)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("net: 9300", "net: 9400", "ports.net"),
        ("mill-3", "mill-4", "cluster.hosts"),
        ("partitions: 3", "partitions: 4", "topics"),
    ],
)
def test_another_file_is_never_overwritten(
    machines: Machines, old: str, new: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    machines.write(2, (TEXT + MORE).replace(old, new))
    file = machines.enrol()
    refused(machines, 2, "join", str(file))
    assert f"differs from the configuration of the main host in {key}" in capsys.readouterr().err


def test_folders_of_other_mills_are_refused(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    file = machines.enrol()
    refused(machines, 1, "join", str(file))
    assert "a mill with a CA of its own" in capsys.readouterr().err
    home = machines.homes[2]
    home.part_data("broker-2").mkdir(parents=True)
    meta = home.part_data("broker-2") / "meta.properties"
    meta.write_text("cluster.id=another\nnode.id=2\n")
    refused(machines, 2, "join", str(file))
    assert "has the data of cluster another" in capsys.readouterr().err
    meta.unlink()
    joined(home.folder, 2)
    refused(machines, 2, "join", str(file))
    assert "this folder has joined cluster AAAA" in capsys.readouterr().err
    home.host_record.unlink()
    assert machines.run(2, "join", str(file)) == 0
    other = machines.enrol(3)
    refused(machines, 2, "join", str(other))
    assert "as broker 2, and the file is for broker 3" in capsys.readouterr().err


def test_a_running_mill_is_not_changed(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = machines.enrol()
    monkeypatch.setattr(lifecycle, "is_running", lambda home: True)
    refused(machines, 2, "join", str(file))
    assert "`./millrace down` stops it" in capsys.readouterr().err


def test_pitfall_35_wrong_files_are_refused(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    file = machines.enrol()
    text = file.read_text()
    found = parse_broker(text)
    fields = {one: getattr(found, one) for one in BrokerFile.__dataclass_fields__}
    cases = {
        text[: len(text) // 2]: (2, "cut or damaged"),
        text.replace("join-1", "join-9", 1): (2, "version 9, expected 1"),
        text.replace("1 broker", "1 certificate", 1): (2, "join file for certificate"),
        encode_broker(BrokerFile(**{**fields, "version": "0.0.1"})): (3, "runs millrace 0.0.1"),
        encode_broker(BrokerFile(**{**fields, "sections": {"cluster": {}}})): (
            2,
            "make another join file",
        ),
        encode_broker(BrokerFile(**{**fields, "sections": {"ports": 7}})): (2, "has a fault"),
    }
    for changed, (code, reason) in cases.items():
        file.write_text(changed)
        refused(machines, 2, "join", str(file), code=code)
        said = capsys.readouterr().err
        assert reason in said
        assert found.leaf.key not in said and found.password not in said


def test_an_unknown_section_is_no_join_file(machines: Machines) -> None:
    found = parse_broker(machines.enrol().read_text())
    fields = {one: getattr(found, one) for one in BrokerFile.__dataclass_fields__}
    with pytest.raises(JoinFileFault, match="another version"):
        parse_broker(encode_broker(BrokerFile(**{**fields, "sections": {"monitor": {}}})))


def test_no_text_of_a_file_becomes_a_key_of_the_configuration(machines: Machines) -> None:
    """The name of the main host is written into a comment, so it has no line end. A certificate is
    ASCII text."""
    found = parse_broker(machines.enrol().read_text())
    fields = {one: getattr(found, one) for one in BrokerFile.__dataclass_fields__}
    for host in ("h\nmonitor: {admin: true}\n#", "h\u2028x", "h\x1b[2J", "h\x85x", ""):
        with pytest.raises(JoinFileFault, match="another version"):
            parse_broker(encode_broker(BrokerFile(**{**fields, "main_host": host})))
    for name in ("certificate", "key", "ca"):
        damaged: dict[str, Any] = {name: "\ud800"}
        leaf = replace(found.leaf, **damaged)
        with pytest.raises(JoinFileFault, match="another version"):
            parse_certificate(encode_certificate(leaf))


def test_pitfall_27_a_clock_that_is_wrong_is_named(machines: Machines) -> None:
    """A certificate is valid from a day before it was made, and a clock can be slower than that."""
    leaf = parse_broker(machines.enrol().read_text()).leaf
    now = datetime.now(UTC)
    refuse_leaf(leaf, now - timedelta(hours=23))
    for wrong in (now - timedelta(hours=25), now + timedelta(days=400)):
        with pytest.raises(CommandError, match=re.escape(f"{wrong:%Y-%m-%d %H:%M} UTC, the time")):
            refuse_leaf(leaf, wrong)


def test_enrol_is_refused_without_hosts_and_for_wrong_brokers(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, code, reason in ((4, 2, "expected one of 1, 2, 3"), (1, 2, "on the main host")):
        assert machines.run(1, "enrol", "broker", str(number)) == code
        assert reason in capsys.readouterr().err
    assert machines.run(2, "join", str(machines.enrol())) == 0
    capsys.readouterr()
    assert machines.run(2, "enrol", "broker", "3") == 3
    assert "on the main host, mill-1.example.org: type this command there" in (
        capsys.readouterr().err
    )
    machines.write(3, "cluster: {brokers: 3}")
    assert machines.run(3, "enrol", "broker", "2") == 3
    assert "write the host of each broker into cluster.hosts" in capsys.readouterr().err


def test_a_host_whose_name_leads_elsewhere_is_told(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    """For example because host 3 got the file of host 2."""
    machines.write(1, TEXT.replace(HOSTS[2], "192.0.2.77"))
    assert machines.run(2, "join", str(machines.enrol())) == 0
    assert "the name 192.0.2.77 leads to 192.0.2.77, but this machine" in capsys.readouterr().err


def test_a_file_that_join_could_not_read_is_not_written(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ", ".join(f"{{name: {'a' * 200}.{number}}}" for number in range(1_000))
    machines.write(1, f"{TEXT}topics: [{names}]\n")
    assert machines.run(1, "enrol", "broker", "2") == 3
    assert "expected at most 262144: its largest section is topics" in capsys.readouterr().err
    assert not (machines.folder / "broker-2.join").exists()


def test_no_secret_is_printed(machines: Machines) -> None:
    found = parse_broker(machines.enrol().read_text())
    for secret in (found.leaf.key, found.login_secret, found.password):
        assert secret not in repr(found)


def test_check_dials_the_other_hosts_and_writes_nothing(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    machines.write(1, LOCAL + MORE)
    file = machines.enrol()
    refused(machines, 2, "join", str(file), "--check", code=5)
    said = capsys.readouterr().err
    for number in (1, 3):
        assert f"broker {number} cannot be reached from this host: port " in said


def test_a_host_whose_certificate_has_ended_gets_a_new_one_by_a_file(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    assert machines.run(2, "join", str(machines.enrol())) == 0
    home = machines.homes[2]
    there = mill(home.folder, home.config_file.read_text())
    late = datetime.now(UTC) + timedelta(days=390)
    with pytest.raises(CertificateFault, match=r"cert renew --for broker-2` on mill-1.*cert insta"):
        make_needed(home, there.config, late)
    [due] = [one for one in shown(home, there.config) if one.owner == "broker-2"]
    assert due.is_due(late)
    assert "`./millrace cert renew --for broker-2` on mill-1.example.org" in due.remedy
    before = (home.part_secrets("broker-2") / "tls.pem").read_bytes()
    assert machines.run(2, "cert", "renew") == 3
    assert machines.run(1, "cert", "renew", "--for", "broker-2") == 0
    file = machines.folder / "broker-2.cert"
    assert file.stat().st_mode & 0o777 == 0o600
    assert machines.run(2, "cert", "install", str(file)) == 0
    after = (home.part_secrets("broker-2") / "tls.pem").read_bytes()
    assert after != before
    assert "broker-2" in names_of(x509.load_pem_x509_certificate(after))
    assert make_needed(home, there.config, datetime.now(UTC)) == []
    assert not machines.homes[1].part_secrets("broker-2").exists()
    capsys.readouterr()
    assert machines.run(1, "cert", "renew") == 0
    assert "`./millrace cert renew --for broker-3` writes its file" in capsys.readouterr().err


def test_a_certificate_for_another_host_is_refused(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    assert machines.run(2, "join", str(machines.enrol())) == 0
    assert machines.run(1, "cert", "renew", "--for", "broker-3") == 0
    file = machines.folder / "broker-3.cert"
    refused(machines, 2, "cert", "install", str(file))
    assert "is for broker 3" in capsys.readouterr().err
    refused(machines, 1, "cert", "install", str(file))
    assert "has not joined a mill on several hosts" in capsys.readouterr().err
    leaf = parse_certificate(file.read_text())
    assert parse_certificate(encode_certificate(leaf)) == leaf
    refused(machines, 2, "join", str(file), code=2)


def test_own_files_of_the_listener_are_those_of_each_host(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    own = OPEN.replace("users}", "users, tls: {certificate: own.pem, key: own.key}}")
    machines.write(1, TEXT.replace(OPEN, own))
    assert machines.run(2, "join", str(machines.enrol())) == 0
    out = capsys.readouterr()
    assert "copy the files of network.tls into" in out.out + out.err
    assert (machines.homes[2].part_secrets("broker-2") / "tls.pem").exists()


def test_a_broker_that_does_not_vote_any_more_joins_with_an_empty_disk(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    """The main host's disk knows the voters. A broker among them has its own disk or none."""
    assert not parse_broker(machines.enrol(3).read_text()).joins
    write_voters(machines.homes[1], 1, HOSTS)
    assert not parse_broker(machines.enrol(3).read_text()).joins
    assert "type `./millrace broker replace-disk 3` first" in capsys.readouterr().err
    write_voters(machines.homes[1], 1, {one: HOSTS[one] for one in (1, 2)})
    file = machines.enrol(3)
    assert parse_broker(file.read_text()).joins
    assert machines.run(3, "join", str(file)) == 0
    assert settings_for(mill(machines.folder / "host-3"), "broker-3")["joins"] is True
