"""A Redis that is the only sink stores its version. The mill leaves counts of another version
unchanged."""

from typing import Any

import pytest

from sinks.config import RedisSettings, SinksSettings
from sinks.errors import SchemaTooNew, SchemaTooOld
from sinks.redis.script import OPEN
from sinks.store import BatchOutcome, Sinks
from tests.harness import worked
from tests.harness.redis import RedisServer

pytestmark = pytest.mark.live


def redis_driver(settings: RedisSettings) -> Sinks:
    return Sinks(SinksSettings(redis=settings), worked.DEFINITIONS, clock_ms=lambda: worked.NOW_MS)


def everything(client: Any) -> dict[str, Any]:
    read = {
        "hash": client.hgetall,
        "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        "string": client.get,
    }
    return {
        key: (read[client.type(key)](key), client.expiretime(key)) for key in client.scan_iter()
    }


def test_counts_of_another_version_are_refused_and_left_as_they_are(tmp_path: Any) -> None:
    with RedisServer(tmp_path / "r", durable=True) as server:
        client: Any = server.client()
        sinks = redis_driver(server.settings)
        assert not sinks.takes_blocks
        sinks.open(worked.QUERY)
        sinks.apply(worked.BATCH_7)
        assert client.get("mill:state_version") == "2"
        for version, error, text in (
            (
                None,
                SchemaTooOld,
                "Redis has counts of version 1, .*another server under sinks.redis",
            ),
            ("1", SchemaTooOld, "Redis has counts of version 1, .* reads version 2"),
            ("3", SchemaTooNew, "have version 3, but this version of millrace writes version 2"),
        ):
            client.delete("mill:state_version")
            if version is not None:
                client.set("mill:state_version", version)
            before = everything(client)
            with pytest.raises(error, match=text):
                redis_driver(server.settings).open(worked.QUERY)
            assert everything(client) == before
        client.set("mill:state_version", "2")
        again = redis_driver(server.settings)
        again.open(worked.QUERY)
        assert again.apply(worked.BATCH_7) is BatchOutcome.REPLAYED
        assert again.apply(worked.BATCH_8) is BatchOutcome.MERGED


def test_a_redis_that_was_a_view_becomes_the_only_sink(tmp_path: Any) -> None:
    """Such a Redis has a guard but no counts, so it must not be rejected as an older version."""
    with RedisServer(tmp_path / "r", durable=True) as server:
        client: Any = server.client()
        client.eval(OPEN, 0, "another query")
        sinks = redis_driver(server.settings)
        sinks.open(worked.QUERY)
        assert client.get("mill:state_version") == "2"
        assert sinks.apply(worked.BATCH_7) is BatchOutcome.MERGED
