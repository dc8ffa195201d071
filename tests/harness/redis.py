"""A separate Redis server: a free port, a folder of the test, and the users of the mill."""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from sinks.config import RedisSettings
from tests.harness.ports import free_port
from tests.harness.processes import ServerProcess
from tests.harness.wait import wait_until

PASSWORD = "a-test's-own"
PAUSED_MAX_MS = 120_000
"""A pause ends automatically after this time, in case the test ends without ending it."""

DEFAULT_RIGHTS = [
    "on",
    "nopass",
    "~mill:*",
    "&mill:*",
    "-@all",
    "+@read",
    "+@connection",
    "+subscribe",
    "+psubscribe",
    "+unsubscribe",
    "+punsubscribe",
    "-@dangerous",
]


class RedisServer(ServerProcess):
    """One redis-server process. `kill9` and `start` may alternate."""

    def __init__(self, folder: Path, *, durable: bool = False, options: Sequence[str] = ()) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("redis-server is not installed")
        super().__init__("redis-server", folder / "redis.log")
        self._program = program
        self._folder = folder
        self._durable = durable
        self._options = options
        self.port = free_port()

    @property
    def settings(self) -> RedisSettings:
        """Return the writer's settings."""
        return RedisSettings(host="127.0.0.1", port=self.port, username="mill", password=PASSWORD)

    def client(self) -> "redis.Redis":
        """Return a client with the writer's login."""
        return redis.Redis(
            port=self.port, username="mill", password=PASSWORD, decode_responses=True
        )

    def reader(self) -> "redis.Redis":
        """Return a client without a password, like a user's redis-cli."""
        return redis.Redis(port=self.port, decode_responses=True)

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        users = self._folder / "users.acl"
        # Redis loads its append-only file with the rights of the default user, and drops commands
        # that this user may not run. So reduce the rights only after the server responds.
        users.write_text(
            f"user default on >{PASSWORD} ~* &* +@all\nuser mill on >{PASSWORD} ~* &* +@all\n",
            encoding="utf-8",
        )
        durable = "yes" if self._durable else "no"
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        arguments += ["--save", "", "--appendonly", durable, "--appendfsync", "always"]
        arguments += ["--aclfile", str(users), *self._options]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen([self._program, *arguments], stdout=log, stderr=log)
        wait_until(lambda: self.client().ping(), 20, "redis answers")
        writer: Any = self.client()
        writer.execute_command("ACL", "SETUSER", "default", "reset", *DEFAULT_RIGHTS)
        # The mill's own user may access only keys below `mill:`, not even the empty key.
        writer.execute_command("ACL", "SETUSER", "mill", "resetkeys", "~mill:*")
        return self

    @contextlib.contextmanager
    def paused(self) -> Iterator[Callable[[], bool]]:
        """Pause writes with CLIENT PAUSE WRITE. In the meantime writes and scripts wait, but reads
        run.

        Yields a function that returns True if a write is waiting.
        """
        client: Any = self.client()

        def holds_back() -> bool:
            return any("b" in told["flags"] for told in client.client_list())

        client.client_pause(PAUSED_MAX_MS, all=False)
        try:
            yield holds_back
        finally:
            client.client_unpause()


@contextlib.contextmanager
def redis_server(folder: Path, *, durable: bool = False) -> Iterator[RedisServer]:
    """Yield a running server for a test."""
    with RedisServer(folder, durable=durable) as server:
        yield server
