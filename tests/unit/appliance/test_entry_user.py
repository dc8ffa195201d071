"""The user of the mill's own parts: when the main host writes its password, and when it does not.

`tests/e2e/test_three_hosts.py` shows the same with real brokers.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import Failure
from appliance.mill.init import InitError
from appliance.supervisor import entry_user
from appliance.supervisor.entry_user import MECHANISM, EntryUser, keeper_of
from protocol.client.errors import BrokerUnreachable
from protocol.client.login import LoginRefused, LoginSettings
from tests.unit.appliance.hosted import LOCAL, has_authority, home_of, joined, mill

PASSWORD = "the-password-of-the-parts"
DIAL = "appliance.supervisor.entry_user.Connection.open"


class Brokers:
    """A double of the cluster: the password that it has for each user, and each write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: dict[str, str] = {}
        self.written: list[tuple[str, str]] = []
        self.dialled: list[str] = []
        self.is_away = False
        monkeypatch.setattr(entry_user, "Cluster", self._cluster)
        monkeypatch.setattr(entry_user, "describe_users", self._describe)
        monkeypatch.setattr(entry_user, "set_password", self._write)
        monkeypatch.setattr(entry_user, "client_context", lambda settings: None)
        monkeypatch.setattr(entry_user, "ClientLogin", lambda settings, rng: settings)
        monkeypatch.setattr(DIAL, self._enter)

    def _cluster(self, address: str, **_: object) -> Any:
        self.dialled.append(address)
        return self

    async def start(self, timeout_ms: int) -> None:
        """Connect, as a client does."""
        if self.is_away:
            raise BrokerUnreachable("no answer")

    async def close(self) -> None:
        """Do nothing."""

    async def _describe(self, cluster: object, names: list[str]) -> dict[str, Any]:
        return {name: {MECHANISM: 4096} for name in names if name in self.known}

    async def _write(self, cluster: object, user: str, password: str, mechanism: object) -> None:
        assert mechanism is MECHANISM
        self.written.append((user, password))
        self.known[user] = password

    async def _enter(self, host: str, port: int, *, login: LoginSettings, **_: object) -> Any:
        self.dialled.append(f"{host}:{port}")
        if login.password != self.known.get(login.user):
            raise LoginRefused("wrong user or password")
        return type("Opened", (), {"close": lambda self: None})()


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    return Brokers(monkeypatch)


def user_of(folder: Path, text: str = LOCAL, password: str = PASSWORD) -> EntryUser:
    home = home_of(folder)
    home.config_file.parent.mkdir(parents=True, exist_ok=True)
    home.config_file.write_text(text)
    (home.secrets / "mill").mkdir(parents=True, exist_ok=True)
    (home.secrets / "mill" / "password").write_text(password)
    return EntryUser(home)


def test_the_password_is_written_once_into_a_new_cluster(tmp_path: Path, brokers: Brokers) -> None:
    user = user_of(tmp_path)
    assert asyncio.run(user.check()) is False
    assert brokers.written == [("mill", PASSWORD)]
    assert asyncio.run(user.check()) is True
    assert asyncio.run(user.check()) is True
    assert len(brokers.written) == 1


def test_a_password_that_the_brokers_refuse_is_written_again(
    tmp_path: Path, brokers: Brokers
) -> None:
    """An administrator has given the user another password, so no part can enter."""
    user = user_of(tmp_path)
    brokers.known["mill"] = "another"
    assert asyncio.run(user.check()) is False
    assert brokers.written == [("mill", PASSWORD)]
    assert asyncio.run(user.check()) is True


@pytest.mark.parametrize(
    "text", ["cluster: {brokers: 3}\n", "cluster: {bootstrap_servers: 'kafka.example.org:9092'}\n"]
)
def test_a_file_without_hosts_is_named(tmp_path: Path, brokers: Brokers, text: str) -> None:
    """In containers the file that people edit is read, and its parts are not restarted yet."""
    user = user_of(tmp_path)
    user_of(tmp_path, text)
    with pytest.raises(Failure, match=r"has no cluster\.hosts"):
        asyncio.run(user.check())
    assert brokers.dialled == []


def test_nothing_is_written_if_the_listener_does_not_answer(
    tmp_path: Path, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write ends the user's connections, and this is no reason for one."""
    brokers.known["mill"] = "another"

    async def silent(*_: object, **__: object) -> None:
        raise BrokerUnreachable("no answer")

    monkeypatch.setattr(DIAL, silent)
    with pytest.raises(BrokerUnreachable):
        asyncio.run(user_of(tmp_path).check())
    assert brokers.written == []


@pytest.mark.parametrize("text", ["", "\n", "schlüssel"])
def test_a_damaged_file_gives_the_user_no_password(
    tmp_path: Path, brokers: Brokers, text: str
) -> None:
    """The user may do everything, so an empty password would open the mill."""
    with pytest.raises(InitError):
        asyncio.run(user_of(tmp_path, password=text).check())
    assert brokers.written == []


def test_the_check_survives_a_missing_file(
    tmp_path: Path, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is repeated until the file is back."""
    user = user_of(tmp_path)
    file = tmp_path / "data" / "secrets" / "mill" / "password"
    file.unlink()
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        file.write_text(PASSWORD)
        if len(waits) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr("appliance.supervisor.entry_user.asyncio.sleep", wait)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(user.keep())
    assert brokers.written == [("mill", PASSWORD)]
    assert waits == [entry_user.RETRY_S, entry_user.RETRY_S, entry_user.CHECK_EVERY_S]


def test_ports_that_up_apply_has_changed_are_dialled(tmp_path: Path, brokers: Brokers) -> None:
    user = user_of(tmp_path)
    brokers.known["mill"] = PASSWORD
    assert asyncio.run(user.check()) is True
    user_of(tmp_path, LOCAL + "ports: {host: 29492, net: 9492}\n")
    assert asyncio.run(user.check()) is True
    assert brokers.dialled[2:] == ["127.0.0.1:29492", "127.0.0.1:9492"]


def test_only_the_main_host_keeps_the_user(tmp_path: Path) -> None:
    has_authority(tmp_path / "main")
    assert keeper_of(mill(tmp_path / "main")) is not None
    joined(tmp_path / "other", 2)
    assert keeper_of(mill(tmp_path / "other")) is None
    assert keeper_of(mill(tmp_path / "one", "")) is None
