"""Join files and certificates of other hosts in containers: only `init` has the key of the CA, and
it sees no folder of the host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.cli import elsewhere
from appliance.mill.certificates import TRUSTED
from appliance.output import CommandError, Exit
from tests.unit.appliance.container_hosts import Machine, environ, join_file, three_machines


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Machine]:
    return three_machines(tmp_path, monkeypatch)


def test_a_secret_file_and_json_are_not_mixed(
    machines: dict[int, Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ("enrol broker 2", "cert renew --for broker-2"):
        assert machines[1].run(*words.split(), "--out", "-", "--json") == Exit.USAGE
        assert "excludes --json" in capsys.readouterr().err


@pytest.mark.parametrize("out", [(), ("--out", "/mill/data")])
@pytest.mark.parametrize(
    ("words", "file"),
    [("enrol broker 2", "broker-2.join"), ("cert renew --for broker-2", "broker-2.cert")],
)
def test_a_secret_file_is_not_written_into_the_container(
    machines: dict[int, Machine],
    capsys: pytest.CaptureFixture[str],
    words: str,
    file: str,
    out: tuple[str, ...],
) -> None:
    """The file would be lost with the container, and most folders there are read-only."""
    assert machines[1].run(*words.split(), *out) == Exit.USAGE
    said = capsys.readouterr().err
    assert f"`(umask 077; docker compose run --rm -T init {words} --out - >{file})`" in said
    assert list(machines[1].home.secrets.iterdir()) == [machines[1].home.secrets / "ca"]


def test_a_folder_for_a_certificate_that_stays_here_is_refused(
    machines: dict[int, Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise a user who redirects the output takes the list of files for the certificate."""
    join_file(machines, capsys)
    for words in ("--for broker-1 --out -", "--out ."):
        assert machines[1].run("cert", "renew", *words.split()) == Exit.USAGE
        printed = capsys.readouterr()
        assert "--out is for the certificate of a broker on another host" in printed.err
        assert printed.out == ""


def test_a_new_certificate_is_printed_and_installed(
    machines: dict[int, Machine], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = join_file(machines, capsys)
    machines[2].run("join", str(file))
    capsys.readouterr()
    assert machines[1].run("cert", "renew", "--for", "broker-2", "--out", "-") == 0
    printed = capsys.readouterr()
    assert "init cert install - <broker-2.cert" in printed.err
    (tmp_path / "broker-2.cert").write_text(printed.out)
    before = (machines[2].home.part_secrets("broker-2") / "tls.pem").read_bytes()
    assert machines[2].run("cert", "install", str(tmp_path / "broker-2.cert")) == 0
    assert (machines[2].home.part_secrets("broker-2") / "tls.pem").read_bytes() != before


def test_an_installed_certificate_can_be_read_by_its_broker(
    machines: dict[int, Machine], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The container `init` runs as root. The broker has another account, and reads the new files
    without a restart."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    machines[2].run("join", str(join_file(machines, capsys)))
    assert machines[2].run("init", "--owner=broker-2=10001:10000", "--owner=mill=0:10000") == 0
    capsys.readouterr()
    assert machines[1].run("cert", "renew", "--for", "broker-2", "--out", "-") == 0
    (tmp_path / "broker-2.cert").write_text(capsys.readouterr().out)
    assert machines[2].run("cert", "install", str(tmp_path / "broker-2.cert")) == 0
    folder = machines[2].home.part_secrets("broker-2")
    owners = {path.name: path.stat().st_uid for path in folder.iterdir()}
    assert owners == dict.fromkeys(owners, 10001)


def test_the_parts_trust_another_ca_at_once(
    machines: dict[int, Machine], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Their copy of the CA is not only that of the last start."""
    homes = {one: machines[one].home for one in (1, 2)}
    machines[2].run("join", str(join_file(machines, capsys)))
    assert machines[1].run("init") == machines[2].run("init") == 0
    before = (homes[1].secrets / "mill" / TRUSTED).read_bytes()
    for path in (homes[1].secrets / "ca").iterdir():
        path.unlink()
    assert machines[1].run("cert", "renew") == 0
    after = (homes[1].secrets / "mill" / TRUSTED).read_bytes()
    assert after == (homes[1].data / TRUSTED).read_bytes() != before
    capsys.readouterr()
    assert machines[1].run("cert", "renew", "--for", "broker-2", "--out", "-") == 0
    (tmp_path / "broker-2.cert").write_text(capsys.readouterr().out)
    assert machines[2].run("cert", "install", str(tmp_path / "broker-2.cert")) == 0
    assert (homes[2].secrets / "mill" / TRUSTED).read_bytes() == after


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (
            "enrol broker 2",
            "(umask 077; docker compose run --rm -T init enrol broker 2 --out - >broker-2.join)",
        ),
        (
            "cert renew --for broker-2",
            "(umask 077; docker compose run --rm -T init cert renew --for broker-2 --out -"
            " >broker-2.cert)",
        ),
        (
            "cert install broker-2.cert",
            "docker compose run --rm -T init cert install - <broker-2.cert",
        ),
        (
            "cert renew --for=broker-2",
            "(umask 077; docker compose run --rm -T init cert renew --for broker-2 --out -"
            " >broker-2.cert)",
        ),
        (
            "cert renew --out there --for broker-2",
            "(umask 077; docker compose run --rm -T init cert renew --for broker-2 --out -"
            " >broker-2.cert)",
        ),
        ("cert renew --for broker-1", "docker compose run --rm init cert renew --for broker-1"),
        ("cert renew --json", "docker compose run --rm init cert renew --json"),
    ],
)
def test_the_container_of_the_commands_says_where_to_type(
    machines: dict[int, Machine], monkeypatch: pytest.MonkeyPatch, words: str, typed: str
) -> None:
    for name, value in environ(1).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MILLRACE_HOME", str(machines[1].home.folder))
    with pytest.raises(CommandError) as caught:
        elsewhere.refuse_elsewhere(words.split())
    assert f"run `{typed}`" in str(caught.value)
