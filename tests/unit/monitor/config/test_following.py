"""The monitor follows changes of its configuration file while it runs."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from monitor.config.following import Configured, UpdateWatch
from monitor.config.settings import MonitorReloadSettings, MonitorSettings
from protocol.settling import SETTLED_S, sha256_of

PRINTS = "import pathlib,sys; sys.stdout.write(pathlib.Path(sys.argv[1]).read_text())"


def update(*names: str) -> str:
    metrics = [{"name": name, "inputs": ["access"], "measure": "count"} for name in names]
    return json.dumps({"inputs": [], "metrics": metrics})


def names_of(configured: Configured) -> list[str]:
    return [metric.name for metric in configured.now.metrics]


def look(watch: UpdateWatch, at_s: float) -> None:
    """Let the watch read the file twice without a change in between, because it waits until a file
    is stable."""
    asyncio.run(watch.look(at_s))
    asyncio.run(watch.look(at_s + SETTLED_S))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "update.json"
    file.write_text(update("one"))
    return file


def watched(file: Path, sha256: str | None) -> tuple[Configured, UpdateWatch]:
    reload = MonitorReloadSettings(
        file=file, command=(sys.executable, "-c", PRINTS, str(file)), sha256=sha256
    )
    first = json.loads(update("one"))["metrics"]
    configured = Configured(
        MonitorSettings(bootstrap_servers="b:1", data_dir="data", parts={}, metrics=first)
    )
    return configured, UpdateWatch(configured, reload)


def test_a_metric_that_was_added_is_known_without_a_restart(file: Path) -> None:
    configured, watch = watched(file, sha256_of(file))
    look(watch, 0.0)
    assert names_of(configured) == ["one"]
    file.write_text(update("one", "two"))
    look(watch, 10.0)
    assert names_of(configured) == ["one", "two"]


def test_a_file_that_changed_before_the_monitor_started_is_read(file: Path) -> None:
    sha256 = sha256_of(file)
    file.write_text(update("two"))
    configured, watch = watched(file, sha256)
    look(watch, 0.0)
    assert names_of(configured) == ["two"]


def test_a_file_with_faults_changes_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    configured, watch = watched(file, sha256_of(file))
    file.write_text("no JSON")
    look(watch, 0.0)
    assert names_of(configured) == ["one"]
    assert "the earlier ones stay" in caplog.text
    file.write_text(update("three"))
    look(watch, 10.0)
    assert names_of(configured) == ["three"]
