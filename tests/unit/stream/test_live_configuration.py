"""Inputs and metrics that Spark cannot run are stopped, and everything else continues."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from protocol.status import PartState
from sinks.config import MySqlSettings, SinksSettings
from sinks.errors import DefinitionChanged
from stream import job as job_module
from stream import live_configuration as module
from stream.config.settings import StreamSettings
from stream.job import EXIT_SETTINGS, EXIT_STOPPED, StreamJob
from stream.live_configuration import LiveConfiguration
from stream.parse.fault import Fault
from stream.source.progress import ProgressListener
from stream.spark import java_classes
from stream.state import StreamState

SECTION = {
    "from": {
        "access": {"topic": "logs.access", "format": "combined"},
        "json": {"topic": "logs.json", "format": "json", "columns": {"level": "level string"}},
    },
    "metrics": [
        {"name": "statuses", "from": "access", "key": "status", "measure": "count"},
        {"name": "levels", "from": "json", "key": "level", "measure": "count"},
        {"name": "all_lines", "from": ["access", "json"], "measure": "count"},
        {"name": "paths", "from": "access", "key": "path", "measure": "count"},
    ],
}
NO_SESSION = cast(SparkSession, None)


def settings_in(folder: Path) -> StreamSettings:
    return StreamSettings.model_validate(
        {
            "section": SECTION,
            "sinks": SinksSettings(
                mysql=MySqlSettings(host="127.0.0.1", port=1, user="mill", password="")
            ),
            "bootstrap_servers": "127.0.0.1:1",
            "data_dir": folder,
        }
    )


@pytest.fixture
def state() -> StreamState:
    return StreamState("stream", [], 100)


@pytest.fixture
def configuration(tmp_path: Path, state: StreamState) -> Iterator[LiveConfiguration]:
    made = LiveConfiguration(settings_in(tmp_path), state)
    yield made
    made.close()


def problems(state: StreamState) -> list[str]:
    return [problem.text for problem in state.snapshot().problems if problem.code == "stopped"]


def test_a_metric_is_stopped_alone(configuration: LiveConfiguration, state: StreamState) -> None:
    fault = Fault(("stream", "metrics", 1, "where"), "AMBIGUOUS_REFERENCE", "what can run")
    assert configuration.stop([fault])
    assert configuration.now.names == ["statuses", "all_lines", "paths"]
    assert set(configuration.now.section.from_) == {"access", "json"}
    (text,) = problems(state)
    assert text.startswith("metric levels is stopped, everything else is counted: where: found AMB")
    assert "stream recount" in text
    status = state.snapshot()
    assert status.state is not PartState.RUNNING
    assert status.details["metrics"] == ["statuses", "all_lines", "paths"]
    (told,) = cast(list[dict[str, Any]], status.details["stopped"])
    assert told["what"] == "metric levels"


def test_an_input_is_stopped_with_what_reads_it(
    configuration: LiveConfiguration, state: StreamState
) -> None:
    assert configuration.stop([Fault(("stream", "from", "json"), "no plan", "a plan")])
    assert configuration.now.names == ["statuses", "paths"]
    assert configuration.now.section.topics == ("logs.access",)
    (text,) = problems(state)
    assert text.startswith("input json (and what reads it: levels, all_lines) is stopped")


def test_what_fails_later_is_stopped_beside_what_is_stopped(
    configuration: LiveConfiguration, state: StreamState
) -> None:
    """The positions in the faults refer to the metrics that are still counted at that time."""
    for _ in range(2):
        assert configuration.stop([Fault(("stream", "metrics", 0), "no plan", "a plan")])
    assert configuration.now.names == ["all_lines", "paths"]
    assert [text.split(" is ")[0] for text in problems(state)] == [
        "metric statuses",
        "metric levels",
    ]


def test_a_stop_does_not_hide_that_a_changed_file_was_refused(
    configuration: LiveConfiguration, state: StreamState
) -> None:
    state.refused("why")
    assert configuration.stop([Fault(("stream", "metrics", 0), "no plan", "a plan")])
    assert [problem.code for problem in state.snapshot().problems] == ["configuration", "stopped"]


def test_nothing_is_stopped_where_nothing_would_be_left(configuration: LiveConfiguration) -> None:
    every = [Fault(("stream", "from", name), "no plan", "a plan") for name in ("access", "json")]
    assert not configuration.stop(every)
    assert not configuration.stop([])
    assert len(configuration.now.names) == 4


def test_a_metric_whose_meaning_changed_is_stopped(
    configuration: LiveConfiguration, state: StreamState
) -> None:
    """The sinks refuse a metric whose meaning changed. Only this metric must stop, not the
    stream."""
    error = DefinitionChanged(["paths"])
    assert configuration.can_go_on(error.names, str(error))
    assert configuration.now.names == ["statuses", "levels", "all_lines"]
    (text,) = problems(state)
    assert "stream forget paths" in text


def played_job(
    folder: Path, monkeypatch: pytest.MonkeyPatch, bad: set[str], failures: list[str]
) -> tuple[StreamJob, StreamState, list[list[str]]]:
    """Return a job, its state, and the metrics that each of its queries counts. A query ends if it
    counts a metric of `bad`."""
    ran: list[list[str]] = []
    stop = threading.Event()
    state = StreamState("stream", [], 100)
    job = StreamJob(settings_in(folder), state, stop)
    configuration = job._configuration

    def check(_: object, section: Any) -> list[Fault]:
        return [
            Fault(("stream", "metrics", at), "no plan", "a plan")
            for at, metric in enumerate(section.metrics)
            if metric.name in bad
        ]

    def start(*_: object) -> tuple[SimpleNamespace, None]:
        ran.append(configuration.now.names)
        return SimpleNamespace(failure=None, has_applied=False), None

    def watch(*_: object) -> Exception | None:
        return RuntimeError(failures.pop(0)) if failures else None

    monkeypatch.setattr(module, "check_configuration", check)
    monkeypatch.setattr(module, "check_section", lambda *_: [])
    monkeypatch.setattr(job_module, "RETRY_S", (0.0, 0.0))
    monkeypatch.setattr(job_module, "start_session", lambda *_, **__: None)
    monkeypatch.setattr(java_classes, "load", lambda *_: None)
    monkeypatch.setattr(ProgressListener, "register", lambda *_: None)
    for name, done in (
        ("_warm_up", lambda *_: None),
        ("_start_beside", lambda *_: None),
        ("_start_query", start),
        ("_watch", watch),
    ):
        monkeypatch.setattr(StreamJob, name, done)
    return job, state, ran


def test_a_query_that_ends_twice_for_a_metric_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, state, ran = played_job(tmp_path, monkeypatch, {"levels"}, ["AMBIGUOUS"] * 2)
    assert job.run() == EXIT_STOPPED
    everything = ["statuses", "levels", "all_lines", "paths"]
    assert ran == [everything, everything, ["statuses", "all_lines", "paths"]]
    assert len(problems(state)) == 1


def test_a_query_that_ends_for_something_else_loses_no_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, state, ran = played_job(tmp_path, monkeypatch, set(), ["disk full"] * 3)
    assert job.run() == EXIT_STOPPED
    assert ran == [["statuses", "levels", "all_lines", "paths"]] * 4
    assert problems(state) == []


@pytest.mark.parametrize(("number", "code"), [(1, EXIT_STOPPED), (4, EXIT_SETTINGS)])
def test_a_start_with_faults_counts_what_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    job, _, ran = played_job(tmp_path, monkeypatch, set(), [])
    faults = [Fault(("stream", "metrics", at, "where"), "x", "y") for at in range(number)]
    monkeypatch.setattr(module, "check_section", lambda *_: faults)
    assert job.run() == code
    assert [len(names) for names in ran] == ([3] if code == EXIT_STOPPED else [])
