"""Which offsets a recount takes next, and its thread when nothing must be recounted."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.security.cluster_security import ClusterEntry
from sinks.errors import LedgerMismatch, SinkUnavailable
from sinks.mysql.recounts import Recount
from sinks.rows import OffsetRange
from stream.archive.contents import Spans
from stream.quarantine.in_hand import Hand
from stream.recount import TRIES_MAX, Recounter, highest, next_piece, unreachable
from stream.state import StreamState
from tests.harness.seed import seeded

GAP = [OffsetRange("t", 0, 0, 9)]


class PlayedRecounter:
    """A recounter with doubles of the sinks. `looks` are the successive results of its queries."""

    def __init__(self, *looks: Any, may_count: bool = True) -> None:
        self.stop = threading.Event()
        self.hand = Hand()
        self.state = StreamState("stream", [], 100)
        self.noted: list[dict[str, Any]] = []
        self.asked = 0
        self._looks: Iterator[Any] = iter(looks)
        now = SimpleNamespace(names=["m"], sinks=self)
        configuration: Any = SimpleNamespace(now=now)
        self.recounter = Recounter(
            configuration, ClusterEntry("none:1"), self.first_offsets, None, self.state, self.stop,
            hand=self.hand, may_count=lambda: may_count,
        )  # fmt: skip

    def first_offsets(self) -> dict[tuple[str, int], int]:
        self.asked += 1
        raise SinkUnavailable("mysql", "as far as this is played")

    def recounts(self) -> list[Recount]:
        found = next(self._looks, None)
        if found is None:
            self.stop.set()
            return []
        if isinstance(found, Exception):
            raise found
        return [found]

    def note(self, note: Callable[[Any], None]) -> None:
        self.noted.append(note.keywords)  # type: ignore[attr-defined]  # a partial, as all are

    def work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("stream.recount.LOOK_EVERY_S", 0.001)
        session: Any = None
        self.recounter.work(session)


def test_tables_that_are_not_there_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Recount("m", GAP, 9, 0, None)
    played = PlayedRecounter(
        SinkUnavailable("mysql", "it is not opened yet"), LedgerMismatch("emptied"), wanted
    )
    played.work(monkeypatch)
    assert played.asked == 1, "it has come to count"


def test_beside_a_batch_that_may_have_ended_the_jvm_no_piece_is_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = PlayedRecounter(Recount("m", GAP, 9, 0, None), may_count=False)
    played.work(monkeypatch)
    assert (played.asked, played.noted) == (0, [])


def test_what_was_tried_too_often_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    played = PlayedRecounter(Recount("m", GAP, 9, TRIES_MAX, None))
    played.work(monkeypatch)
    (noted,) = played.noted
    assert noted["metric"] == "m"
    assert noted["why"].startswith(f"given up after {TRIES_MAX} tries of t, partition 0")


def test_with_nothing_in_hand_nothing_is_given_up() -> None:
    played = PlayedRecounter()
    played.recounter.give_up("counting made no progress")
    assert played.noted == []


def test_the_last_offsets_of_every_gap_as_many_of_each() -> None:
    gaps = [OffsetRange("t", 0, 5, 100), OffsetRange("t", 1, 0, 3)]
    assert highest(gaps, 20) == (OffsetRange("t", 0, 90, 100), OffsetRange("t", 1, 0, 3))


def test_at_least_one_of_each() -> None:
    gaps = [OffsetRange("t", part, 0, 9) for part in range(5)]
    assert highest(gaps, 3) == tuple(OffsetRange("t", part, 8, 9) for part in range(5))


def test_what_neither_holds_is_not_wanted() -> None:
    gaps = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 50, 100), OffsetRange("t", 2, 0, 100)]
    held = {("t", 0): 40, ("t", 1): 40, ("t", 2): 40}
    assert unreachable(gaps, held, {}) == {("t", 0): 40, ("t", 2): 40}
    assert unreachable(gaps, held, {("t", 0): ((0, 60),), ("t", 2): ((5, 60),)}) == {("t", 2): 5}
    assert unreachable(gaps, {}, {}) == {}


def test_a_piece_is_of_one_source_the_topic_first() -> None:
    held = {("t", 0): 40, ("t", 1): 40}
    archived = {("t", 0): ((0, 60),), ("t", 1): ((0, 10), (20, 60))}
    both = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 25, 30)]
    assert next_piece(both, held, archived, 1_000) == ((OffsetRange("t", 0, 40, 100),), False)
    below = [OffsetRange("t", 0, 0, 40), OffsetRange("t", 1, 20, 30)]
    found = (OffsetRange("t", 0, 0, 40), OffsetRange("t", 1, 20, 30))
    assert next_piece(below, held, archived, 1_000) == (found, True)
    some = (OffsetRange("t", 0, 38, 40), OffsetRange("t", 1, 28, 30))
    assert next_piece(below, held, archived, 4) == (some, True)


def test_a_recount_goes_down_to_the_first_hole_and_takes_each_offset_once() -> None:
    chance = seeded("recount-pieces")
    for _ in range(300):
        first, end = chance.randrange(60), chance.randrange(1, 100)
        cuts = sorted(chance.sample(range(80), 4))
        spans = ((cuts[0], cuts[1]), (cuts[2], cuts[3]))
        held, archived = {("t", 0): first}, {("t", 0): spans}
        begin = low = end
        floor = 0
        while floor < low:
            gap = [OffsetRange("t", 0, floor, low)]
            raised = unreachable(gap, held, archived)
            if raised:
                floor = raised["t", 0]
                continue
            (piece,), is_archived = next_piece(gap, held, archived, chance.randrange(1, 40))
            assert piece.end == low
            assert floor <= piece.start < piece.end
            within = [(first, 10**9)] if not is_archived else spans
            assert any(start <= piece.start and piece.end <= stop for start, stop in within)
            low = piece.start

        def is_held(offset: int, first: int = first, spans: Spans = spans) -> bool:
            return offset >= first or any(start <= offset < stop for start, stop in spans)

        assert all(is_held(offset) for offset in range(low, begin))
        assert low == 0 or not is_held(low - 1)
