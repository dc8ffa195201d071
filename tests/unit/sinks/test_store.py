"""A driver's sinks without any server: what they refuse, and their messages."""

from typing import Any

import pymysql
import pytest

from sinks.config import MySqlSettings, SinksSettings
from sinks.errors import LedgerMismatch, SinkUnavailable
from sinks.mysql.recounts import wanted
from sinks.mysql.sink import NO_SUCH_TABLE, MySqlSink
from sinks.rows import Batch, OffsetRange
from sinks.store import Sinks
from sinks.tending import tend_or_say

SETTINGS = MySqlSettings(host="127.0.0.1", port=1, user="mill", password="")
RANGES = [OffsetRange("t", 0, 0, 9)]
BATCH = Batch("q", 0, [], [], RANGES, 9, 1_000)


class Emptied:
    """A double of a connection to a database without tables."""

    def cursor(self, cursor: Any = None) -> "Emptied":
        return self

    def __enter__(self) -> "Emptied":
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, sql: str, values: object = None) -> int:
        # Every session creates this temporary table itself, so it never fails.
        if "TEMPORARY" in sql:
            return 0
        raise pymysql.err.ProgrammingError(NO_SUCH_TABLE, "Table 'millrace.x' doesn't exist")

    executemany = execute

    def begin(self) -> None: ...

    commit = rollback = close = begin


def a_sinks() -> Sinks:
    return Sinks(SinksSettings(mysql=SETTINGS, redis=None), [])


def test_whatever_meets_an_emptied_database_says_so() -> None:
    sink = MySqlSink(SETTINGS, patience_s=0, connect=lambda _: Emptied())
    for ask in (
        sink.ledger,
        sink.guard,
        lambda: sink.work(wanted),
        lambda: sink.apply(BATCH),
        lambda: sink.fill("m", BATCH),
        lambda: sink.purge(1_000),
    ):
        with pytest.raises(LedgerMismatch, match="emptied"):
            ask()


def test_nothing_is_asked_of_tables_before_they_are_made() -> None:
    sinks = a_sinks()
    for ask in (
        sinks.recounts,
        lambda: sinks.note(lambda cursor: None),
        lambda: sinks.note(wanted),
    ):
        with pytest.raises(SinkUnavailable, match="not opened yet"):
            ask()


def test_a_round_that_nobody_thought_of_is_said_and_the_next_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sinks = a_sinks()

    def fail() -> None:
        raise KeyError("why")

    monkeypatch.setattr(sinks, "tend", fail)
    tend_or_say(sinks)
    assert sinks.untended == "KeyError: 'why'"
    monkeypatch.setattr(sinks, "tend", lambda: None)
    tend_or_say(sinks)
    assert sinks.untended is None
