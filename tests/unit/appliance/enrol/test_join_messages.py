"""The messages of `join` say what is wrong on this host and what to do."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from appliance.enrol import entering
from appliance.enrol.entering import WAY_REMEDY, MillTarget, UnreachableBroker, is_accepted
from appliance.enrol.host_files import HostFiles, Joined
from appliance.enrol.join_file import JoinFile, encode
from appliance.mill.home import find_home
from appliance.mill.init import initialise
from appliance.output import CommandError, Exit
from protocol.client.connection import Connection
from protocol.client.errors import BrokerUnreachable, EntryRefused
from protocol.client.login import LoginRefused
from protocol.security.scram import Mechanism
from tests.unit.appliance.enrol.kit import join_file
from tests.unit.appliance.test_commands import run

DAY_MS = 24 * 3_600_000


def written(folder: Path, **changes: object) -> tuple[JoinFile, str]:
    """Write a join file that has not expired. Return it and its path."""
    join = join_file(ends_ms=time.time_ns() // 1_000_000 + DAY_MS, **changes)
    path = folder / "web-07.join"
    path.write_text(encode(join))
    return join, str(path)


@pytest.mark.parametrize(
    ("cluster_id", "reason"),
    [
        (None, "has joined as db-1, but the join file is for web-07: set MILLRACE_HOME"),
        ("other", "has joined cluster other as db-1, but the join file is for web-07 of cluster"),
    ],
)
def test_the_folder_of_another_collector_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster_id: str | None, reason: str
) -> None:
    join, path = written(tmp_path)
    files = HostFiles(find_home({"MILLRACE_HOME": str(tmp_path)}))
    files.note(Joined(cluster_id or join.cluster_id, "db-1", None))
    code, _, err = run(monkeypatch, tmp_path, "join", path)
    assert code == Exit.CONDITION
    assert reason in err[-1]


def test_a_mill_with_brokers_does_not_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, path = written(tmp_path)
    initialise(find_home({"MILLRACE_HOME": str(tmp_path)}), (1,))
    code, _, err = run(monkeypatch, tmp_path, "join", path)
    assert code == Exit.CONDITION
    assert "brokers of its own" in err[-1] and "set MILLRACE_HOME" in err[-1]


@pytest.mark.parametrize("words", [(), ("--check",)])
@pytest.mark.parametrize("address", ["mill:99999", "[]:1"])
def test_a_wrong_address_in_a_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], address: str
) -> None:
    _, path = written(tmp_path, addresses=(address,))
    code, _, err = run(monkeypatch, tmp_path, "join", path, *words)
    assert code == Exit.USAGE
    assert f"the join file has a wrong address: found '{address}'" in err[-1]


@pytest.mark.parametrize(
    ("error", "is_told"),
    [(BrokerUnreachable("no such name"), True), (EntryRefused("put the CA there"), False)],
)
def test_only_a_mill_that_cannot_be_reached_has_the_remedy_for_the_way(
    monkeypatch: pytest.MonkeyPatch, error: BrokerUnreachable, is_told: bool
) -> None:
    async def refuse(*_: object, **__: object) -> Connection:
        raise error

    monkeypatch.setattr(Connection, "open", refuse)
    target = MillTarget((("mill.example.org", 9192),), None, "collector.a", Mechanism.SHA_512)
    with pytest.raises(CommandError) as caught:
        asyncio.run(is_accepted(target, "secret"))
    assert str(error) in str(caught.value)
    assert (WAY_REMEDY in str(caught.value)) == is_told


@pytest.mark.parametrize(
    ("refusals", "is_lost"), [(0, False), (entering.LOGINS_MAX - 1, False), (99, True)]
)
def test_a_broker_that_does_not_know_a_new_password_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, refusals: int, is_lost: bool
) -> None:
    left = refusals

    async def dial(host: str, port: int, **_: object) -> Connection:
        nonlocal left
        if port == 9193 and left:
            left -= 1
            raise LoginRefused("refused the login")
        return Connection("peer", "test")

    monkeypatch.setattr(Connection, "open", dial)
    monkeypatch.setattr(entering, "LOGIN_EVERY_S", 0)
    advertised = {1: ("mill", 9192), 2: ("mill", 9193)}
    target = MillTarget((("mill", 9192),), None, "collector.a", Mechanism.SHA_512)
    lost = asyncio.run(entering.dial_all(target, "secret", advertised))
    assert lost == ([UnreachableBroker(2, "mill:9193", "refused the login")] if is_lost else [])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "expected a join file"),
        (("web-07.join", "--renew"), "--renew needs no join file"),
        (("--check", "--renew"), "expected either --check or --renew"),
        (("missing",), "missing cannot be read: No such file"),
    ],
)
def test_wrong_options_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], reason: str
) -> None:
    code, _, err = run(monkeypatch, tmp_path, "join", *words)
    assert (code, reason in err[-1]) == (Exit.USAGE, True), err


@pytest.mark.parametrize("words", [("join", "--check"), ("join", "--renew"), ("collector", "run")])
def test_a_host_that_has_not_joined_is_told_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    code, _, err = run(monkeypatch, tmp_path, *words)
    assert code == Exit.CONDITION
    assert "this host has not joined a mill: run `millrace join FILE`" in err[-1]
