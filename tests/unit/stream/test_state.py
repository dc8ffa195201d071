"""The stream reports itself healthy only while it counts lines."""

import re
from typing import Any

import pytest

from protocol.status import PartState
from sinks.facts import SinkFacts
from sinks.keeping import Term
from sinks.mysql.recounts import Recount
from sinks.rows import OffsetRange, UnparsedRow
from stream.exposition import prometheus
from stream.quarantine.search import PoisonLine
from stream.stages import BatchWork
from stream.state import POISON_LISTED, QUERY_ENDED, ArchivedTopic, ArchiveFacts, StreamState

RANGES = [OffsetRange("t", 0, 0, 9)]


def a_state() -> StreamState:
    state = StreamState("stream", ["m"], 100)
    state.running()
    return state


def applied(state: StreamState, *poison: PoisonLine, replayed: bool = False) -> None:
    rows = [UnparsedRow("t", "f", "poison", len(poison))] if poison else []
    state.batch_applied(
        4, 9, 1, rows, RANGES, replayed=replayed, event_time_ms=None, sinks_ms=1, poison=poison
    )


def standing(state: StreamState) -> tuple[PartState, list[str]]:
    status = state.snapshot()
    assert status.ready
    return status.state, [problem.code for problem in status.problems]


def line(offset: int) -> PoisonLine:
    return PoisonLine("t", "f", 0, offset, b"the line", "SomeError: why")


def test_a_query_that_runs_is_healthy_before_its_first_line() -> None:
    assert standing(a_state()) == (PartState.RUNNING, [])


def test_a_query_that_ends_again_and_again_is_never_called_healthy() -> None:
    state = a_state()
    for _ in range(3):
        state.waiting(QUERY_ENDED, "why")
        assert standing(state) == (PartState.DEGRADED, [QUERY_ENDED])
        state.running()
        assert standing(state) == (PartState.DEGRADED, [QUERY_ENDED])
    applied(state)
    assert standing(state) == (PartState.RUNNING, [])


def test_a_query_that_started_again_and_finds_nothing_to_count_is_healthy() -> None:
    state = a_state()
    state.waiting(QUERY_ENDED, "why")
    state.running()
    state.idle()
    assert standing(state) == (PartState.RUNNING, [])


def test_the_pace_is_that_of_the_lines_which_were_counted() -> None:
    state = a_state()
    report = {"durationMs": {"triggerExecution": 500}, "processedRowsPerSecond": 0.0}
    for _ in range(2):
        applied(state)
    state.progressed(report)
    assert state.snapshot().details["rows_per_second"] == 36.0, "two pieces of nine lines"
    applied(state)
    applied(state, replayed=True)
    state.progressed(report)
    assert state.snapshot().details["rows_per_second"] == 18.0
    state.idle()
    assert state.snapshot().details["rows_per_second"] == 0.0


@pytest.mark.parametrize("code", ["mysql-away", "broker-away", "lines-lost"])
def test_what_is_waited_for_is_over_when_the_query_runs(code: str) -> None:
    state = a_state()
    state.waiting(code, "why")
    assert standing(state) == (PartState.DEGRADED, [code])
    state.running()
    assert standing(state) == (PartState.RUNNING, [])


def test_a_wait_does_not_hide_why_the_query_ended() -> None:
    state = a_state()
    state.waiting(QUERY_ENDED, "why")
    state.waiting("broker-away", "not there")
    assert standing(state) == (PartState.DEGRADED, [QUERY_ENDED, "broker-away"])


def test_a_search_is_shown_until_the_batch_is_in_the_sinks() -> None:
    state = a_state()
    state.halving("looking")
    assert standing(state) == (PartState.DEGRADED, ["poison"])
    state.running()
    state.idle()
    state.waiting("mysql-away", "why")
    assert standing(state) == (PartState.DEGRADED, ["poison", "mysql-away"])
    applied(state, line(3))
    assert standing(state) == (PartState.RUNNING, [])


def test_lines_set_aside_stay_listed() -> None:
    state = a_state()
    applied(state, line(3), line(5))
    applied(state)
    applied(state, line(3), replayed=True)
    details: dict[str, Any] = dict(state.snapshot().details)
    assert details["poison_total"] == 2
    assert details["poison"] == [
        {"topic": "t", "file": "f", "partition": 0, "offset": at, "reason": "SomeError: why"}
        for at in (3, 5)
    ]
    assert details["unparsed_total"] == 2
    assert "millrace_stream_poison_total 2" in prometheus(state.snapshot())


