"""Servers that several tests share, and what a run in several processes needs to know.

A server is started once a process, when first asked for. `make test` runs two processes; tests of
one group stay together in one of them: those of a module, those that share a mill or a Spark.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.tally import LINES

# Tests start dozens of JVMs that live for seconds; the quick compiler alone halves what each costs.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name each test's group."""
    for item in items:
        fixtures: tuple[str, ...] = getattr(item, "fixturenames", ())
        module = item.path.stem
        if "mill_at_work" in fixtures:
            group = "the mill at work"
        elif module.startswith("test_stream_") and item.path.parent.name == "interop":
            group = "the session of Spark"
        else:
            group = item.nodeid.split("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several hands over what its tests counted."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["counts"] = LINES


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process has counted."""
    LINES.extend(getattr(node, "workeroutput", {}).get("counts", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the long tests counted, also when they pass."""
    if LINES:
        terminalreporter.section("counts")
        for line in LINES:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def mysql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySqlServer]:
    """A database server; each test takes `new_database()`."""
    with MySqlServer(tmp_path_factory.mktemp("mysql")) as server:
        yield server


@pytest.fixture(scope="session")
def _redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_server(_redis_server: RedisServer) -> RedisServer:
    """A Redis server, empty at the test's start."""
    _redis_server.client().flushall()
    return _redis_server
