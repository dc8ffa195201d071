"""The thread that kills a JVM which hangs, while two other threads use that JVM."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from sinks.rows import OffsetRange
from stream.overseer import JvmGone, Overseer, stop_query
from stream.quarantine import in_hand as in_hand_module
from stream.quarantine.in_hand import Hand, InHand
from stream.quarantine.search import BLAME_BELIEVED, BLAME_ENDED, BLAME_KILLED, Part

BATCH = (OffsetRange("t", 0, 100, 200),)
LINE = (OffsetRange("t", 0, 100, 101),)
PIECE = (OffsetRange("t", 0, 0, 50),)
EXIT_ERROR = 52


class PlayedWriter:
    """A double of the batch writer. It records notes and kills."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batch, self.recount = Hand(), Hand()
        self.noted: list[tuple[Part, int]] = []
        self.given_up: list[str] = []
        self.killed = 0
        proc = SimpleNamespace(kill=self.kill, wait=lambda _: EXIT_ERROR)
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=proc))
        self.overseer = Overseer(self.recount, self.given_up.append)
        self.writer: Any = self

    @property
    def in_hand(self) -> InHand | None:
        return self.batch.holds

    def note_death(self, blame: int) -> Part | None:
        part = self.batch.to_blame
        if part is not None:
            self.noted.append((part, blame))
        return part

    def kill(self) -> None:
        self.killed += 1


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedWriter:
    return PlayedWriter(monkeypatch)


@pytest.mark.parametrize(("part", "blame"), [(BATCH, BLAME_BELIEVED), (LINE, BLAME_ENDED)])
def test_a_batch_that_stands_still_is_ended(played: PlayedWriter, part: Part, blame: int) -> None:
    played.batch.take(part, 60)
    played.recount.take(PIECE, 60)
    played.overseer.end_jvm_that_stands_still(played.writer)
    assert not played.killed
    played.batch.take(part, 0)
    with pytest.raises(JvmGone, match="offsets 100 to"):
        played.overseer.end_jvm_that_stands_still(played.writer)
    assert (played.killed, played.noted, played.given_up) == (1, [(part, blame)], [])


def test_a_recount_that_stands_still_is_given_up_and_no_batch_is_blamed(
    played: PlayedWriter,
) -> None:
    played.batch.take(BATCH, 60)
    played.recount.take(PIECE, 0)
    with pytest.raises(JvmGone, match="offsets 0 to 49"):
        played.overseer.end_jvm_that_stands_still(played.writer)
    assert (played.killed, played.noted) == (1, [])
    assert played.given_up == ["counting made no progress"]


def test_what_the_jvm_ends_over_alone_is_blamed(played: PlayedWriter) -> None:
    played.batch.take(BATCH, 60)
    played.overseer.note_end(played.writer)
    assert played.noted == [(BATCH, BLAME_ENDED)]


def test_beside_a_recount_a_batch_is_blamed_no_more_than_by_chance(played: PlayedWriter) -> None:
    played.batch.take(BATCH, 60)
    played.recount.take(PIECE, 60)
    played.overseer.note_end(played.writer)
    assert played.noted == [(BATCH, BLAME_KILLED)]


def test_an_error_of_a_recount_is_the_recount_s(
    played: PlayedWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.batch.take(BATCH, 60)
    played.recount.take(PIECE, 60)
    played.recount.let_go()
    played.recount.met_error(PIECE)
    played.overseer.note_end(played.writer)
    assert played.noted == []
    monkeypatch.setattr(in_hand_module, "ERROR_S", 0.0)
    played.recount.met_error(PIECE)
    played.overseer.note_end(played.writer)
    assert played.noted == [(BATCH, BLAME_ENDED)]


def test_while_nothing_is_counted_nothing_is_blamed(played: PlayedWriter) -> None:
    played.overseer.end_jvm_that_stands_still(played.writer)
    played.overseer.note_end(played.writer)
    assert (played.noted, played.killed) == ([], 0)


def query_that_raises(java_class: str) -> Any:
    """Return a double of a query whose `stop` fails with this class of Java."""
    java = SimpleNamespace(
        _target_id="o1",
        getClass=lambda: SimpleNamespace(getName=lambda: java_class),
        getMessage=lambda: "played",
        getCause=lambda: None,
    )

    def stop() -> None:
        raise Py4JJavaError("the stop failed", java)

    return SimpleNamespace(stop=stop)


def test_a_stop_that_takes_too_long_is_no_error_and_any_other_failure_is() -> None:
    assert not stop_query(query_that_raises("java.util.concurrent.TimeoutException"))
    with pytest.raises(Py4JJavaError):
        stop_query(query_that_raises("java.lang.IllegalStateException"))
