"""What one host of a mill on three hosts says of the others, and which commands are refused."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.app import main
from appliance.cli.other_hosts import HostState, silent_hosts, state_in
from appliance.cli.summary import summary
from appliance.mill.home import Home
from appliance.mill.settings import Mill
from protocol.status import PartState, PartStatus, Problem
from tests.harness.ports import free_ports
from tests.unit.appliance.hosted import LOCAL, TEXT, has_authority, home_of, joined, mill


def status(*codes: str, **details: Any) -> PartStatus:
    problems = tuple(Problem(one, one) for one in codes)
    return PartStatus("broker-1", PartState.RUNNING, True, 0, 0, problems, details)


def broker(*, fenced: bool = False, stopping: bool = False) -> dict[str, Any]:
    return {"node_id": 2, "is_fenced": fenced, "is_stopping": stopping}


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (None, HostState.UNKNOWN),
        (status(), HostState.UNKNOWN),
        (status("waits_for_brokers", cluster_waits_for=[2, 3]), HostState.ABSENT),
        (status("waits_for_brokers", cluster_waits_for=[3]), HostState.UNKNOWN),
        (status(is_fenced=False, brokers=[]), HostState.ABSENT),
        (status(is_fenced=False, brokers=[broker()]), HostState.IN_SERVICE),
        (status(is_fenced=False, brokers=[broker(stopping=True)]), HostState.STOPPING),
        (status(is_fenced=False, brokers=[broker(fenced=True)]), HostState.AWAY),
        (status(is_fenced=True, brokers=[broker()]), HostState.UNKNOWN),
        (status("no_quorum", is_fenced=False, brokers=[broker()]), HostState.UNKNOWN),
    ],
)
def test_a_broker_elsewhere_has_the_state_that_the_cluster_knows(
    found: PartStatus | None, state: HostState
) -> None:
    """A host that is cut off does not know the state, whatever it knew before."""
    assert state_in(found, 2) is state


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[str]:
    yield f"ports: {{broker: {free_ports(3)}}}\n"


def main_host(folder: Path, text: str) -> Mill:
    has_authority(folder)
    return mill(folder, text)


def test_up_names_the_hosts_that_do_not_answer_and_what_to_type_there(
    tmp_path: Path, ports: str
) -> None:
    found = main_host(tmp_path, LOCAL + ports)
    port = found.config.ports.broker
    with socket.create_server(("127.0.0.2", port + 1)):
        told = silent_hosts(found)
    assert told == [
        f"broker 3 on 127.0.0.3 does not answer: port {port + 2}: Connection refused; run"
        " `./millrace up` there (before its first start: `./millrace enrol broker 3` on 127.0.0.1,"
        " and `./millrace join FILE` there)",
        "the first start waits for all hosts, every later one for a majority of them",
    ]
    with (
        socket.create_server(("127.0.0.2", port + 1)),
        socket.create_server(("127.0.0.3", port + 2)),
    ):
        assert silent_hosts(found) == []


def test_a_name_that_does_not_resolve_is_named(tmp_path: Path) -> None:
    found = main_host(tmp_path, TEXT.replace("mill-2.example.org", "nowhere.invalid"))
    assert "the name nowhere.invalid does not resolve here" in silent_hosts(found)[0]


def test_a_mill_on_one_machine_has_no_other_hosts(tmp_path: Path) -> None:
    assert silent_hosts(mill(tmp_path, "cluster: {brokers: 3}")) == []


def test_the_summary_of_another_host_has_only_what_runs_there(tmp_path: Path) -> None:
    joined(tmp_path, 2)
    lines = "\n".join(summary(mill(tmp_path)))
    assert "page" not in lines and "Redis" not in lines and "drop logs" not in lines
    assert "bootstrap.servers=mill-1.example.org:9192,mill-2.example.org:9193," in lines


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    has_authority(tmp_path)
    found = home_of(tmp_path)
    found.config_file.parent.mkdir()
    found.config_file.write_text(TEXT)
    return found


def test_what_does_not_work_on_several_hosts_is_refused(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "grow"]) == 3
    said = capsys.readouterr().err
    assert "is not offered yet for a mill whose brokers are on several hosts" in said


def test_the_password_of_the_parts_is_not_changed_by_hand(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["user", "password", "mill", "--password-file", "-"]) == 3
    assert "data/secrets/mill/password on each host" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("lag",), ("top",)])
def test_the_monitor_is_on_the_main_host(
    tmp_path: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    joined(tmp_path, 2)
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    path = home_of(tmp_path).config_file
    path.parent.mkdir()
    path.write_text(TEXT)
    assert main(list(words)) == 3
    assert "on the main host, mill-1.example.org" in capsys.readouterr().err
