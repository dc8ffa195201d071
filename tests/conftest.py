"""Servers that several tests share: started once a session, when first asked for."""

from collections.abc import Iterator

import pytest

from tests.harness.mysql import MySqlServer
from tests.harness.redis import RedisServer
from tests.harness.tally import LINES


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
