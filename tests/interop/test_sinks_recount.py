"""On real servers a metric is recounted over earlier lines. Each line counts once, and the result
is shown."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sinks.config import SinksSettings
from sinks.errors import FencedWriter, RangeMoved
from sinks.mysql.recounts import Recount, ask_for, give_up, note_try, raise_floors
from sinks.rows import Batch, FoldRow, MetricDefinition, OffsetRange
from sinks.store import Sinks
from tests.harness import worked
from tests.harness.redis import RedisServer

pytestmark = pytest.mark.live

TEN = worked.at("10:00:00")
PLACE = ("logs.access", 0)
OLD, NEW = (
    dataclasses.replace(worked.DEFINITIONS[0], name=name, key_columns=("k",))
    for name in ("old", "new")
)
Drive = Callable[..., Sinks]


@pytest.fixture
def drive(settings: SinksSettings) -> Iterator[Drive]:
    """Return a function that opens drivers of one query. They are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(*metrics: MetricDefinition) -> Sinks:
            sinks = Sinks(
                settings, metrics, patience_s=2, clock_ms=lambda: worked.NOW_MS, tend_every_s=60
            )
            stack.callback(sinks.close)
            sinks.open(worked.QUERY)
            return sinks

        yield make


def batch(batch_id: int, start: int, end: int, *names: str) -> Batch:
    """Return a batch with one line per offset. Each of these metrics counts all its lines."""
    rows = [FoldRow(name, TEN, ("a",), end - start) for name in names]
    covered = [OffsetRange(*PLACE, start, end)]
    return Batch(worked.QUERY, batch_id, rows, (), covered, end - start, worked.NOW_MS)


@pytest.fixture
def sinks(drive: Drive) -> Sinks:
    """Return sinks in which `old` has counted the offsets 0 to 49, and `new` only 40 to 49."""
    drive(OLD).apply(batch(0, 0, 40, "old"))
    sinks = drive(OLD, NEW)
    sinks.apply(batch(1, 40, 50, "old", "new"))
    return sinks


def ask(sinks: Sinks, floor: int = 0) -> list[Recount]:
    sinks.note(lambda cursor: ask_for(cursor, "new", {PLACE: floor}))
    return sinks.recounts()


def shown(redis_server: RedisServer) -> str:
    client: Any = redis_server.client()
    return str(client.hgetall("mill:new:1m")["a"])


def gap(start: int, end: int, left: int, tries: int = 0) -> list[Recount]:
    return [Recount("new", [OffsetRange(*PLACE, start, end)], left, tries, None)]


def test_a_piece_counts_once_and_moves_the_beginning(
    sinks: Sinks, redis_server: RedisServer
) -> None:
    assert ask(sinks) == gap(0, 40, 40)
    sinks.fill("new", batch(-1, 25, 40, "new"))
    assert shown(redis_server) == "25"
    assert sinks.recounts() == gap(0, 25, 25)
    with pytest.raises(RangeMoved):
        sinks.fill("new", batch(-1, 25, 40, "new"))
    sinks.apply(batch(2, 50, 60, "old", "new"))
    sinks.fill("new", batch(-1, 0, 25, "new"))
    assert shown(redis_server) == "60"
    assert sinks.recounts() == []


def test_only_what_is_wanted_is_missing(sinks: Sinks) -> None:
    assert ask(sinks, 30) == gap(30, 40, 10)
    sinks.note(lambda cursor: raise_floors(cursor, "new", {PLACE: 38}))
    assert sinks.recounts() == gap(38, 40, 2)
    sinks.note(lambda cursor: raise_floors(cursor, "new", {PLACE: 45}))
    assert sinks.recounts() == []


def test_tries_are_known_until_one_succeeds(sinks: Sinks) -> None:
    ask(sinks)
    sinks.note(lambda cursor: note_try(cursor, "new"))
    assert sinks.recounts() == gap(0, 40, 40, tries=1)
    sinks.fill("new", batch(-1, 35, 40, "new"))
    assert sinks.recounts() == gap(0, 35, 35)
    sinks.note(lambda cursor: give_up(cursor, "new", "no use"))
    assert sinks.recounts()[0].problem == "no use"
    assert ask(sinks)[0].problem is None


def test_an_older_driver_fills_nothing(
    sinks: Sinks, drive: Drive, redis_server: RedisServer
) -> None:
    ask(sinks)
    newer = drive(OLD, NEW)
    with pytest.raises(FencedWriter):
        sinks.fill("new", batch(-1, 25, 40, "new"))
    newer.fill("new", batch(-1, 25, 40, "new"))
    assert shown(redis_server) == "25"


def test_a_hole_is_filled_and_what_left_is_not(sinks: Sinks, drive: Drive) -> None:
    drive(OLD).apply(batch(2, 50, 70, "old"))
    assert ask(sinks) == []
    again = drive(OLD, NEW)
    again.apply(batch(3, 70, 80, "old", "new"))
    assert ask(again) == gap(50, 70, 60)
    again.fill("new", batch(-1, 50, 70, "new"))
    assert again.recounts() == gap(0, 40, 40)


def test_a_metric_that_came_and_left_without_a_line_is_recounted_from_there_too(
    drive: Drive, redis_server: RedisServer
) -> None:
    drive(OLD).apply(batch(0, 0, 40, "old"))
    drive(OLD, NEW)
    drive(OLD).apply(batch(1, 40, 70, "old"))
    again = drive(OLD, NEW)
    again.apply(batch(2, 70, 80, "old", "new"))
    assert ask(again) == gap(40, 70, 70)
    again.fill("new", batch(-1, 40, 70, "new"))
    assert again.recounts() == gap(0, 40, 40)
    again.fill("new", batch(-1, 0, 40, "new"))
    assert again.recounts() == []
    assert shown(redis_server) == "80"
