"""Passwords of users: where they are read from, and which are rejected before any other
question."""

from __future__ import annotations

import getpass
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from appliance.cli.app import main
from appliance.kafka.users import check_password, read_password
from appliance.output import CommandError


@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("", "has 0 characters, expected at least 12"),
        ("elevenchars", "has 11 characters, expected at least 12"),
        ("the.user.shop", "equals the name of the user"),
        ("The.User.Shop", "equals the name of the user"),
        ("twelve chars\t", "has control characters"),
        ("twelve chars\n\n", "has control characters"),
        ("twelve chars \udcff", "has control characters"),
        ("x" * 1_025, "is longer than 1024 bytes"),
        ("é" * 513, "is longer than 1024 bytes"),
    ],
)
def test_passwords_that_are_refused(password: str, why: str) -> None:
    with pytest.raises(CommandError, match=why) as caught:
        check_password("the.user.shop", password)
    assert caught.value.code == 2
    if len(password) > 12:
        assert password not in str(caught.value)


def test_passwords_of_any_other_kind_are_taken() -> None:
    for password in ("correct, horse = battery", "zwölf Zeichen ß", "twelve chars"):
        check_password("shop", password)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(CommandError, match="No such file or directory"):
        read_password("shop", str(missing))
    missing.write_bytes(b"\xff" * 20)
    with pytest.raises(CommandError, match="found no UTF-8, expected a text file"):
        read_password("shop", str(missing))


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_standard_input_that_is_not_utf_8(monkeypatch: pytest.MonkeyPatch, errors: str) -> None:
    """The locale decides how Python decodes standard input. The message must be the same for
    all."""
    piped = io.TextIOWrapper(io.BytesIO(b"\xff" * 20 + b"\n"), encoding="utf-8", errors=errors)
    monkeypatch.setattr(sys, "stdin", piped)
    with pytest.raises(CommandError, match="standard input: found no UTF-8, expected a text file"):
        read_password("shop", "-")


def test_a_prompt_asks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    typed = iter(["twelve chars", "twelve chars", "twelve chars", "twelve charz"])
    monkeypatch.setattr(getpass, "getpass", lambda prompt: next(typed))
    assert read_password("shop", None) == "twelve chars"
    with pytest.raises(CommandError, match="the two passwords differ"):
        read_password("shop", None)


def test_without_a_terminal_a_file_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["user", "add", "shop", "-b", "127.0.0.1:1"]) == 2
    assert "without a terminal use --password-file FILE" in capsys.readouterr().err


def test_a_password_is_no_argument(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--password", "canary"], ["canary"]):
        assert main(["user", "add", "shop", *words]) == 2
