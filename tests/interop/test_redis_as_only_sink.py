"""The bundled Redis as the only sink: acknowledged counts survive a kill and stay readable."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from appliance.launch.servers import find_program, redis_configuration
from appliance.mill.sinks import READER, SINK_USER
from sinks.config import RedisSettings, SinksSettings
from sinks.store import Sinks
from tests.harness import worked
from tests.harness.ports import free_port
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

PASSWORD = "a-test's-own"


def client(port: int, user: str | None = READER, password: str | None = READER) -> Any:
    return redis.Redis(port=port, username=user, password=password, decode_responses=True)


@contextmanager
def running(folder: Path, port: int, *, is_only_sink: bool) -> Iterator[None]:
    """Run the server with the mill's configuration, and kill it when the block ends."""
    program = find_program("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    file = folder / "redis.conf"
    file.write_text(redis_configuration(str(folder), port, PASSWORD, is_only_sink=is_only_sink))
    process = subprocess.Popen([program, str(file)], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: client(port).ping(), 20, "redis answers a reader")
        yield
    finally:
        process.kill()
        process.wait()


def test_what_was_counted_survives_a_kill(tmp_path: Path) -> None:
    port = free_port()
    settings = RedisSettings(host="127.0.0.1", port=port, username=SINK_USER, password=PASSWORD)
    with running(tmp_path, port, is_only_sink=True):
        sinks = Sinks(SinksSettings(redis=settings), worked.DEFINITIONS)
        sinks.open(worked.QUERY)
        sinks.apply(worked.BATCH_7)
        sinks.close()
    with running(tmp_path, port, is_only_sink=True):
        sinks = Sinks(SinksSettings(redis=settings), worked.DEFINITIONS)
        sinks.open(worked.QUERY)
        assert sinks.ledger() == {("logs.access", 0): 4, ("logs.api", 0): 4}
        sinks.close()
        shown = client(port).hgetall("mill:requests_by_status:1m")
        assert shown["200"] == "2"
        with pytest.raises(redis.exceptions.NoPermissionError):
            client(port).set("mill:x", "1")
        with pytest.raises(redis.exceptions.AuthenticationError):
            client(port, None, None).hgetall("mill:requests_by_status:1m")


def test_beside_mysql_anybody_reads_without_a_name(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, port, is_only_sink=False):
        for reader in (client(port, None, None), client(port)):
            assert reader.hgetall("mill:any") == {}
            with pytest.raises(redis.exceptions.NoPermissionError):
                reader.set("mill:x", "1")
