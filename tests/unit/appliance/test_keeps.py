"""Before the mill applies a shorter `keep`, it names the windows that this would delete. It does so
even while MySQL is down."""

import json
from pathlib import Path

import pytest

from appliance.cli import mill_commands
from appliance.mill.home import find_home
from appliance.operate import starting
from tests.harness.ports import free_port
from tests.unit.appliance.test_commands import config, run


def text(keep: str, port: int) -> str:
    """Return a configuration with an external MySQL that cannot be reached."""
    return (
        "stream:\n"
        "  from: {a: {topic: logs.access, format: raw}}\n"
        f"  defaults: {{keep: {{mysql: {{1m: {keep}}}}}}}\n"
        "  metrics: [{name: m, from: a, measure: count, windows: [1m, 1h, all]}]\n"
        f"sinks: {{redis: null, mysql: {{host: 127.0.0.1, port: {port}, password: x}}}}\n"
        "collector: {inputs: [{paths: ['a/*'], topic: logs.access}]}\n"
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a mill that was started once and keeps minutes for 90 days."""
    monkeypatch.setattr("appliance.cli.judging.judge", lambda *_: ())
    port = free_port()
    config(tmp_path, text("30d", port))
    started = find_home({"MILLRACE_HOME": str(tmp_path)}).started_config
    started.parent.mkdir(parents=True)
    started.write_text(text("90d", port))
    return tmp_path


SAID = (
    "m: MySQL's 1m windows were kept 90d; what is older than the new `keep` (30d) would be deleted"
    " a week after it is applied (MySQL was not asked how much that is);"
    " `keep: {mysql: forever}` keeps them;"
    " `./millrace stream purge` deletes them at once"
)


@pytest.mark.parametrize("how", [["--quick"], []])
def test_a_check_tells_what_a_shorter_keep_would_delete(
    home: Path, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    code, _, err = run(monkeypatch, home, "config", "check", *how)
    assert code == 0
    assert [line.partition("millrace.yaml: ")[2] for line in err] == [SAID, "no faults"]
    code, out, _ = run(monkeypatch, home, "config", "check", *how, "--json")
    assert (code, json.loads(out[0])["errors"]) == (0, [SAID])


def test_up_tells_it_before_it_starts_anything(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mill_commands, "judge_expressions", lambda *_: None)

    def refuse(*_: object) -> None:
        raise starting.StartRefused([])

    monkeypatch.setattr(starting, "start", refuse)
    _, _, err = run(monkeypatch, home, "up")
    assert err == [f"millrace: {SAID}", "millrace: nothing was started"]


def test_a_keep_that_is_as_it_was_is_not_spoken_of(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = find_home({"MILLRACE_HOME": str(home)}).started_config
    for before in (None, (home / "configs" / "millrace.yaml").read_text(), "stream: 7\n"):
        started.unlink(missing_ok=True)
        if before is not None:
            started.write_text(before)
        code, _, err = run(monkeypatch, home, "config", "check")
        assert (code, len(err)) == (0, 1), err
