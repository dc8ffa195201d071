"""A Redis that is the only sink keeps its cells as states: those of version 1 are brought up."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sinks.config import RedisSettings, SinksSettings
from sinks.errors import FencedWriter
from sinks.keys import key_hash
from sinks.redis.truth import RedisTruth
from sinks.rows import MetricDefinition
from sinks.store import BatchOutcome, Sinks
from tests.harness import worked
from tests.harness.redis import RedisServer
from tests.interop.test_sinks_migration import HASHES, METRICS, NEXT, batches

pytestmark = pytest.mark.live


def redis_driver(settings: RedisSettings, metrics: Sequence[MetricDefinition] = METRICS) -> Sinks:
    return Sinks(SinksSettings(redis=settings), metrics, clock_ms=lambda: worked.NOW_MS)


def states(client: Any) -> dict[str, dict[str, str]]:
    return {key: client.hgetall(key) for key in client.scan_iter("mill:state:*")}


def set_states_back(client: Any) -> None:
    """Cells under the hashes of version 1."""
    client.delete("mill:state_version")
    for key, fields in states(client).items():
        expiry = client.expiretime(key)
        client.delete(key)
        for name, text in fields.items():
            is_cell = name != "n_keys"
            old = HASHES[bytes.fromhex(name)].hex() if is_cell else name
            client.hset(key, old, text)
        if expiry > 0:
            client.expireat(key, expiry)


def test_a_redis_that_is_the_only_sink_is_brought_up_and_goes_on(tmp_path: Any) -> None:
    with RedisServer(tmp_path / "r", durable=True) as server:
        client: Any = server.client()
        sinks = redis_driver(server.settings)
        assert not sinks.takes_blocks
        sinks.open(worked.QUERY)
        for batch in batches():
            sinks.apply(batch)
        expected = states(client)
        expiries = {key: client.expiretime(key) for key in expected}
        set_states_back(client)
        assert states(client) != expected
        # As a driver leaves it that died half way: some keys are done.
        done = sorted(expected)[: len(expected) // 2]
        for key in done:
            client.delete(key)
            client.hset(key, mapping=expected[key])
            client.expireat(key, expiries[key])
        again = redis_driver(server.settings)
        again.open(worked.QUERY)
        assert states(client) == expected
        assert {key: client.expiretime(key) for key in expected} == expiries
        assert client.get("mill:state_version") == "2"
        assert again.apply(batches()[1]) is BatchOutcome.REPLAYED
        assert again.apply(NEXT) is BatchOutcome.MERGED
        assert client.hget("mill:requests_by_status:1m:21260801T100000Z", "404") == "2"
        key = "mill:state:by_two:1m:21260801T100000Z"
        cell = json.loads(states(client)[key][key_hash(("GET", "/")).hex()])
        assert cell["count"] == 9


def test_a_fenced_driver_brings_no_states_up(tmp_path: Any) -> None:
    with RedisServer(tmp_path / "r", durable=True) as server:
        first, second = RedisTruth(server.settings), RedisTruth(server.settings)
        first.open(worked.QUERY, METRICS, 0)
        first.apply(batches()[0])
        second.open(worked.QUERY, METRICS, 0)
        set_states_back(server.client())
        before = states(server.client())
        with pytest.raises(FencedWriter):
            first._bring_states_up()
        assert states(server.client()) == before
