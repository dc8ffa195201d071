"""`millrace user --page` and `millrace token`: the files that they write, and what they print."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.cli.app import main
from appliance.mill import page_logins
from appliance.mill.home import Home, find_home
from appliance.mill.init import initialise
from monitor.login.people import PageRole, fingerprint_of
from tests.unit.appliance.hosted import TEXT, joined

PASSWORD = "correct-horse-battery"
OTHER = "another-horse-battery"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    found = find_home({"MILLRACE_HOME": str(tmp_path)})
    found.config_file.parent.mkdir()
    found.config_file.write_text("cluster: {brokers: 1}\n")
    initialise(found, (1,))
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "other").write_text(f"{OTHER}\n")
    return found


def add(home: Home, name: str, *more: str) -> int:
    file = str(home.folder / "password")
    return main(["user", "add", name, "--page", "--password-file", file, *more])


def test_a_person_is_added_changed_and_removed(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(home, "ada", "--role", "operator") == 0
    ada = page_logins.people(home)["ada"]
    assert ada.role is PageRole.OPERATOR
    assert ada.password.matches(PASSWORD) and not ada.password.matches(OTHER)
    assert main(["user", "list", "--page", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["data"] == [{"user": "ada", "role": "operator"}]
    other = ["--password-file", str(home.folder / "other")]
    assert main(["user", "password", "ada", "--page", *other]) == 0
    changed = page_logins.people(home)["ada"]
    assert changed.role is PageRole.OPERATOR and changed.password.matches(OTHER)
    assert main(["user", "remove", "ada", "--page", "--yes"]) == 0
    assert "ada is the last person" in capsys.readouterr().err
    assert page_logins.people(home) == {}


def test_people_are_added_where_the_page_is(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """Another host of the mill has no page, so no part reads its file."""
    home.config_file.write_text(TEXT)
    joined(home.folder, 2)
    assert add(home, "ada", "--role", "operator") == 3
    assert main(["user", "list", "--page"]) == 3
    said = capsys.readouterr().err
    assert "the page runs on the main host, mill-1.example.org: type this command there" in said
    assert page_logins.people(home) == {}


@pytest.mark.parametrize("command", [["add", "grafana"], ["list"], ["remove", "grafana", "--yes"]])
def test_tokens_are_made_where_the_page_is(
    home: Home, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    home.config_file.write_text(TEXT)
    joined(home.folder, 2)
    assert main(["token", *command]) == 3
    assert "the page runs on the main host" in capsys.readouterr().err
    assert page_logins.tokens(home) == {}


def test_the_files_are_private_and_have_neither_password_nor_token(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    add(home, "ada", "--role", "viewer")
    assert main(["token", "add", "grafana"]) == 0
    token = capsys.readouterr().out.strip()
    assert fingerprint_of(token) is not None
    folder = home.part_secrets("monitor")
    for name in ("users", "tokens", "logins.lock"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
        assert PASSWORD.encode() not in (folder / name).read_bytes()
        assert token[5:].encode() not in (folder / name).read_bytes()
    assert str(fingerprint_of(token)) not in repr(page_logins.tokens(home))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ada"], "found no --role, expected --role with one of viewer, operator"),
        (["ada", "--role", "admin"], "found --role admin"),
        (["a b", "--role", "viewer"], "expected 1 to 64 letters"),
        (["ada", "--role", "viewer", "--bootstrap-server", "x:1"], "concerns the brokers"),
    ],
)
def test_wrong_words_are_refused(
    home: Home, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(home, *words) == 2
    assert said in capsys.readouterr().err
    assert page_logins.people(home) == {}


@pytest.mark.parametrize("password", ["short", "administrator", "a\ttab in the password"])
def test_weak_passwords_are_refused(home: Home, password: str) -> None:
    (home.folder / "password").write_text(password)
    assert add(home, "Administrator", "--role", "viewer") == 2
    assert page_logins.people(home) == {}


def test_a_name_is_added_once_and_an_unknown_one_is_not_found(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(home, "ada", "--role", "viewer") == 0
    assert add(home, "ada", "--role", "operator") == 1
    assert "already exists; `./millrace user password ada --page`" in capsys.readouterr().err
    other = ["--password-file", str(home.folder / "other")]
    assert main(["user", "password", "bea", "--page", *other]) == 4
    assert main(["user", "remove", "bea", "--page", "--yes"]) == 4
    assert main(["token", "remove", "bea", "--yes"]) == 4
    assert main(["user", "add", "bea", "--role", "viewer", *other]) == 2
    assert "--role is for people of the page: add --page" in capsys.readouterr().err


def test_tokens_are_listed_without_their_text_and_removed(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "add", "grafana", "--expires", "1h", "--json"]) == 0
    added = json.loads(capsys.readouterr().out)["data"]
    assert main(["token", "add", "grafana"]) == 1
    assert main(["token", "list", "--json"]) == 0
    said = capsys.readouterr().out
    [row] = json.loads(said)["data"]
    assert (row["name"], row["role"], row["state"]) == ("grafana", "viewer", "valid")
    assert added["token"] not in said
    assert page_logins.tokens(home)["grafana"].has_ended(added["ends_at_ms"])
    assert main(["token", "remove", "grafana", "--yes"]) == 0
    assert page_logins.tokens(home) == {}


@pytest.mark.parametrize("words", [["--role", "operator"], ["--expires", "soon"]])
def test_a_token_for_orders_or_without_an_end_is_refused(home: Home, words: list[str]) -> None:
    assert main(["token", "add", "grafana", *words]) == 2
    assert page_logins.tokens(home) == {}


def test_two_commands_at_once_lose_nothing(home: Home) -> None:
    def many(first: int) -> None:
        for number in range(first, first + 20):
            with page_logins.changed_tokens(home) as tokens:
                name = f"t{number}"
                tokens[name] = page_logins.new_token(name, PageRole.VIEWER, None)[1]

    both = [threading.Thread(target=many, args=(first,)) for first in (0, 20)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(page_logins.tokens(home)) == 40


@pytest.mark.parametrize("read", [page_logins.people, page_logins.tokens])
@pytest.mark.parametrize("content", [b"", b"[]", b'{"version": 2, "rows": []}', b'{"version": 1}'])
def test_a_damaged_file_is_reported_without_its_content(
    home: Home, read: Callable[[Home], object], content: bytes
) -> None:
    for name in ("users", "tokens"):
        (home.part_secrets("monitor") / name).write_bytes(content)
    with pytest.raises(page_logins.LoginFileFault, match="is damaged; move it away") as found:
        read(home)
    assert found.value.__cause__ is None
