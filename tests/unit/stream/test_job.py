"""How the driver ends, with a double of the JVM."""

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from sinks.config import MySqlSettings, SinksSettings
from sinks.store import Sinks
from stream import job as module
from stream.config.settings import StreamSection, StreamSettings
from stream.job import EXIT_CRASHED, StreamJob
from stream.live_configuration import LiveConfiguration
from stream.overseer import JvmGone
from stream.source.kafka import TopicOffsets
from stream.source.progress import ProgressListener
from stream.spark import java_classes
from stream.state import StreamState
from tests.unit.stream.source.test_checkpoint import QUERY, made


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
    """Until it stops, the driver retries a batch at a sink that does not answer. A crash must count
    as a stop, so that the retries end."""

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
    """The committer's thread is in a pool, and a process waits for such threads when it exits."""

    def gone(*_: object) -> NoReturn:
        raise ConnectionRefusedError("as far as this is played")

    monkeypatch.setattr(module, "start_session", lambda *_, **__: None)
    monkeypatch.setattr(java_classes, "load", lambda *_: None)
    monkeypatch.setattr(LiveConfiguration, "faults", lambda *_: [])
    monkeypatch.setattr(ProgressListener, "register", lambda *_: None)
    monkeypatch.setattr(StreamJob, "_warm_up", gone)
    before = set(threading.enumerate())
    with pytest.raises(ConnectionRefusedError):
        StreamJob(settings_in(tmp_path), StreamState("stream", [], 100), threading.Event()).run()
    left = set(threading.enumerate()) - before
    assert [one.name for one in left if one.name == "committer"] == []


def test_a_query_that_ended_is_told_with_where_it_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver must log where the query failed. Spark's own message is not logged, because every
    change of metrics ends the query."""
    failure = ArithmeticError("as far as this is played")
    writer = SimpleNamespace(failure=failure, has_applied=False)
    stop = threading.Event()

    def watch(*_: object) -> Exception:
        stop.set()
        return failure

    for name, done in (
        ("_warm_up", lambda *_: None),
        ("_start_beside", lambda *_: None),
        ("_start_query", lambda *_: (writer, None)),
        ("_watch", watch),
    ):
        monkeypatch.setattr(StreamJob, name, done)
    monkeypatch.setattr(module, "start_session", lambda *_, **__: None)
    monkeypatch.setattr(java_classes, "load", lambda *_: None)
    monkeypatch.setattr(LiveConfiguration, "faults", lambda *_: [])
    monkeypatch.setattr(ProgressListener, "register", lambda *_: None)
    with caplog.at_level(logging.WARNING):
        StreamJob(settings_in(tmp_path), StreamState("stream", [], 100), stop).run()
    (record,) = [one for one in caplog.records if one.getMessage().startswith("query ended")]
    assert record.exc_info is not None
    assert record.exc_info[1] is failure


def test_lines_that_retention_took_after_they_were_counted_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver died between the write to the sinks and Spark's own commit, and was down for a
    long time."""
    made(tmp_path, range(3), range(2))
    ledger = {("logs.a", 0): 30, ("logs.a", 1): 5}
    held = TopicOffsets(
        {("logs.a", 0): 25, ("logs.a", 1): 0}, {("logs.a", 0): 90, ("logs.a", 1): 5}
    )
    opened: list[str] = []

    def open_sinks(_: object, query_id: str) -> int:
        opened.append(query_id)
        return len(opened)

    def waits(*_: object) -> NoReturn:
        raise AssertionError("the stream waits")

    monkeypatch.setattr(Sinks, "open", open_sinks)
    monkeypatch.setattr(Sinks, "ledger", lambda _: ledger)
    monkeypatch.setattr(StreamSection, "topics", ["logs.a"])
    monkeypatch.setattr(StreamJob, "_ask_topics", lambda _: held)
    monkeypatch.setattr(StreamState, "waiting", waits)
    job = StreamJob(settings_in(tmp_path), StreamState("stream", [], 100), threading.Event())
    query_id, starting = job._prepare()
    assert opened == [QUERY, query_id]
    assert starting == {"logs.a": {"0": 30, "1": 5}}


def watched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stops: list[bool], change: object = None
) -> object:
    """Return how the driver stops watching a query. Each of `stops` says whether the query stops in
    time. Without a change of the configuration, the stream is stopped."""
    stop = threading.Event()
    if change is None:
        stop.set()
    monkeypatch.setattr(module, "WATCH_S", 0.001)
    monkeypatch.setattr(module, "stop_query", lambda _: stops.pop(0))
    monkeypatch.setattr(LiveConfiguration, "wanted", lambda *_: change)
    writer: Any = SimpleNamespace(
        failure=None,
        is_idle=True,
        in_hand=None,
        hold=lambda: None,
        wait_between_batches=lambda _: True,
    )
    query: Any = SimpleNamespace(isActive=True)
    session: Any = None
    job = StreamJob(settings_in(folder), StreamState("stream", [], 100), stop)
    return job._watch(session, query, writer)


def test_a_changed_configuration_waits_for_a_query_that_stops_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next query must start only when the former one has stopped."""
    change, stops = object(), [False, True]
    assert watched(tmp_path, monkeypatch, stops, change) is change
    assert stops == []


def test_a_stopped_stream_does_not_wait_for_a_query_that_stops_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = [False]
    assert watched(tmp_path, monkeypatch, stops) is None
    assert stops == []
