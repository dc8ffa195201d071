"""Timestamps of the records at which readers stopped: each is read once, and reading has limits."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from monitor.asking import record_times
from monitor.asking.record_times import RecordTimes
from monitor.state.reading import Commit, GroupReading
from protocol.client.errors import RequestTimedOut
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.types import TopicPartition
from protocol.wire.records import patch
from tests.harness.wire import batch_of
from tests.unit.monitor.readings import row

WRITTEN_MS = 1_700_000_000_000
END = 100


class Log:
    """A log in which the batch at offset N was written N milliseconds after the batch at offset
    0."""

    def __init__(self) -> None:
        self.asked: list[tuple[TopicPartition, int]] = []
        self.is_silent = False

    async def leader(self, tp: TopicPartition) -> int:
        return 1

    async def request(self, node_id: int | None, message: FetchRequest) -> Any:
        (topic,) = message.topics
        (part,) = topic.partitions
        self.asked.append((TopicPartition(topic.topic, part.partition), part.fetch_offset))
        if self.is_silent:
            raise RequestTimedOut("no answer")
        batch = batch_of([b"line"], timestamp_ms=WRITTEN_MS + part.fetch_offset)
        patch(batch, part.fetch_offset, 0)
        data = PartitionData(partition_index=part.partition, records=batch)
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, partitions=[data])]
        )


class Cycles:
    """Consecutive readings of groups from the same log."""

    def __init__(self) -> None:
        self.log = Log()
        self.times = RecordTimes()

    def look(
        self,
        groups: Mapping[str, Mapping[int, int]],
        *,
        there: tuple[str, ...] = (),
        start: int = 0,
    ) -> dict[tuple[TopicPartition, int], int]:
        """Return the timestamps at these committed offsets. Groups in `there` exist but are not
        read in this cycle."""
        readings = [
            GroupReading(name, "Empty", (), {row(part): Commit(at) for part, at in commits.items()})
            for name, commits in groups.items()
        ]
        rows = {row(part) for commits in groups.values() for part in commits}
        return asyncio.run(
            self.times.read(
                self.log, readings, {*groups, *there}, dict.fromkeys(rows, start),
                dict.fromkeys(rows, END),
            )
        )  # fmt: skip


def test_a_reader_that_moves_is_not_read_for_and_one_that_stands_is_once() -> None:
    cycles = Cycles()
    assert cycles.look({"a": {0: 5}}) == {}
    assert cycles.look({"a": {0: 6}}) == {}
    assert cycles.log.asked == []
    for _ in range(3):
        assert cycles.look({"a": {0: 6}}) == {(row(0), 6): WRITTEN_MS + 6}
    assert cycles.log.asked == [(row(0), 6)]
    assert cycles.look({"a": {0: 7}}) == {}


def test_nothing_is_read_for_who_has_read_all() -> None:
    cycles = Cycles()
    for _ in range(3):
        assert cycles.look({"a": {0: END}}) == {}
    assert cycles.log.asked == []


def test_a_reader_behind_the_start_waits_for_the_first_record_there_is() -> None:
    cycles = Cycles()
    cycles.look({"a": {0: 5}}, start=20)
    assert cycles.look({"a": {0: 5}}, start=20) == {(row(0), 20): WRITTEN_MS + 20}


def test_a_group_that_rests_keeps_what_was_read_and_one_that_is_gone_does_not() -> None:
    cycles = Cycles()
    for _ in range(2):
        cycles.look({"a": {0: 5}})
    assert cycles.look({}, there=("a",)) == {}
    assert cycles.look({"a": {0: 5}}) == {(row(0), 5): WRITTEN_MS + 5}
    assert len(cycles.log.asked) == 1
    cycles.look({})
    assert cycles.look({"a": {0: 5}}) == {}, "it is a new one"


def test_two_groups_at_one_place_are_read_for_once() -> None:
    cycles = Cycles()
    for _ in range(2):
        found = cycles.look({"a": {0: 5}, "b": {0: 5}})
    assert found == {(row(0), 5): WRITTEN_MS + 5}
    assert len(cycles.log.asked) == 1


def test_a_cycle_reads_in_bounds_and_the_next_ones_read_the_rest() -> None:
    cycles = Cycles()
    commits = dict.fromkeys(range(record_times.LOOKUPS_MAX + 10), 5)
    cycles.look({"a": commits})
    assert len(cycles.look({"a": commits})) == record_times.LOOKUPS_MAX
    assert len(cycles.look({"a": commits})) == len(commits)
    assert len(cycles.log.asked) == len(commits)


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_times, "KEPT_MAX", 3)
    cycles = Cycles()
    groups = {"a": {0: 5, 1: 5}, "b": {2: 5, 3: 5}}
    for _ in range(3):
        found = cycles.look(groups)
    assert len(found) == 3


def test_what_was_not_answered_is_asked_again() -> None:
    cycles = Cycles()
    cycles.look({"a": {0: 5}})
    cycles.log.is_silent = True
    assert cycles.look({"a": {0: 5}}) == {}
    cycles.log.is_silent = False
    assert cycles.look({"a": {0: 5}}) == {(row(0), 5): WRITTEN_MS + 5}
