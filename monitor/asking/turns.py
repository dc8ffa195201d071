"""The groups to poll in a cycle: all of a small cluster, a share of a large one.

This module is pure: the cycle's time is an argument. The cost of a cycle grows with the number of
partitions that groups read. To poll 200 groups with 1,000 partitions each, every two seconds, takes
more than a core. So a cycle polls the groups that were polled longest ago, up to a number of
partitions. The other groups keep their lags, and pages say how old these are. A group has no status
until it was polled several times. Such groups are polled more often, so that a status takes two or
three minutes and not a quarter of an hour (decision 0092).
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from monitor.lag.reader_status import (
    LOOKS_TO_OPEN,
    SAMPLE_EVERY_MS,
    SAMPLES_TO_JUDGE,
    SPAN_TO_JUDGE_MS,
)
from monitor.state.reading import GroupReading
from protocol.types import TopicPartition

ROWS_A_CYCLE = 2_000
"""The most partitions that one cycle polls; a single group may have more."""

EARLY_ROWS_A_CYCLE = 10_000
"""The most further partitions that one cycle polls, for groups without a status yet. At this pace
200,000 partitions take 40 seconds.
"""

LOOKS_TO_SETTLE = SAMPLES_TO_JUDGE + LOOKS_TO_OPEN - 1
NEVER_MS = -1


@dataclass(slots=True)
class _Turn:
    """The polls of one group: their times and their number (`looks`).

    `rows` is the number of partitions that the group had at the last poll; None before the first
    poll.
    """

    asked_ms: int = NEVER_MS
    rows: int | None = None
    looks: int = 0
    first_ms: int = 0
    last_ms: int = 0
    is_known: bool = False
    """True if the lags of its last poll still hold."""

    @property
    def is_settled(self) -> bool:
        """True if the group's readers have a status, so that the group can be polled less often."""
        span_ms = self.last_ms - self.first_ms
        return self.is_known and self.looks >= LOOKS_TO_SETTLE and span_ms >= SPAN_TO_JUDGE_MS


class Turns:
    """The time of each group's last poll, and the number of its partitions at that time."""

    def __init__(
        self, rows_a_cycle: int = ROWS_A_CYCLE, early_rows_a_cycle: int = EARLY_ROWS_A_CYCLE
    ) -> None:
        self._rows_a_cycle = rows_a_cycle
        self._early_rows_a_cycle = early_rows_a_cycle
        self._turns: dict[str, _Turn] = {}
        self._without_ends: frozenset[TopicPartition] = frozenset()

    def due(
        self, group_ids: Sequence[str], now_ms: int, *, rows_at_most: int, always: str = ""
    ) -> list[str]:
        """Return the groups to poll in this cycle, including `always`, and record `now_ms` as the
        time of their last poll.

        `rows_at_most` is the largest number of partitions that a group can have. It is used as a
        guess until some groups have been polled.
        """
        self._turns = {one: self._turns.get(one) or _Turn() for one in group_ids}
        guess = self._guess(rows_at_most)
        order = sorted(group_ids, key=self._longest_ago)
        due = {one for one in order if one == always}
        due |= self._fill(order, self._rows_a_cycle, guess)
        early = [one for one in order if one not in due and self._is_early(one, now_ms)]
        due |= self._fill(early, self._early_rows_a_cycle, guess)
        for one in due:
            self._turns[one].asked_ms = now_ms
        return [one for one in group_ids if one in due]

    def note(
        self,
        groups: Iterable[GroupReading],
        widths: Mapping[str, int],
        without_ends: Set[TopicPartition],
        at_ms: int,
    ) -> None:
        """Record a cycle's polled groups, the number of partitions of each topic (`widths`), and
        the partitions whose log end is unknown.

        If the end of a partition's log became known or unknown, all groups are due, because their
        last lags no longer hold.
        """
        self.looked(
            (
                (group.group_id, sum(widths.get(name, 0) for name in group.topics))
                for group in groups
                if group.error is None
            ),
            at_ms,
        )
        if without_ends != self._without_ends:
            self._without_ends = frozenset(without_ends)
            self.forget()

    def looked(self, rows: Iterable[tuple[str, int]], at_ms: int) -> None:
        """Record a poll for each group that answered; `rows` holds (group id, number of
        partitions).
        """
        for group_id, count in rows:
            turn = self._turns[group_id]
            if turn.looks == 0:
                turn.first_ms = at_ms
            turn.rows, turn.last_ms, turn.is_known = count, at_ms, True
            turn.looks += 1

    def forget(self) -> None:
        """Make all groups due, because none of their lags is valid any more.

        Each cycle polls as many groups as it can.
        """
        for turn in self._turns.values():
            turn.asked_ms, turn.is_known = NEVER_MS, False

    def _longest_ago(self, group_id: str) -> tuple[int, str]:
        return self._turns[group_id].asked_ms, group_id

    def _is_early(self, group_id: str, now_ms: int) -> bool:
        turn = self._turns[group_id]
        # A reader's status uses one sample every `SAMPLE_EVERY_MS`, so more polls would not help.
        is_time = turn.asked_ms == NEVER_MS or now_ms - turn.asked_ms >= SAMPLE_EVERY_MS
        return is_time and not turn.is_settled

    def _guess(self, rows_at_most: int) -> int:
        known = [turn.rows for turn in self._turns.values() if turn.rows is not None]
        return sum(known) // len(known) if known else rows_at_most

    def _fill(self, order: Iterable[str], rows: int, guess: int) -> set[str]:
        """Return the first of these groups that together have up to `rows` partitions; at least one
        group."""
        found: set[str] = set()
        left = rows
        for group_id in order:
            known = self._turns[group_id].rows
            count = guess if known is None else known
            if left <= 0 or count > left < rows:
                break
            left -= count
            found.add(group_id)
        return found
