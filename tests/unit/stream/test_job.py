"""The driver's end, with a JVM that is played."""

import threading
from pathlib import Path
from typing import NoReturn

import pytest

from sinks.config import MySqlSettings, SinksSettings
from stream import java_classes
from stream import job as module
from stream.config import StreamSettings
from stream.course import Course
from stream.job import EXIT_CRASHED, StreamJob
from stream.overseer import JvmGone
from stream.progress import ProgressListener
from stream.state import StreamState


def settings_in(folder: Path) -> StreamSettings:
    return StreamSettings.model_validate(
        {
            "section": {},
            "sinks": SinksSettings(
                mysql=MySqlSettings(host="127.0.0.1", port=1, user="mill", password="")
            ),
            "bootstrap_servers": "127.0.0.1:1",
            "data_dir": folder,
            "jars": [],
        }
    )


def test_a_driver_that_crashed_lets_nothing_wait_any_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch in hand is offered to a sink that is away until the driver stops: this is a stop."""

    def gone(*_: object, **__: object) -> NoReturn:
        raise JvmGone("as far as this is played")

    monkeypatch.setattr(module, "start_session", gone)
    stop = threading.Event()
    assert (
        StreamJob(settings_in(tmp_path), StreamState("stream", [], 100), stop).run() == EXIT_CRASHED
    )
    assert stop.is_set()


def test_a_driver_whose_jvm_ends_while_it_warms_up_leaves_no_thread_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The committer's waits in a pool, for which a process does not exit."""

    def gone(*_: object) -> NoReturn:
        raise ConnectionRefusedError("as far as this is played")

    monkeypatch.setattr(module, "start_session", lambda *_, **__: None)
    monkeypatch.setattr(java_classes, "load", lambda *_: None)
    monkeypatch.setattr(Course, "faults", lambda *_: [])
    monkeypatch.setattr(ProgressListener, "register", lambda *_: None)
    monkeypatch.setattr(StreamJob, "_warm_up", gone)
    with pytest.raises(ConnectionRefusedError):
        StreamJob(settings_in(tmp_path), StreamState("stream", [], 100), threading.Event()).run()
    assert [one.name for one in threading.enumerate() if one.name == "committer"] == []
