"""Servers that several tests share, and data for a test run in several processes.

Each process starts its own copy of a server, when a test first needs that server. `make test` runs
two processes. All tests of one group (`groups`) run in the same process.
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

# Tests start dozens of JVMs that live for seconds. Without the optimising compiler each JVM costs
# half as much.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# A test run in the background ignores SIGINT, and its child processes would inherit that. Then the
# tests could not send Ctrl-C to a command, so restore the default handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The duration of a Hypothesis example depends on the machine, so a slow example must not fail.
settings.register_profile("millrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("millrace")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Return the scheduler that assigns tests to worker processes."""
    # Run the groups in the order of their folders. The last ones are short, so no process idles for
    # long while the other one finishes.
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the ten thousand test objects, which stay in memory, from garbage collections.

    Otherwise garbage collections would take half of the collection phase, and even more of the time
    of every test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the counters of this worker process to the main process."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["counts"] = LINES


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the counters of a worker process to those of the main process."""
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