def test_the_last_lines_are_listed_and_all_are_counted() -> None:
    state = a_state()
    applied(state, *map(line, range(POISON_LISTED + 7)))
    details: dict[str, Any] = dict(state.snapshot().details)
    assert details["poison_total"] == POISON_LISTED + 7
    assert [one["offset"] for one in details["poison"]] == list(range(7, POISON_LISTED + 7))


def test_a_refused_configuration_is_said_until_one_is_accepted() -> None:
    state = a_state()
    state.running()
    state.refused("stream.metrics.1.where: found nonsense")
    applied(state)
    assert standing(state) == (PartState.DEGRADED, ["configuration"])
    state.configured(["a", "b"])
    assert standing(state) == (PartState.RUNNING, [])
    assert dict(state.snapshot().details)["metrics"] == ["a", "b"]


def test_recounts_and_how_the_sinks_are_are_listed() -> None:
    state = a_state()
    notice = Term("m", 60, 90 * 86_400, 1_785_578_400, 7)
    state.watch_sinks(lambda: SinkFacts({"mysql": "ok"}, 3, 5, [notice]))
    state.recounting([Recount("m", [OffsetRange("t", 0, 5, 9)], 4, 1, None)])
    details: dict[str, Any] = dict(state.snapshot().details)
    assert details["recounts"] == [{"metric": "m", "left": 4, "problem": None}]
    assert details["sinks"] == {"mysql": "ok"}
    assert (details["scrubbed_total"], details["left_out_total"]) == (3, 5)
    (told,) = details["notices"]
    assert told == {
        "metric": "m", "size": "1m", "keep": "90d", "cells": 7, "from_ms": 1_785_578_400_000,
    }  # fmt: skip
    assert "millrace_stream_scrubbed_total 3" in prometheus(state.snapshot())
    assert "millrace_stream_left_out_total 5" in prometheus(state.snapshot())


def test_sinks_that_are_not_tended_are_said_until_they_are() -> None:
    state = a_state()
    why: list[str | None] = ["KeyError: 'x'", None]
    state.watch_sinks(lambda: SinkFacts(untended=why.pop(0)))
    assert standing(state) == (PartState.DEGRADED, ["sinks-untended"])
    assert standing(state) == (PartState.RUNNING, [])


def test_the_archive_is_told_and_its_trouble_ends_nothing() -> None:
    state = a_state()
    assert dict(state.snapshot().details)["archive"] is None
    state.archiving(ArchiveFacts("file:///a", [ArchivedTopic("t", 2, 100, 7)], None, 5))
    assert state.snapshot().state is PartState.RUNNING
    details: dict[str, Any] = dict(state.snapshot().details)
    assert details["archive"]["topics"] == [{"topic": "t", "pieces": 2, "lines": 100, "lost": 7}]
    assert "millrace_stream_archived_lines 100" in prometheus(state.snapshot())
    assert "millrace_stream_archive_lost_offsets 7" in prometheus(state.snapshot())
    state.archiving(ArchiveFacts("file:///a", [], "t: the disk is full", 6))
    found = state.snapshot()
    assert found.ready
    assert found.state is PartState.DEGRADED
    assert [one.code for one in found.problems] == ["archive"]
    assert "the disk is full" in found.problems[0].text


def test_prometheus_is_told_what_each_stage_took_and_how_old_live_lines_are() -> None:
    state = a_state()
    assert "line_seconds{" not in prometheus(state.snapshot()), "nothing is known yet"
    work = BatchWork({"parse": 0.25, "mysql": 0.5}, 9, 4, [(200.0, 9)])
    state.batch_applied(
        4, 9, 1, [], RANGES, replayed=False, event_time_ms=None, sinks_ms=1, work=work
    )
    state.progressed({"batchId": 4, "durationMs": {"triggerExecution": 1_000, "walCommit": 30}})
    found = prometheus(state.snapshot())
    assert 'millrace_stream_stage_seconds_total{stage="mysql"} 0.5' in found
    assert 'millrace_stream_stage_seconds_total{stage="commit"} 0.03' in found
    assert "millrace_stream_busy_seconds_total 1.0" in found
    assert "millrace_stream_cells_total 4" in found
    assert re.search(r'^millrace_stream_line_seconds{quantile="0.99"} 0\.(19|20)', found, re.M)
    assert "millrace_stream_line_seconds_count 9" in found
    assert "millrace_stream_line_seconds_sum 1.8" in found


def test_a_batch_in_hand_is_told_as_busy() -> None:
    state = a_state()
    state.batch_begins()
    assert minute_of(state)["busy"] > 0
    state.batch_ends()
    assert minute_of(state)["busy"] == 0


def minute_of(state: StreamState) -> dict[str, Any]:
    details: dict[str, Any] = dict(state.snapshot().details)
    return dict(details["stages"]["windows"]["1m"])
