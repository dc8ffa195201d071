"""`bin/compose-roll` restarts the brokers of a mill in containers in turns, beside a scripted
`docker`."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.mill.home import CODE
from tests.harness.wait import wait_until

DOCKER = """#!/bin/sh
all=$*
echo "$all" >>"$RECORD"
case "$all" in
  "compose config --services") printf 'init\\nbroker-1\\nbroker-2\\nbroker-3\\nmonitor\\n' ;;
  "compose run --rm -T cli broker turns"*)
    shift 7
    [ $# -gt 0 ] || set -- broker-1 broker-2 broker-3
    # Broker 1 is the active controller.
    for one; do [ "$one" = broker-1 ] || echo "$one"; done
    for one; do [ "$one" != broker-1 ] || echo "$one"; done ;;
esac
case "$all" in
  *"$STOP_AT"*) eval "$STOP_HOW" ;;
esac
"""

RUN = "compose run --rm -T"
START = "compose up -d --no-deps --no-recreate broker-1 broker-2 broker-3"
RESTART = "compose up -d --no-deps --force-recreate"
REST = "compose up -d --wait"


@dataclass
class Desk:
    """A folder with the scripted `docker`, and the record of its calls."""

    folder: Path

    def environment(self, stop_at: str, how: str) -> dict[str, str]:
        path = f"{self.folder}:{os.environ['PATH']}"
        record = str(self.folder / "record")
        return {"PATH": path, "RECORD": record, "STOP_AT": stop_at, "STOP_HOW": how}

    def run(
        self, *arguments: str, stop_at: str = "nowhere", how: str = ":"
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CODE / "bin" / "compose-roll", *arguments],
            env=self.environment(stop_at, how),
            capture_output=True,
            text=True,
            timeout=30,
        )

    @property
    def calls(self) -> list[str]:
        path = self.folder / "record"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    return Desk(tmp_path)


def test_all_brokers_restart_in_turns_and_then_the_rest(desk: Desk) -> None:
    done = desk.run()
    assert done.returncode == 0, done.stderr
    assert desk.calls == [
        "compose config --services",
        START,
        f"{RUN} cli upgrade --dry-run",
        f"{RUN} init",
        f"{RUN} cli broker turns",
        f"{RESTART} broker-2",
        f"{RUN} cli broker turns broker-3 broker-1",
        f"{RESTART} broker-3",
        f"{RUN} cli broker turns broker-1",
        f"{RESTART} broker-1",
        f"{RUN} cli broker turns",
        REST,
    ]


def test_named_brokers_restart_alone(desk: Desk) -> None:
    assert desk.run("broker-1", "broker-3").returncode == 0
    assert [one for one in desk.calls if "recreate" in one or "--wait" in one] == [
        START,
        f"{RESTART} broker-3",
        f"{RESTART} broker-1",
    ]


def test_an_image_that_cannot_run_at_this_level_restarts_nothing(desk: Desk) -> None:
    done = desk.run(stop_at="upgrade --dry-run", how="exit 3")
    assert done.returncode == 3
    assert "stopped: no broker was restarted" in done.stderr
    assert not any(RESTART in one for one in desk.calls)


def test_a_failure_says_which_brokers_are_left(desk: Desk) -> None:
    done = desk.run(stop_at="turns broker-3 broker-1", how="exit 3")
    assert done.returncode == 3
    assert "stopped: `bin/compose-roll broker-3 broker-1` goes on" in done.stderr
    assert "then `docker compose up -d --wait`" in done.stderr


def test_a_broker_whose_restart_failed_is_among_those_that_are_left(desk: Desk) -> None:
    done = desk.run(stop_at=f"{RESTART} broker-3", how="exit 1")
    assert "stopped: `bin/compose-roll broker-3 broker-1` goes on" in done.stderr


def test_ctrl_c_stops_it_and_says_how_to_continue(desk: Desk) -> None:
    process = subprocess.Popen(
        [CODE / "bin" / "compose-roll"],
        env=desk.environment("turns broker-3 broker-1", "sleep 60"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(
        lambda: desk.calls[-1:] == [f"{RUN} cli broker turns broker-3 broker-1"],
        60.0,
        "the second question",
    )
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped: `bin/compose-roll broker-3 broker-1` goes on" in err
    assert f"{RESTART} broker-3" not in desk.calls


def test_help_is_text_and_an_unknown_option_restarts_nothing(desk: Desk) -> None:
    done = desk.run("--help")
    assert (done.returncode, desk.calls) == (0, [])
    assert done.stdout.startswith("For a mill in containers: restart the brokers")
    assert done.stdout.endswith("and the last line says how to continue.\n")
    assert desk.run("--all").returncode == 2
    assert desk.calls == []
