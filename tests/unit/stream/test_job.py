"""The driver's end, with a JVM that is played."""

import threading
from pathlib import Path
from typing import NoReturn

import pytest

from sinks.config import MySqlSettings, SinksSettings
from stream import job as module
from stream.config import StreamSettings
from stream.job import EXIT_CRASHED, StreamJob
from stream.overseer import JvmGone
from stream.state import StreamState


def test_a_driver_that_crashed_lets_nothing_wait_any_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch in hand is offered to a sink that is away until the driver stops: this is a stop."""
    settings = StreamSettings.model_validate(
        {
            "section": {},
            "sinks": SinksSettings(
                mysql=MySqlSettings(host="127.0.0.1", port=1, user="mill", password="")
            ),
            "bootstrap_servers": "127.0.0.1:1",
            "data_dir": tmp_path,
            "jars": [],
        }
    )

    def gone(*_: object, **__: object) -> NoReturn:
        raise JvmGone("as far as this is played")

    monkeypatch.setattr(module, "start_session", gone)
    stop = threading.Event()
    assert StreamJob(settings, StreamState("stream", [], 100), stop).run() == EXIT_CRASHED
    assert stop.is_set()
