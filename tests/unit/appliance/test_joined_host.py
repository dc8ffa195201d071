"""Commands on a host that has joined a mill: it has a collector and nothing else."""

import socket
from pathlib import Path

import pytest

from appliance.checks import joined_host
from appliance.checks.startup import Check, CheckLevel
from appliance.cli import rooms
from appliance.enrol.host_files import HostFiles, Joined
from appliance.mill.home import find_home
from appliance.output import Exit
from protocol.status import PartState, PartStatus, Problem
from tests.harness.ports import free_port
from tests.unit.appliance.test_commands import config, mill, run

NAME = "web-07"
REFUSED = Problem("broker", "mill.example.org:9192 refused the login")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return the folder of a host that has joined."""
    config(tmp_path, f"ports: {{collector: {free_port()}}}")
    files = HostFiles(find_home({"MILLRACE_HOME": str(tmp_path)}))
    files.note(Joined("cluster", NAME, None))
    return tmp_path


def answer(name: str, *problems: Problem) -> PartStatus:
    return PartStatus(
        "collector", PartState.RUNNING, True, 0, 0, problems, {"instance": name, "files": []}
    )


@pytest.mark.parametrize("words", [("status",), ("collector", "status"), ("restart", "collector")])
def test_a_host_that_has_joined_is_not_told_to_start_a_mill(
    host: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    code, _, err = run(monkeypatch, host, *words)
    assert code != 0
    assert "`millrace collector run` starts its collector" in err[-1]
    assert "make up" not in err[-1]


def test_an_unreadable_record_ends_no_other_command(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host / "data" / "secrets" / "collector" / "joined.json").write_text("{")
    code, _, err = run(monkeypatch, host, "restart", "collector")
    assert code == Exit.UNREACHABLE
    assert "make up" in err[-1]


def test_another_account_is_told_that_the_mill_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not look into the folder of the secrets."""

    def refuse(_: HostFiles) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(HostFiles, "joined", refuse)
    config(tmp_path, "")
    _, _, err = run(monkeypatch, tmp_path, "status")
    assert "the mill is not running" in err[-1]


def test_collector_status_names_the_problems(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "fetch_status", lambda *_: answer(NAME, REFUSED))
    code, _, err = run(monkeypatch, host, "collector", "status")
    assert code == 0
    assert f"problem: {REFUSED.text}" in err


def test_doctor_reports_an_unreadable_record(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (host / "data" / "secrets" / "collector" / "joined.json").write_text("{")
    code, out, _ = run(monkeypatch, host, "doctor")
    assert code == Exit.CONDITION
    assert "joined.json cannot be read" in "\n".join(out)


def test_doctor_reports_that_there_are_no_inputs(host: Path) -> None:
    [found] = joined_host.collector(mill(host, "collector: {inputs: []}"), NAME)
    assert found.level == CheckLevel.WARNING
    assert found.found == "the configuration file has no collector.inputs"


def checks(host: Path, port: int) -> list[Check]:
    return list(joined_host.collector(mill(host, f"ports: {{collector: {port}}}"), NAME))


def test_doctor_does_not_complain_about_the_port_of_the_running_collector(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        monkeypatch.setattr(joined_host, "fetch_status", lambda *_: answer(NAME))
        assert [one.level for one in checks(host, port)] == [CheckLevel.OK]
        monkeypatch.setattr(joined_host, "fetch_status", lambda *_: answer(NAME, REFUSED))
        [found] = checks(host, port)
        assert (found.level, found.found) == (CheckLevel.WARNING, REFUSED.text)
        # The port belongs to the collector of another folder.
        monkeypatch.setattr(joined_host, "fetch_status", lambda *_: answer("web-08"))
        assert [one.level for one in checks(host, port)] == [CheckLevel.OK, CheckLevel.FAILED]


def test_doctor_checks_the_port_of_a_collector_that_does_not_run(host: Path) -> None:
    found = checks(host, port := free_port())
    assert [one.level for one in found] == [CheckLevel.OK, CheckLevel.OK]
    assert found[0].found == f"{NAME} does not run"
    assert found[1].what == f"port {port} (ports.collector, for collector)"
