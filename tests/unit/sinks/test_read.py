"""At most one health check of a sink runs at a time. All callers wait for the same result."""

import pytest

from sinks.config import MySqlSettings, RedisSettings
from sinks.errors import SinkUnavailable
from sinks.read import ask_mysql, ask_redis
from tests.harness.silent import silent_server

TIMEOUT_S = 0.2


def test_a_redis_that_hangs_is_asked_once() -> None:
    with silent_server() as server:
        settings = RedisSettings(host="127.0.0.1", port=server.port)
        with pytest.raises(SinkUnavailable, match="redis"):
            ask_redis(settings, TIMEOUT_S)
        assert len(server.taken) == 1


def test_a_mysql_that_hangs_is_asked_once() -> None:
    with silent_server() as server:
        settings = MySqlSettings(
            host="127.0.0.1", port=server.port, user="reader", password="x", database="millrace"
        )
        with pytest.raises(SinkUnavailable, match="mysql"):
            ask_mysql(settings, TIMEOUT_S)
        assert len(server.taken) == 1
