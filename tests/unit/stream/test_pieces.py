"""A large batch is split into pieces, and the sinks work one piece behind Spark."""

import subprocess
import sys
import threading

import pytest

from sinks.rows import OffsetRange
from stream.pieces import PIECE_OFFSETS_MIN, PIECES_MAX, pieces_of
from stream.quarantine.search import size_of
from stream.write_behind import WriteBehind
from tests.harness.seed import seeded


def test_a_batch_that_is_not_large_is_one_piece() -> None:
    ranges = (OffsetRange("t", 0, 5, 5 + 2 * PIECE_OFFSETS_MIN - 1),)
    assert pieces_of(ranges) == [ranges]


def test_pieces_follow_each_other_and_leave_nothing_out() -> None:
    chance = seeded("pieces of a batch")
    for _ in range(300):
        ranges = [
            OffsetRange("t", partition, start, start + chance.choice([0, 1, 70_000, 400_000]))
            for partition in range(chance.randrange(1, 6))
            for start in [chance.randrange(1_000_000)]
        ]
        pieces = pieces_of(ranges)
        assert len(pieces) <= PIECES_MAX
        assert all(size_of(piece) >= PIECE_OFFSETS_MIN for piece in pieces[:-1])
        ends: dict[int, int] = {}
        for piece in pieces:
            for one in piece:
                assert one.start == ends.get(one.partition, one.start)
                ends[one.partition] = one.end
        assert ends == {one.partition: one.end for one in ranges}
        assert sum(map(size_of, pieces)) == size_of(ranges)


def test_the_last_piece_is_half_as_large() -> None:
    pieces = pieces_of((OffsetRange("t", 0, 0, 700_000), OffsetRange("t", 1, 9, 9)))
    assert [size_of(piece) for piece in pieces] == [200_000, 200_000, 200_000, 100_000]


def test_work_is_done_behind_and_in_order() -> None:
    may_end, began, done = threading.Event(), threading.Event(), list[int]()

    def first() -> None:
        began.set()
        may_end.wait()
        done.append(1)

    with WriteBehind("test") as behind:
        behind.do(first)
        assert began.wait(10) and not done
        may_end.set()
        behind.do(lambda: done.append(2))
    assert done == [1, 2]


def test_what_work_raises_comes_with_the_next_call_or_the_end() -> None:
    def fail() -> None:
        raise ValueError("no")

    with WriteBehind("test") as behind:
        behind.do(fail)
        with pytest.raises(ValueError, match="no"):
            behind.do(lambda: None)
    with pytest.raises(ValueError, match="no"), WriteBehind("test") as behind:
        behind.do(fail)


def test_at_the_end_nothing_is_being_done_whatever_was_raised() -> None:
    done: list[int] = []
    began = threading.Event()

    def slow() -> None:
        began.wait()
        done.append(1)

    with pytest.raises(KeyError), WriteBehind("test") as behind:
        behind.do(slow)
        began.set()
        raise KeyError
    assert done == [1]


# As in the driver, the batch runs in a daemon thread, and the main thread ends while it works.
EXITING = """
import sys, threading
from stream.write_behind import WriteBehind

def batch() -> None:
    with WriteBehind("sinks") as sinks:
        sinks.do(lambda: (began.set(), threading.Event().wait()))
        raise OSError("the JVM is gone")

began = threading.Event()
threading.Thread(target=batch, daemon=True).start()
began.wait()
sys.exit(7)
"""


def test_a_process_exits_while_something_is_being_done() -> None:
    done = subprocess.run([sys.executable, "-c", EXITING], timeout=30, check=False)
    assert done.returncode == 7
