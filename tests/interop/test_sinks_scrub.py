"""The scrub repairs a Redis that has lost values or shows wrong ones. Otherwise it writes
nothing."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from sinks.config import SinksSettings
from sinks.redis import scrubber as scrubbing
from sinks.rows import Batch, FoldRow, MetricDefinition, OffsetRange
from sinks.store import Sinks
from tests.harness import worked
from tests.harness.redis import RedisServer
from tests.harness.seed import seeded

pytestmark = pytest.mark.live

Spoil = Callable[[Any], object]
TEN = worked.at("10:00:00")
# Each call of `tend` makes at least one step, even on a slow machine. No example needs more calls
# than this.
TENDS_MAX = 150
# Each call of `tend` checks the totals and the latest windows, and the next call repairs them.
TENDS_NEWEST_MAX = 3
COMMANDS_THAT_WRITE = (
    "copy", "del", "expireat", "hdel", "hset", "persist", "unlink", "zadd", "zremrangebyrank",
)  # fmt: skip


def metric(name: str, measure: str, **changes: Any) -> MetricDefinition:
    kept = {0: None, 10: 3_600, 60: 86_400}
    one = dataclasses.replace(
        worked.DEFINITIONS[0],
        name=name,
        measure=measure,
        key_columns=("k",),
        windows_s=(10, 60, 0),
        keep_redis_s=kept,
        definition_hash=name.encode().ljust(16, b"\0"),
    )
    return dataclasses.replace(one, **changes)


HITS = metric("hits", "count", top=3)
BYTES = metric("bytes", "sum", top=2)
LATENCY = metric("latency", "percentile", key_columns=())
WIDE = metric("wide", "count", top=3, windows_s=(60, 0))


@pytest.fixture
def drive(settings: SinksSettings) -> Iterator[Callable[..., Sinks]]:
    """Return a function that opens drivers. Their maintenance runs only when the test calls
    `tend`."""
    with contextlib.ExitStack() as stack:

        def make(*metrics: MetricDefinition) -> Sinks:
            sinks = Sinks(
                settings, metrics, clock_ms=lambda: worked.NOW_MS, patience_s=2, tend_every_s=600
            )
            stack.callback(sinks.close)
            sinks.open(worked.QUERY)
            return sinks

        yield make


def batch(batch_id: int, *rows: FoldRow) -> Batch:
    covered = [OffsetRange("logs.access", 0, batch_id, batch_id + 1)]
    return Batch(worked.QUERY, batch_id, rows, (), covered, 1, worked.NOW_MS)


def filled(drive: Callable[..., Sinks]) -> Sinks:
    """Fill the sinks with forty slices of three metrics: 1,400 fields in some 120 windows."""
    sinks = drive(HITS, BYTES, LATENCY)
    rows: list[FoldRow] = []
    for n in range(40):
        start_s = TEN - 10 * n
        rows += [FoldRow("hits", start_s, (f"key {k}",), k + n + 1) for k in range(12)]
        numbers = [Decimal(k + n) for k in range(5)]
        rows += [FoldRow("bytes", start_s, (f"k{x}",), 1, x, x, x) for x in numbers]
        rows.append(FoldRow("latency", start_s, (), 2, kll=worked.kll(0.5 + n, 1.5 + n)))
    sinks.apply(batch(0, *rows))
    sinks.tend()
    return sinks


def shown(client: Any) -> dict[str, object]:
    """Return all values in Redis, with their expiry times."""
    found: dict[str, object] = {}
    for key in client.scan_iter("mill:*"):
        if key in ("mill:guard", "mill:meta"):
            continue
        read = {
            "hash": client.hgetall,
            "string": client.get,
            "list": lambda key: client.lrange(key, 0, -1),
            "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        }
        found[key] = (read[client.type(key)](key), client.expiretime(key))
    return found


def writes_made(client: Any) -> dict[str, int]:
    """Return how often each write command was called, including the calls in scripts."""
    stats = client.info("commandstats")
    return {
        name: stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in COMMANDS_THAT_WRITE
    }


def tends_until_right(sinks: Sinks, client: Any, right: dict[str, object]) -> int:
    for tends in range(TENDS_MAX + 1):
        if shown(client) == right:
            return tends
        sinks.tend()
    now = shown(client)
    differing = {key for key in {*now, *right} if now.get(key) != right.get(key)}
    pytest.fail(f"after {TENDS_MAX} tends {sorted(differing)} are not mended")


NEWEST: dict[str, Spoil] = {
    "totals deleted": lambda c: c.delete("mill:hits:all"),
    "latest window deleted": lambda c: c.delete("mill:hits:10s"),
    "all but the guard": lambda c: c.delete(
        *(key for key in c.scan_iter("mill:hits:*") if "Z" not in key)
    ),
    "newest window deleted": lambda c: c.delete("mill:bytes:1m:21260801T100000Z"),
    "ranking of totals deleted": lambda c: c.delete("mill:hits:all:top"),
    "ranking of latest deleted": lambda c: c.delete("mill:hits:1m:top"),
    "field of totals deleted": lambda c: c.hdel("mill:hits:all", "key 3"),
    "field of latest deleted": lambda c: c.hdel("mill:hits:1m", "key 3"),
    "field too many in totals": lambda c: c.hset("mill:hits:all", "stranger", 5),
    "latest shows an older window": lambda c: c.hset("mill:hits:1m", "@start", "21260801T095900Z"),
    "latest from the future": lambda c: c.hset("mill:hits:1m", "@start", "99990101T000000Z"),
    "latest without a start": lambda c: c.hdel("mill:hits:1m", "@start"),
    "latest that expires": lambda c: c.expire("mill:hits:1m", 9_000),
    "totals that expire": lambda c: c.expire("mill:hits:all", 9_000),
    "totals of another type": lambda c: (c.delete("mill:hits:all"), c.set("mill:hits:all", "x")),
    "latest of another type": lambda c: (c.delete("mill:hits:1m"), c.set("mill:hits:1m", "x")),
}
OLD = "mill:hits:10s:21260801T095430Z"
OLDER: dict[str, Spoil] = {
    "old window deleted": lambda c: c.delete(OLD),
    "old ranking deleted": lambda c: c.delete(f"{OLD}:top"),
    "old field deleted": lambda c: c.hdel(OLD, "key 7"),
    "old field changed": lambda c: c.hset(OLD, "key 7", "1"),
    "field changed in totals": lambda c: c.hset("mill:hits:all", "key 7", "1"),
    "field changed in latest": lambda c: c.hset("mill:hits:10s", "key 7", "99"),
    "one field for another": lambda c: (c.hdel(OLD, "key 7"), c.hset(OLD, "stranger", "1")),
    "another for one in latest": lambda c: (
        c.hdel("mill:hits:1m", "key 7"), c.hset("mill:hits:1m", "stranger", "1"),
    ),
    "field too many": lambda c: c.hset(OLD, "stranger", "1"),
    "score changed": lambda c: c.zadd(f"{OLD}:top", {"key 11": 1}),
    "score and field changed": lambda c: (
        c.zadd(f"{OLD}:top", {"key 11": 1}), c.hset(OLD, "key 11", "1"),
    ),
    "member for another": lambda c: (
        c.zrem(f"{OLD}:top", "key 11"), c.zadd(f"{OLD}:top", {"key 0": 46}),
    ),
    "ranking of latest changed": lambda c: c.zadd("mill:hits:1m:top", {"key 11": 1}),
    "expiry lost": lambda c: c.persist(OLD),
    "expiry of a ranking changed": lambda c: c.expire(f"{OLD}:top", 9_000),
    "old window of another type": lambda c: (c.delete(OLD), c.rpush(OLD, "x")),
    "ranking of another type": lambda c: (c.delete(f"{OLD}:top"), c.set(f"{OLD}:top", "x")),
    "quantile deleted": lambda c: c.hdel("mill:latency:10s:21260801T095430Z", "*.p95"),
    "quantile changed": lambda c: c.hset("mill:latency:all", "*.p95", "0"),
    "all windows of a size": lambda c: c.delete(*c.scan_iter("mill:bytes:10s:*")),
    "much at once": lambda c: [
        seeded("scrub loss").random() < 0.3 and c.delete(key) for key in c.scan_iter("mill:*Z*")
    ],
}  # fmt: skip


@pytest.mark.parametrize("loss", [*NEWEST, *OLDER])
def test_a_loss_is_noticed_and_mended(
    redis_server: RedisServer,
    drive: Callable[..., Sinks],
    loss: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sinks = filled(drive)
    client: Any = redis_server.client()
    right = shown(client)
    assert sinks.scrubbed_total == 0
    {**NEWEST, **OLDER}[loss](client)
    assert shown(client) != right
    with caplog.at_level(logging.WARNING, logger="sinks.redis.scrubber"):
        tends = tends_until_right(sinks, client, right)
    assert tends <= (TENDS_NEWEST_MAX if loss in NEWEST else TENDS_MAX)
    # The comparison of the repaired window can need one more call of `tend` to end.
    sinks.tend()
    assert sinks.scrubbed_total > 0
    assert "mill:" in caplog.text
    before, made = sinks.scrubbed_total, writes_made(client)
    for _ in range(5):
        sinks.tend()
    assert (sinks.scrubbed_total, writes_made(client)) == (before, made)


def test_what_is_no_text_is_mended_like_anything_else(
    redis_server: RedisServer, drive: Callable[..., Sinks]
) -> None:
    sinks = filled(drive)
    client: Any = redis_server.client()
    right = shown(client)
    client.hset(OLD, b"\xff\xfe", b"\xff")
    client.hset(OLD, "key 3", b"\xff")
    client.zadd(f"{OLD}:top", {b"\xff": 99})
    client.hset("mill:hits:1m", "@start", b"\xff")
    for _ in range(TENDS_MAX):
        sinks.tend()
    assert shown(client) == right
    assert sinks.scrubbed_total == 2


def test_what_is_right_is_not_written_and_a_strangers_key_is_left(
    redis_server: RedisServer,
    drive: Callable[..., Sinks],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scrubbing, "LOOKING_S", 60)
    sinks = filled(drive)
    client: Any = redis_server.client()
    client.set("mill:foo", "bar")
    right, made = shown(client), writes_made(client)
    assert sinks._view is not None
    scrubber = sinks._view._scrubber
    rounds = scrubber.rounds_total
    for _ in range(20):
        sinks.tend()
    assert scrubber.rounds_total > rounds + 3
    assert (shown(client), writes_made(client)) == (right, made)
    assert sinks.scrubbed_total == 0
    assert "mill:" not in caplog.text


def test_merges_go_on_while_a_large_window_is_compared(
    redis_server: RedisServer, drive: Callable[..., Sinks], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each `tend` compares only one page, so that a merge comes between any two pages.
    monkeypatch.setattr(scrubbing, "LOOKING_S", 0)
    monkeypatch.setattr(scrubbing, "MENDING_S", 0)
    chance = seeded("scrub beside merges")
    sinks = drive(WIDE)
    client: Any = redis_server.client()
    counted = {f"key {n}": n for n in range(1, 2_001)}
    rows = [FoldRow("wide", TEN, (key,), count) for key, count in counted.items()]
    sinks.apply(batch(0, *rows))
    for number in range(1, 60):
        more = {f"key {chance.randrange(1, 4_000)}": chance.randrange(1, 9_999) for _ in range(20)}
        at = TEN + 60 * (number // 20)
        sinks.apply(batch(number, *(FoldRow("wide", at, (k,), n) for k, n in more.items())))
        for key, count in more.items():
            counted[key] = counted.get(key, 0) + count
        sinks.tend()
        assert sinks.scrubbed_total == 0
    assert client.hgetall("mill:wide:all") == {key: str(count) for key, count in counted.items()}
    client.hset("mill:wide:all", "key 1", "0")
    client.hset("mill:wide:all", "stranger", "0")
    number = 60
    expected = {key: str(count) for key, count in counted.items()}
    while client.hgetall("mill:wide:all") != expected:
        assert number < 60 + TENDS_MAX
        sinks.apply(batch(number, FoldRow("wide", TEN, ("key 2",), 1)))
        counted["key 2"] += 1
        expected["key 2"] = str(counted["key 2"])
        sinks.tend()
        number += 1
    first = sorted(counted.items(), key=lambda one: (-one[1], one[0]))[:3]
    assert client.zrevrange("mill:wide:all:top", 0, -1) == [key for key, _ in first]


def test_a_tend_reads_a_bounded_number_of_cells(
    redis_server: RedisServer, drive: Callable[..., Sinks], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Set long times, so that only the number of cells limits a `tend`, even on a fast machine.
    monkeypatch.setattr(scrubbing, "LOOKING_S", 60)
    monkeypatch.setattr(scrubbing, "MENDING_S", 60)
    sinks = drive(WIDE)
    rows = [FoldRow("wide", TEN - 60 * (n % 5), (f"key {n}",), n + 1) for n in range(8_000)]
    sinks.apply(batch(0, *rows))
    assert sinks._view is not None
    cell_reader = sinks._view._cell_reader
    read: list[int] = []
    page = cell_reader.cells_page

    def counting(*asked: Any) -> Any:
        found = page(*asked)
        read.append(len(found))
        return found

    monkeypatch.setattr(cell_reader, "cells_page", counting)

    def most_in_a_tend(tends: int) -> int:
        most = 0
        for _ in range(tends):
            read.clear()
            sinks.tend()
            most = max(most, sum(read))
        return most

    assert 0 < most_in_a_tend(30) <= scrubbing.CELLS_PER_TEND + scrubbing.CELLS_PER_PAGE
    client = redis_server.client()
    client.delete("mill:wide:all")
    most = most_in_a_tend(3)
    assert most > scrubbing.CELLS_PER_TEND
    assert most <= scrubbing.CELLS_PER_TEND_MENDING + scrubbing.CELLS_PER_PAGE
    assert client.hlen("mill:wide:all") == 8_000


def test_a_window_that_mysql_has_purged_is_left_to_its_expiry(
    redis_server: RedisServer, drive: Callable[..., Sinks]
) -> None:
    short = metric("short", "count", windows_s=(10,), keep_mysql_s={10: 100})
    sinks = drive(short)
    sinks.apply(batch(0, *(FoldRow("short", TEN - 10 * n, ("a",), 1) for n in range(11))))
    client: Any = redis_server.client()
    right = shown(client)
    assert sinks._mysql is not None
    later_s = TEN + 60
    assert not sinks._mysql.purge(later_s)
    sinks._clock_ms = lambda: later_s * 1_000
    for _ in range(20):
        sinks.tend()
    assert (shown(client), sinks.scrubbed_total) == (right, 0)
