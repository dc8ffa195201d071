"""`millrace detect`: its output, the files it writes, and its refusals."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import detect_command
from appliance.config.faults import ConfigFault, ConfigFaults
from appliance.config.load import load
from appliance.mill.home import CODE
from appliance.operate import lifecycle
from appliance.supervisor.following import keys_for_a_restart
from tests.harness.log_files import made_lines, text
from tests.unit.appliance.test_commands import config, run

SHIPPED = (CODE / "configs" / "millrace.yaml").read_text()
FILE = "configs/millrace.yaml"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    config(tmp_path, SHIPPED)
    (tmp_path / "shop.log").write_bytes(text(made_lines()["log4j"]))
    return tmp_path


def data_of(out: list[str]) -> Any:
    (line,) = out
    envelope = json.loads(line)
    assert envelope["schema"] == "detection/1"
    return envelope["data"]


def test_the_report_of_a_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(monkeypatch, home, "detect", str(home / "shop.log"))
    assert (code, err) == (0, [])
    assert out[0] == f"{home}/shop.log: log4j (Log4j's usual patterns, with date)"
    assert out[1] == "100 % of 120 lines parse"
    assert out[3].split() == ["time", "thread", "level", "logger", "message"]
    assert out[4].split() == ["timestamp", *["string"] * 4]
    assert out[5].startswith("2025-03-03 00:00:00,000  ")
    begin = out.index("collector:")
    assert "--apply shop" in out[begin - 1]
    assert "    shop: {topic: logs.shop, format: log4j}" in out


def test_one_object_for_one_file_and_a_list_for_more(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(home / "shop.log")
    _, out, _ = run(monkeypatch, home, "detect", file, "--json")
    found = data_of(out)
    assert found["file"] == file
    assert (found["format"], found["share"]) == ("log4j", 1.0)
    assert found["columns"][2] == {"name": "level", "type": "string", "about": "severity"}
    assert found["input"]["stream"] == {"topic": "logs.shop", "format": "log4j"}
    assert found["input"]["collector"]["paths"] == ["watched/shop/**"]
    assert len(found["metrics"]) == 3
    (home / "words").write_text("alpha\nbeta\n")
    code, out, _ = run(monkeypatch, home, "detect", file, str(home / "words"), "--json")
    first, second = data_of(out)
    assert code == 3
    assert first == found
    assert second["format"] is None
    assert second["input"] is None
    assert second["metrics"] == []
    assert second["reason"]


def test_no_format_is_code_3_and_says_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "a.zip").write_bytes(b"PK\x03\x04rest")
    code, out, _ = run(monkeypatch, home, "detect", str(home / "a.zip"))
    assert code == 3
    assert "no format fits" in out[0]
    assert "zip archive" in out[0]
    assert out[1].startswith("What to do: ")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        ([], 2, "found no file"),
        (["nothing.log"], 4, "there is no file nothing.log"),
        (["."], 2, "is a folder, expected a log file"),
        (["shop.log", "--encoding", "klingon"], 2, "--encoding: "),
        (["shop.log", "shop.log", "--apply", "x"], 2, "expected one with --apply"),
        (["shop.log", "--undo", "x"], 2, "--undo NAME removes what"),
        (["shop.log", "--apply", "Shop!", "--yes"], 3, "expected 1 to 31 of a-z"),
        (["shop.log", "--apply", "access", "--yes"], 3, "already has an input 'access'"),
        (["shop.log", "--apply", "shop"], 2, "add --yes"),
        (["--undo", "shop", "--yes"], 3, "no record that `detect --apply` wrote 'shop'"),
    ],
)
def test_what_is_refused_changes_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, word: str
) -> None:
    monkeypatch.chdir(home)
    found, _, err = run(monkeypatch, home, "detect", *arguments)
    assert found == code, err
    assert any(word in line for line in err), err
    assert (home / FILE).read_text() == SHIPPED
    assert not (home / "watched").exists()


def test_apply_and_undo(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect_command, "_check", lambda change: None)
    (home / FILE).chmod(0o640)
    file = str(home / "shop.log")
    code, _, err = run(monkeypatch, home, "detect", file, "--apply", "my_shop", "--yes")
    assert code == 0, err
    applied = (home / FILE).read_text()
    assert "+    my_shop: {topic: logs.my_shop, format: log4j}" in err
    assert "name: my_shop_by_level, from: my_shop" in applied
    assert (home / FILE).stat().st_mode & 0o777 == 0o640
    assert (home / "watched" / "my_shop").is_dir()
    assert any(line.startswith("to count the file: cp ") for line in err)
    assert err[-1].endswith("detect --undo my_shop")
    code, _, err = run(monkeypatch, home, "config", "check", "--quick")
    assert (code, err[-1].endswith("no faults")) == (0, True)

    code, _, err = run(monkeypatch, home, "detect", file, "--apply", "my_shop", "--yes")
    assert code == 3
    assert "choose another name" in err[-1]
    assert (home / FILE).read_text() == applied

    code, _, err = run(monkeypatch, home, "detect", "--undo", "my_shop", "--yes")
    assert code == 0, err
    assert (home / FILE).read_text() == SHIPPED
    assert not (home / "watched" / "my_shop").exists()
    assert any("stream forget my_shop_by_level" in line for line in err)
    code, _, err = run(monkeypatch, home, "detect", "--undo", "my_shop", "--yes")
    assert code == 3


def test_a_running_mill_needs_no_restart_for_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load(home / FILE, home).config
    arguments = ["detect", str(home / "shop.log"), "--apply", "shop", "--yes", "--quick"]
    assert run(monkeypatch, home, *arguments)[0] == 0
    after = load(home / FILE, home).config
    assert before != after
    assert keys_for_a_restart(before, after) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (SHIPPED, "the running mill uses the changed file within seconds"),
        # Without metrics no stream runs, so nothing could apply the new metric.
        ("stream: {}\n", "stream.metrics cannot change while the mill runs"),
    ],
)
def test_what_a_running_mill_does_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str, word: str
) -> None:
    config(home, text)
    monkeypatch.setattr(lifecycle, "is_running", lambda at: True)
    arguments = ["detect", str(home / "shop.log"), "--apply", "shop", "--yes", "--quick"]
    code, _, err = run(monkeypatch, home, *arguments)
    assert code == 0
    assert any(line.startswith(word) for line in err), err


def test_a_folder_with_files_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["detect", str(home / "shop.log"), "--apply", "shop", "--yes", "--quick"]
    assert run(monkeypatch, home, *arguments)[0] == 0
    (home / "watched" / "shop" / "a.log").write_text("x\n")
    code, _, err = run(monkeypatch, home, "detect", "--undo", "shop", "--yes")
    assert code == 0
    assert any("watched/shop was kept" in line for line in err)
    assert (home / "watched" / "shop" / "a.log").exists()


def test_what_was_changed_by_hand_is_not_undone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["detect", str(home / "shop.log"), "--apply", "shop", "--yes", "--quick"]
    assert run(monkeypatch, home, *arguments)[0] == 0
    changed = (home / FILE).read_text().replace("format: log4j}", "format: logback}")
    (home / FILE).write_text(changed)
    code, _, err = run(monkeypatch, home, "detect", "--undo", "shop", "--yes")
    assert code == 3
    assert any("changed since" in line and "stream.from.shop" in line for line in err)
    assert (home / FILE).read_text() == changed
    # After the user has restored the lines, `--undo` works again.
    (home / FILE).write_text(changed.replace("format: logback}", "format: log4j}"))
    assert run(monkeypatch, home, "detect", "--undo", "shop", "--yes")[0] == 0
    assert (home / FILE).read_text() == SHIPPED


def test_a_metric_of_the_user_s_own_keeps_its_input(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["detect", str(home / "shop.log"), "--apply", "shop", "--yes", "--quick"]
    assert run(monkeypatch, home, *arguments)[0] == 0
    mine = "    - {name: mine, from: shop, measure: count}\n"
    applied = (home / FILE).read_text()
    (home / FILE).write_text(applied.replace("\nsinks:", f"{mine}\nsinks:"))
    code, _, err = run(monkeypatch, home, "detect", "--undo", "shop", "--yes")
    assert code == 2
    assert any("'shop'" in line and "stream.metrics" in line for line in err), err
    assert "shop_by_level" in (home / FILE).read_text()


def test_nothing_is_written_when_the_check_finds_a_fault(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(change: object) -> None:
        raise ConfigFaults([ConfigFault(FILE, 1, 1, "stream.from.shop", "this", "that")])

    monkeypatch.setattr(detect_command, "_check", refuse)
    arguments = ["detect", str(home / "shop.log"), "--apply", "shop", "--yes"]
    code, _, err = run(monkeypatch, home, *arguments)
    assert code == 2
    assert any("stream.from.shop" in line for line in err)
    assert (home / FILE).read_text() == SHIPPED
    assert not (home / "watched").exists()
    assert not (home / "data").exists()


def test_a_file_saved_in_between_is_not_overwritten(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(change: object) -> None:
        (home / FILE).write_text(f"{SHIPPED}\n# mine\n")

    monkeypatch.setattr(detect_command, "_check", save)
    arguments = ["detect", str(home / "shop.log"), "--apply", "shop", "--yes"]
    code, _, err = run(monkeypatch, home, *arguments)
    assert code == 3
    assert any("saved in the meantime" in line for line in err)
    assert (home / FILE).read_text() == f"{SHIPPED}\n# mine\n"


def test_the_faults_of_a_file_are_told_before_anything(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(home, "colector: {}\n")
    arguments = ["detect", str(home / "shop.log"), "--apply", "shop", "--yes"]
    code, _, err = run(monkeypatch, home, *arguments)
    assert code == 2
    assert any("colector" in line for line in err)
    assert (home / FILE).read_text() == "colector: {}\n"


@pytest.mark.parametrize(
    ("place", "paths"),
    [
        ("watched/odd/a.log", ["watched/shop/**", "watched/odd/**"]),
        ("watched/shop/a.log", ["watched/shop/**"]),
        ("watched/a.log", ["watched/shop/**", "watched/a.log"]),
        # An existing input already reads this file, so no path is added for it.
        ("watched/text/a.log", ["watched/shop/**"]),
    ],
)
def test_a_file_that_no_input_matches_is_read_where_it_is(
    home: Path, monkeypatch: pytest.MonkeyPatch, place: str, paths: list[str]
) -> None:
    file = home / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text(made_lines()["redis"]))
    arguments = ["detect", str(file), "--apply", "shop", "--yes", "--quick", "--json"]
    code, out, err = run(monkeypatch, home, *arguments)
    assert code == 0, err
    assert data_of(out)["applied"] == "shop"
    assert f"paths: [{', '.join(paths)}]" in (home / FILE).read_text()
    assert not any("cp " in line for line in err)


def test_a_format_of_the_user_s_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home / "configs" / "formats"
    folder.mkdir()
    (folder / "till.yaml").write_text(
        "title: The till\npattern: '^(?<ts>\\S+ \\S+) till=(?<till>\\d+) (?<what>.*)$'\n"
        "time: ts\ncolumns: {till: {type: int, about: number of the till}}\n"
    )
    archive = home / "till.log.gz"
    archive.write_bytes(
        gzip.compress(b"".join(b"2025-03-03 10:00:00 till=%d sold\n" % at for at in range(9)))
    )
    arguments = ["detect", str(archive), "--apply", "till", "--yes", "--quick", "--json"]
    code, out, err = run(monkeypatch, home, *arguments)
    assert code == 0, err
    assert data_of(out)["format"] == "till"
    (folder / "till.yaml").write_text("title: [")
    code, _, err = run(monkeypatch, home, "detect", str(archive))
    assert code == 2
    assert any("till.yaml" in line for line in err)
