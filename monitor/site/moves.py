"""The table of reassignments, for the pages of the brokers and of a topic.

This module is pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from monitor.state.moves import MoveView, in_order, sum_of
from monitor.views import render
from monitor.views.changes import move_text

MOVES_SHOWN_MAX = 30
"""The largest number of rows, because a cluster can move thousands of partitions at once."""


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One reassignment as text. `level` and `state` are its badge."""

    move: MoveView
    change: str
    level: str
    state: str
    to_go: str
    rate: str
    says: str


@dataclass(frozen=True, slots=True)
class MovesView:
    """The table of reassignments: stalled ones first, then copying ones, then queued ones."""

    rows: tuple[MoveRow, ...]
    says: str


def moves_view(moves: Sequence[MoveView]) -> MovesView:
    """Return the table of these reassignments."""
    rows = tuple(_row(one) for one in in_order(moves)[:MOVES_SHOWN_MAX])
    total = sum_of(moves)
    says = [render.counted(total.count, "partition")]
    if total.queued:
        says.append(f"{total.queued} in queues")
    if len(rows) < total.count:
        says.append(f"{len(rows)} are shown")
    return MovesView(rows, ", ".join(says))


def _row(move: MoveView) -> MoveRow:
    level, state = "good", "copies"
    if move.is_done:
        state = "completes"
    elif move.is_queued:
        level, state = "idle", "queued"
    elif move.waits or move.is_endless:
        level, state = "warn", "stands" if move.waits else "too slow"
    about = "~" if move.is_about and move.to_go is not None else ""
    return MoveRow(
        move,
        _change(move.adding, move.removing),
        level,
        state,
        about + render.size(move.to_go),
        "–" if move.waits or move.rate is None else f"{render.size(move.rate)}/s",
        move_text(move),
    )


def _change(adding: Iterable[int], removing: Iterable[int]) -> str:
    """Return the replicas that come and go: `+4 −1`. The minus is U+2212, as in other signs."""
    return " ".join([*(f"+{one}" for one in adding), *(f"−{one}" for one in removing)])


def replicas_text(replicas: Iterable[int], adding: Sequence[int], removing: Sequence[int]) -> str:
    """Return a partition's replicas with signs at those that come and go: `1, −2, +4`."""

    def one(node: int) -> str:
        return f"+{node}" if node in adding else f"−{node}" if node in removing else str(node)

    return ", ".join(map(one, replicas))
