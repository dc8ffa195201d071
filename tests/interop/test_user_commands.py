"""`millrace user` and `kafka-configs --entity-type users` against a broker."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.cli.app import main
from appliance.kafka_tools import configs
from tests.harness.broker import BrokerProcess
from tests.harness.certificates import TestAuthority
from tests.harness.secured import give_password
from tests.interop.conftest import RunMain
from tests.interop.test_login_clients import reached

pytestmark = pytest.mark.live

PASSWORD = "a long password of root"
CANARY = "canary of a password"


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: TestAuthority
) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder, tls=authority.write(), needs_login=True) as running:
        give_password(running.bootstrap, "root", PASSWORD)
        yield running
        assert CANARY not in running.log_text()
        assert not any(
            CANARY.encode() in path.read_bytes()
            for path in running.log_dir.rglob("*")
            if path.is_file()
        )


class Commands:
    """Runs both commands, and returns their output."""

    def __init__(self, broker: BrokerProcess, run_main: RunMain) -> None:
        self._address = broker.bootstrap
        self._run = run_main

    def user(self, *words: str, code: int = 0) -> str:
        return self._run(main, "user", *words, "-b", self._address, code=code)

    def configs(self, *words: str, code: int = 0) -> str:
        connected = ("--bootstrap-server", self._address, "--entity-type", "users")
        return self._run(configs.main, *connected, *words, code=code)


@pytest.fixture
def commands(broker: BrokerProcess, run_main: RunMain) -> Commands:
    return Commands(broker, run_main)


def file_of(folder: Path, password: str) -> str:
    path = folder / "password"
    path.write_text(f"{password}\n")
    return str(path)


def test_a_user_from_its_creation_to_its_end(
    commands: Commands, broker: BrokerProcess, authority: TestAuthority, tmp_path: Path
) -> None:
    first = file_of(tmp_path, CANARY)
    assert "user shop can log in" in commands.user("add", "shop", "--password-file", first)
    assert "SCRAM-SHA-256,SCRAM-SHA-512" in commands.user("list")
    assert reached(broker, authority, CANARY, "shop") == 1
    said = commands.user("add", "shop", "--password-file", first, code=1)
    assert "user shop already exists; `millrace user password shop` changes the password" in said
    other = file_of(tmp_path, f"another {CANARY}")
    assert "have ended" in commands.user("password", "shop", "--password-file", other)
    assert reached(broker, authority, f"another {CANARY}", "shop") == 1
    refused = commands.user("remove", "shop", code=2)
    assert "no terminal to ask for confirmation: add --yes" in refused
    commands.user("remove", "shop", "--yes")
    found = json.loads(commands.user("list", "--json"))
    assert (found["schema"], [one["user"] for one in found["data"]]) == ("users/1", ["root"])
    for words in (("remove", "shop", "--yes"), ("password", "shop", "--password-file", first)):
        assert "there is no user shop" in commands.user(*words, code=4)


def test_the_consequence_of_removing_the_last_super_user(
    commands: Commands, tmp_path: Path
) -> None:
    said = commands.user("remove", "root", code=2)
    assert "root is the last super user with a password: from their next start on" in said
    commands.user("add", "shop", "--password-file", file_of(tmp_path, CANARY))
    assert "last super user" not in commands.user("remove", "root", code=2)
    commands.user("remove", "shop", "--yes")


def test_a_password_from_standard_input(
    commands: Commands,
    broker: BrokerProcess,
    authority: TestAuthority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{CANARY}\nmore\n"))
    commands.user("add", "piped", "--password-file", "-")
    assert reached(broker, authority, CANARY, "piped") == 1
    commands.user("remove", "piped", "--yes")


def test_a_name_that_could_not_log_in(commands: Commands, tmp_path: Path) -> None:
    said = commands.user("add", "a b", "--password-file", file_of(tmp_path, CANARY), code=1)
    assert "user a b was not changed: the name must have 1 to 64 letters, digits, dots" in said


def test_kafkas_spelling(
    commands: Commands, broker: BrokerProcess, authority: TestAuthority, tmp_path: Path
) -> None:
    settings = tmp_path / "users.properties"
    settings.write_text(f"SCRAM-SHA-512=[iterations=4096,password={CANARY}]\n")
    web = ("--entity-name", "web")
    said = commands.configs("--alter", *web, "--add-config-file", str(settings))
    assert said == "Completed updating config for user web.\n"
    assert reached(broker, authority, CANARY, "web") == 1
    line = "SCRAM credential configs for user-principal 'web' are SCRAM-SHA-512=iterations=4096\n"
    assert commands.configs("--describe", *web) == line
    assert line in commands.configs("--describe")
    value = f"SCRAM-SHA-256=[password={CANARY}]"
    said = commands.configs("--alter", *web, "--add-config", value)
    assert "can be read by others: use --add-config-file" in said
    deleted = ("--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512")
    commands.configs("--alter", *web, *deleted)
    assert commands.configs("--describe", *web) == ""
    assert "has no credential for SCRAM-SHA" in commands.configs("--alter", *web, *deleted, code=1)
