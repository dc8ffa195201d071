"""Servers that several tests share, and data for a test run in several processes.

A server is started once per process, when a test first needs it. `make test` runs two processes.
Tests of one group stay together in one of them (`groups`).
"""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.groups import GroupScheduling
from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.tally import LINES

# Tests start dozens of JVMs that live for seconds; the quick compiler alone halves what each costs.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# A run in the background has SIGINT ignored, and all that it starts would inherit that: no command
# could be tried by Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's affair, and no fault of what is tried.
settings.register_profile("millrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("millrace")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Return the scheduler that assigns tests to worker processes."""
    # In the order of their folders: what is quick comes last, and no process waits for the other.
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude ten thousand tests, which stay in memory, from garbage collections.

    Otherwise garbage collections would take half of the time in which tests are collected, and even
    more of the time of every test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Pass on the counters of a worker process."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["counts"] = LINES


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the counters of a worker process."""
    LINES.extend(getattr(node, "workeroutput", {}).get("counts", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counters of long tests even if the run passes."""
    if LINES:
        terminalreporter.section("counts")
        for line in LINES:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def mysql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySqlServer]:
    """Return a database server. Each test calls `new_database()`."""
    with MySqlServer(tmp_path_factory.mktemp("mysql")) as server:
        yield server


@pytest.fixture(scope="session")
def _redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_server(_redis_server: RedisServer) -> RedisServer:
    """Return a Redis server that is empty at the start of the test."""
    _redis_server.client().flushall()
    return _redis_server
