"""`millrace enrol`: the names that it takes, and a join file that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.cli.enrol_commands import NAMES_MAX, _names, _write
from appliance.enrol.join_file import parse
from appliance.output import CommandError, Exit
from tests.unit.appliance.enrol.kit import CANARY, join_file
from tests.unit.appliance.test_commands import run


def test_the_names_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "names"
    path.write_text("# of the databases\n db-1 \n\n  # later\ndb-2\r\n")
    assert _names(None, path) == ["db-1", "db-2"]
    assert _names("web-07", None) == ["web-07"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("web-1\n\nWeb-2\n", "line 3: found name 'Web-2'"),
        ("web-1\nweb-1\n", "found name 'web-1' twice"),
        ("# nothing\n", "found 0 names"),
        ("".join(f"w{number}\n" for number in range(NAMES_MAX + 1)), "found 5,001 names"),
    ],
)
def test_a_fault_in_the_file_is_named(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "names"
    path.write_text(text)
    with pytest.raises(CommandError, match=reason) as caught:
        _names(None, path)
    assert caught.value.code == Exit.USAGE


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "expected either NAME or --from FILE"),
        (["web-07", "--from", "names"], "expected either NAME or --from FILE"),
        (["--from", "missing"], "--from missing cannot be read"),
        (["Web"], "found name 'Web', expected"),
        (["web-07", "--group", "a.b"], "found group 'a.b'"),
        (["web-07", "--topics", ""], "the mill's own topics"),
        (["web-07", "--expires", "31d"], "--expires: found 31d, expected up to 30d"),
        (["web-07", "--expires", "0s"], "--expires: found 0s"),
        (["--from", "names", "--out", "-"], "prints one join file and nothing else"),
        (["web-07", "--out", "-", "--json"], "prints one join file and nothing else"),
    ],
)
def test_wrong_options_ask_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names").write_text("web-1\n")
    code, _, err = run(monkeypatch, tmp_path, "enrol", "collector", *words)
    assert (code, reason in err[-1]) == (Exit.USAGE, True), err


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_enrolled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("enrol", "collector", "web-07")
    code, _, err = run(monkeypatch, tmp_path, *words, "--out", "/proc")
    assert code == Exit.FAILED
    assert "nothing was enrolled: /proc cannot be written" in err[-1]


def test_in_containers_a_join_file_is_printed_or_has_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    code, _, err = run(monkeypatch, tmp_path, "enrol", "collector", "web-07")
    assert code == Exit.USAGE
    typed = "docker compose run --rm -T cli enrol collector web-07 --out - >web-07.join"
    assert f"add --out -, as in `(umask 077; {typed})`" in err[-1]


def test_a_join_file_that_cannot_be_written_can_be_made_again(tmp_path: Path) -> None:
    path = _write(tmp_path, join_file())
    assert parse(Path(path).read_text()) == join_file()
    with pytest.raises(
        CommandError, match=r"web-07\.join cannot be written: No such f.*--again"
    ) as c:
        _write(tmp_path / "gone", join_file())
    assert CANARY not in str(c.value)


def test_a_join_file_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """In containers no folder of yours is mounted."""
    assert _write(None, join_file()) == "-"
    assert parse(capsys.readouterr().out) == join_file()
