"""Commands in the container `cli`, which has no PySpark, no supervisor and few secrets."""

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.checks import startup
from appliance.cli import elsewhere
from appliance.machine.processes import PortHolder
from appliance.mill.home import CODE
from appliance.output import Exit
from tests.unit.appliance.test_commands import config, mill, run

OF_THE_STREAM = "docker compose run --rm stream"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    config(tmp_path, "stream: {metrics: []}\n")
    monkeypatch.setenv("MILLRACE_PUBLISHED", "loopback")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "instead"),
    [
        ("up", "`docker compose up -d --wait`"),
        ("up --foreground", "`docker compose up -d --wait`"),
        ("up --help", "`docker compose up -d --wait`"),
        ("down --timeout 5", "`docker compose down`"),
        ("restart", "`docker compose restart`"),
        ("restart --timeout 5 stream --force", "`docker compose restart stream`"),
        ("start broker-1", "`docker compose start broker-1`"),
        ("stop broker-1", "`docker compose stop broker-1`"),
        ("backup /tmp/x", "docs/backup.md"),
        ("restore /tmp/x", "docs/backup.md"),
        ("config check", f"`{OF_THE_STREAM} config check`"),
        ("stream recount m --from 7d", f"`{OF_THE_STREAM} stream recount m --from 7d`"),
        ("stream forget m", f"`{OF_THE_STREAM} stream forget m`"),
        ("stream purge --yes", f"`{OF_THE_STREAM} stream purge --yes`"),
        ("upgrade", "`bin/compose-roll`"),
        ("cert renew", "`docker compose run --rm init cert renew`"),
        (
            "stream dry-run /mill/watched/a.log",
            "`docker compose run --rm -v ./watched:/mill/watched:ro stream stream dry-run"
            " /mill/watched/a.log`",
        ),
        (
            "collector once",
            "`docker compose stop collector`, `docker compose run --rm collector collector once`,"
            " `docker compose start collector`",
        ),
    ],
)
def test_what_is_done_elsewhere_is_told_with_what_to_type(
    home: Path, monkeypatch: pytest.MonkeyPatch, asked: str, instead: str
) -> None:
    code, out, err = run(monkeypatch, home, *asked.split())
    assert (code, out) == (Exit.CONDITION, [])
    [line] = err
    assert instead in line


@pytest.mark.parametrize("asked", ["config check --quick", "stream --help", "restore -h"])
def test_the_rest_is_done_here(home: Path, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    code, _, err = run(monkeypatch, home, *asked.split())
    assert code == Exit.OK, err


def test_where_spark_is_the_file_is_checked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyspark")
    code, _, err = run(monkeypatch, home, "config", "check")
    assert code == Exit.OK, err


def test_the_container_with_the_key_of_the_ca_shows_certificates(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "data" / "secrets" / "ca").mkdir(parents=True)
    code, _, err = run(monkeypatch, home, "cert", "show")
    assert code == Exit.NOT_FOUND
    assert "this mill has no certificates" in err[-1]


def test_in_the_collector_s_own_container_all_is_read_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "data" / "collector").mkdir(parents=True)
    monkeypatch.setattr("appliance.cli.collector_commands.REACH_TIMEOUT_MS", 200)
    code, _, err = run(monkeypatch, home, "collector", "once")
    # The command was allowed and then tried to reach the brokers, but no broker runs.
    assert code == Exit.UNREACHABLE
    assert "nothing was read, because no broker answers" in err[-1]


def test_without_containers_nothing_is_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MILLRACE_PUBLISHED")
    monkeypatch.delitem(sys.modules, "pyspark")
    code, _, err = run(monkeypatch, home, "stop", "broker-1")
    assert code == Exit.UNREACHABLE
    assert "docker" not in err[0]


def test_a_port_that_a_container_publishes_is_freed_by_compose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = mill(tmp_path)
    monkeypatch.setattr(startup, "port_is_free", lambda *_: False)
    for command, way_out in (("docker-proxy", "`docker compose down`"), ("nc", "that process")):
        holder = PortHolder(7, command)
        monkeypatch.setattr(startup, "holder_of", lambda _, holder=holder: holder)
        for check in startup.ports(ours):
            assert way_out in check.remedy


def test_no_other_command_needs_spark_to_be_loaded() -> None:
    """The image of `cli` has no Spark, so a command that imports Spark would end with a
    traceback."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'py4j']));"
        "from appliance.cli.tree import COMMANDS;"
        f"[one.load() for name, one in COMMANDS.items() if name not in {set(elsewhere.OF_COMPOSE)}]"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CODE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_demo_tells_how_it_is_watched_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, err = run(monkeypatch, home, "demo", "--seconds", "0.1")
    assert any("docker compose run --rm cli show requests_by_status" in line for line in err)
