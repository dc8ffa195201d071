"""On a full disk or beside a stopped mill, commands print a message and never a traceback."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from appliance.checks import stream_check
from appliance.checks.stream_check import check_expressions
from appliance.config.load import load_text
from appliance.machine.files import PRIVATE, create_once, write_atomically
from appliance.mill.home import CODE
from appliance.output import Exit
from tests.harness.ports import free_port
from tests.unit.appliance.test_commands import config, mill, run

METRIC = (
    "stream: {from: {a: {topic: logs.access, format: raw}},"
    " metrics: [{name: m, from: a, measure: count}]}\n"
)


def with_no_room(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command under a file size limit of 0, so that writes to files fail as on a full
    disk."""
    command = 'ulimit -f 0; exec "$@"'
    return subprocess.run(
        ["bash", "-c", command, "-", sys.executable, "-m", "appliance", *arguments],
        env={**os.environ, "PYTHONPATH": str(CODE), "MILLRACE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["init"], "data/secrets/broker-1/cluster_id"),
        (["demo", "--seconds", "0.2"], "watched/access/demo-"),
    ],
)
def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, arguments: list[str], place: str
) -> None:
    config(tmp_path, "cluster: {brokers: 1}\n")
    done = with_no_room(tmp_path, *arguments)
    assert done.returncode == Exit.FAILED
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"millrace: {tmp_path}/{place}"), done.stderr
    assert last.endswith("File too large")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("write", [write_atomically, create_once])
def test_the_file_meant_is_named_and_not_the_one_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: object
) -> None:
    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    assert callable(write)
    with pytest.raises(OSError, match="No space left on device") as raised:
        write(tmp_path / "secret", b"x")
    assert raised.value.filename == str(tmp_path / "secret")
    assert list(tmp_path.iterdir()) == []


def test_a_check_that_cannot_be_remembered_is_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def ask(*_: object) -> list[dict[str, object]]:
        asked.append(1)
        return []

    monkeypatch.setattr(stream_check, "_ask_spark", ask)
    ours = mill(tmp_path, METRIC)
    ours.home.data.write_text("no folder")
    document = load_text(METRIC, "m", tmp_path, {}).document
    assert check_expressions(ours, document).was_asked
    assert check_expressions(ours, document).was_asked
    assert len(asked) == 2


@pytest.mark.parametrize(
    "arguments", [["show", "m"], ["lag"], ["alerts", "list"], ["collector", "status"]]
)
def test_of_a_mill_that_does_not_run_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    listen = f"monitor: {{listen: '127.0.0.1:{free_port()}'}}\n"
    config(tmp_path, f"{METRIC}{listen}ports: {{collector: {free_port()}}}\n")
    code, out, err = run(monkeypatch, tmp_path, *arguments)
    assert (code, out) == (Exit.UNREACHABLE, [])
    [line] = err
    assert line.endswith("the mill is not running; `make up` starts it"), line
    for leaked in ("urlopen", "Errno", "data/secrets", "init"):
        assert leaked not in line


OF_BROKERS = (
    ("topic", "list"),
    ("group", "list"),
    ("broker", "describe"),
    ("config", "get", "topic", "t"),
    ("consume", "t"),
    ("produce", "t"),
    ("collector", "once"),
    ("collector", "forget", "a.log"),
    ("collector", "dead-letters"),
    ("collector", "dead-letters", "--replay"),
    ("stream", "recount", "m"),
)
AT_ONCE_S = 8.0
"""Less than any of these commands waits for the brokers of a running mill."""


@pytest.mark.parametrize("arguments", OF_BROKERS)
def test_no_command_waits_for_the_brokers_of_a_stopped_mill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    config(tmp_path, f"{METRIC}ports: {{mill: {free_port()}}}\n")
    began_s = time.monotonic()
    code, out, err = run(monkeypatch, tmp_path, *arguments)
    assert time.monotonic() - began_s < AT_ONCE_S
    assert (code, out) == (Exit.UNREACHABLE, [])
    assert "no broker answers at 127.0.0.1:" in err[-1]
    assert err[-1].endswith("the mill is not running; `make up` starts it"), err


def test_a_broker_that_runs_without_a_supervisor_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config(tmp_path, f"ports: {{mill: {listener.getsockname()[1]}}}\n")
        _, _, err = run(monkeypatch, tmp_path, "topic", "list", "--timeout", "0.3")
    assert "no metadata within 300 ms" in err[-1]


def test_before_a_mill_has_ever_run_the_error_names_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, METRIC)
    code, _, err = run(monkeypatch, tmp_path, "stream", "forget", "other")
    assert code == Exit.FAILED
    assert err == [f"millrace: no mill was ever started in {tmp_path}; start it with `make up`"]


def test_brokers_elsewhere_are_not_started_by_make_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, METRIC)
    elsewhere = ("--bootstrap-server", f"127.0.0.1:{free_port()}")
    _, _, err = run(monkeypatch, tmp_path, "topic", "list", "--timeout", "0.1", *elsewhere)
    assert "make up" not in err[-1]


def test_logs_of_parts_that_start_later_are_followed(tmp_path: Path) -> None:
    """The logs do not exist before the mill's first start. `logs --follow` must find them later."""
    config(tmp_path, METRIC)
    logs = tmp_path / "data" / "logs"
    with subprocess.Popen(
        [sys.executable, "-m", "appliance", "logs", "-f"],
        cwd=CODE,
        env={"MILLRACE_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stderr.readline().endswith("new lines are shown as they are written\n")
            logs.mkdir(parents=True)
            (logs / "redis.log").write_text("one\n")
            assert process.stdout.readline() == "one\n"
            (logs / "stream.log").write_text("two\n")
            assert process.stdout.readline() == "stream | two\n"
            with (logs / "redis.log").open("a") as file:
                file.write("three\n")
            assert process.stdout.readline() == "redis  | three\n"
        finally:
            process.kill()


def test_logs_that_there_are_none_of_are_said_to_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, METRIC)
    code, out, err = run(monkeypatch, tmp_path, "logs")
    assert (code, out) == (Exit.OK, [])
    assert err == ["no part has written a log yet; `make up` starts the mill"]


@pytest.mark.parametrize("is_link", [True, False])
def test_a_secret_goes_into_a_new_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    """Another account can guess the name of the temporary file, put a file or a link of its own
    there, and read what is written into it."""
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: iter(["guessed", "other"]))
    partial = tmp_path / ".broker-2.join.guessed.partial"
    foreign = tmp_path / "foreign"
    foreign.write_text("")
    if is_link:
        partial.symlink_to(foreign)
    else:
        partial.hardlink_to(foreign)
    write_atomically(tmp_path / "broker-2.join", b"secret", mode=PRIVATE)
    assert (tmp_path / "broker-2.join").read_text() == "secret"
    assert foreign.read_text() == ""
    assert not (tmp_path / ".broker-2.join.other.partial").exists()


def test_two_containers_write_the_same_file_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their processes have the same id. The second one must not take over the temporary file of the
    first."""
    path, fsync = tmp_path / "secret", os.fsync

    def other(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        write_atomically(path, b"second")
        assert path.read_bytes() == b"second"
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", other)
    write_atomically(path, b"first")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
