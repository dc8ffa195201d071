"""The container of a part that is not configured: it is healthy, says why it is idle, and can be
stopped."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.config.load import load_text
from appliance.healthz import ask
from appliance.launch import unasked
from appliance.mill.home import CODE, Home
from appliance.mill.init import initialise
from appliance.mill.settings import Mill, broker_settings
from appliance.mill.voter_folders import NEWCOMER_MARK
from tests.harness.ports import free_ports
from tests.harness.wait import wait_until

DEADLINE_S = 20.0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_that_is_not_asked_for_waits(tmp_path: Path, how: signal.Signals) -> None:
    port = free_ports(3)
    config = tmp_path / "mill.yaml"
    config.write_text(f"cluster: {{brokers: 1}}\nports: {{broker_status: {port}}}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", "--config", str(config), "run", "broker-3"],
        cwd=CODE,
        env={"MILLRACE_HOME": str(tmp_path), "MILLRACE_PUBLISHED": "loopback"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: ask(str(port + 2))[0], DEADLINE_S, "it answers for its health")
        process.send_signal(how)
        _, said = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "the configuration has no part broker-3" in said
    assert not (tmp_path / "data" / "broker-3").exists()


class Answers:
    """Scripted answers about the health of a broker."""

    def __init__(self, *healthy: bool) -> None:
        self.healthy = list(healthy)
        self.asked: list[str] = []

    def __call__(self, place: str) -> tuple[bool, str]:
        self.asked.append(place)
        return self.healthy.pop(0), ""


def container(folder: Path, text: str) -> Mill:
    """Return the mill as a container with this configuration sees it."""
    config = load_text(text, "mill.yaml", folder, {"MILLRACE_PUBLISHED": "loopback"}).config
    home = Home(folder, folder / "mill.yaml", in_containers=True)
    initialise(home, config.cluster.broker_ids)
    return Mill.of(home, config, in_containers=True)


def mark_with(monkeypatch: pytest.MonkeyPatch, mill: Mill, answers: Answers) -> None:
    monkeypatch.setattr(unasked, "ask", answers)
    monkeypatch.setattr(unasked, "ASK_EVERY_S", 0)
    asyncio.run(unasked._mark_newcomer(mill, "broker-3"))


def test_a_broker_joins_if_it_is_asked_for_after_the_mill_has_run_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Answers(False, False, True)
    mark_with(monkeypatch, container(tmp_path, "cluster: {brokers: 1}"), answers)
    assert answers.asked == ["broker-1:8093"] * 3, "there is no mark before the cluster exists"
    grown = container(tmp_path, "cluster: {brokers: 3}")
    assert [broker_settings(grown, f"broker-{n}")["joins"] for n in (2, 3)] == [False, True]


def test_a_full_disk_delays_the_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    marks = iter([OSError(28, "No space left on device"), None])

    def mark(home: Home, broker: int) -> None:
        if (error := next(marks)) is not None:
            raise error

    monkeypatch.setattr(unasked, "mark_newcomer", mark)
    mark_with(monkeypatch, container(tmp_path, "cluster: {brokers: 1}"), Answers(True, True))
    assert list(marks) == []
    assert "cannot mark its folder, and tries again: " in caplog.text


@pytest.mark.parametrize(
    ("text", "has_data"),
    [
        ("cluster: {brokers: 1}", True),
        ("cluster: {bootstrap_servers: 'kafka:9092'}", False),
    ],
)
def test_a_folder_with_data_and_one_of_an_existing_cluster_get_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, has_data: bool
) -> None:
    folder = tmp_path / "data" / "broker-3"
    if has_data:
        folder.mkdir(parents=True)
        (folder / "meta.properties").write_text("node.id=3\n")
    answers = Answers()
    mark_with(monkeypatch, container(tmp_path, text), answers)
    assert answers.asked == []
    assert not (folder / NEWCOMER_MARK).exists()
