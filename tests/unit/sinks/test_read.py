"""Whether the sinks answer is asked once: who asks waits for the answer of a server that hangs."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sinks.config import MySqlSettings, RedisSettings
from sinks.errors import SinkUnavailable
from sinks.read import ask_mysql, ask_redis

TIMEOUT_S = 0.2


class SilentServer:
    """Takes connections and never says a word."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        while True:
            try:
                self.taken.append(self._listener.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self.taken:
            connection.close()


@contextmanager
def silent_server() -> Iterator[SilentServer]:
    server = SilentServer()
    try:
        yield server
    finally:
        server.close()


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
