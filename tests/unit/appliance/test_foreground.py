"""A mill in the foreground: it stops when the command ends, and the command ends when the mill
stops."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.cli import foreground
from appliance.machine.notify import NOTIFY_VARIABLE, service_manager
from appliance.mill.home import Home, find_home
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit


class Stage:
    """A simulated mill that runs or does not run. It records the commands that it gets."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home: Home = find_home({"MILLRACE_HOME": str(folder)})
        self.home.data.mkdir()
        self.runs = False
        self.done: list[str] = []
        self.on_follow: Callable[[], None] = lambda: None
        monkeypatch.setattr(lifecycle, "is_running", lambda home: self.runs)
        monkeypatch.setattr(foreground, "follow_logs", self._follow)
        monkeypatch.delenv(NOTIFY_VARIABLE, raising=False)

    def start(self) -> None:
        self.done.append("start")
        self.runs = True

    def stop(self) -> None:
        self.done.append("stop")
        self.runs = False

    def stay(self, start: Callable[[], None] | None = None) -> None:
        foreground.stay_in_front(self.home, start or self.start, self.stop)

    def _follow(self, *_: object, goes_on: Callable[[], bool], **__: object) -> None:
        self.done.append("follow")
        self.on_follow()
        assert not goes_on(), "it is followed for as long as it runs"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_ctrl_c_stops_the_mill_and_is_told_as_what_it_was(stage: Stage) -> None:
    stage.on_follow = lambda: signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        stage.stay()
    assert stage.done == ["start", "follow", "stop"]


def test_who_ends_the_command_stops_the_mill(stage: Stage) -> None:
    before = signal.getsignal(signal.SIGTERM)
    stage.on_follow = lambda: signal.raise_signal(signal.SIGTERM)
    stage.stay()
    assert stage.done == ["start", "follow", "stop"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_who_ends_it_while_it_starts_stops_the_mill_too(stage: Stage) -> None:
    def start() -> None:
        stage.start()
        signal.raise_signal(signal.SIGTERM)

    stage.stay(start)
    assert stage.done == ["start", "stop"]


@pytest.mark.parametrize(("ran_before", "done"), [(False, ["start", "stop"]), (True, ["start"])])
def test_a_start_that_fails_leaves_nothing_running_that_did_not_run(
    stage: Stage, ran_before: bool, done: list[str]
) -> None:
    def start() -> None:
        stage.start()
        raise CommandError("stream does not start")

    stage.runs = ran_before
    with pytest.raises(CommandError, match="stream does not start"):
        stage.stay(start)
    assert stage.done == done


def test_a_start_that_is_refused_stops_nothing(stage: Stage) -> None:
    def refuse() -> None:
        raise CommandError("nothing was started")

    with pytest.raises(CommandError, match="nothing was started"):
        stage.stay(refuse)
    assert stage.done == []


def test_a_mill_that_is_stopped_elsewhere_ends_the_command(stage: Stage) -> None:
    stage.on_follow = lambda: setattr(stage, "runs", False)
    stage.stay()
    assert stage.done == ["start", "follow"]


def test_a_supervisor_that_has_died_is_a_failure(stage: Stage) -> None:
    def die() -> None:
        stage.home.pid_file.write_text("{}")
        stage.runs = False

    stage.on_follow = die
    with pytest.raises(CommandError, match="the supervisor has died") as raised:
        stage.stay()
    assert raised.value.code == Exit.FAILED
    assert stage.done == ["start", "follow", "stop"]


@pytest.mark.parametrize("prefix", ["", "@"])
def test_a_service_manager_hears_that_it_is_ready_and_stopping(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    name = f"{prefix}{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1))
        monkeypatch.setenv(NOTIFY_VARIABLE, name)
        stage.on_follow = lambda: signal.raise_signal(signal.SIGTERM)
        stage.stay()
        heard = [manager.recv(100) for _ in range(2)]
    assert heard == [b"READY=1", b"STOPPING=1"]


def test_parts_do_not_hear_of_the_service_manager() -> None:
    environ = {NOTIFY_VARIABLE: "/nowhere", "PATH": "/bin"}
    tell = service_manager(environ)
    assert environ == {"PATH": "/bin"}
    # If the service manager's socket does not exist, the call does not fail.
    tell("READY=1")
