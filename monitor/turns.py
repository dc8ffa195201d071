"""Which groups are asked for in a cycle: all of a small cluster, a share of a large one.

Floor: pure; the cycle's time comes in as an argument. What a cycle costs grows with the partitions
that groups read. Of 200 groups over 1,000 partitions each, all of them every two seconds is more
than a core. So a cycle takes groups, the one longest not looked at first, until it has the
partitions it may. The others keep their numbers, and pages say how old those are.
"""

from collections.abc import Iterable, Sequence

ROWS_A_CYCLE = 2_000
"""Partitions of groups that one cycle asks for; a single group may have more."""


class Turns:
    """When each group was last looked at, and how many partitions it had then."""

    def __init__(self, rows_a_cycle: int = ROWS_A_CYCLE) -> None:
        self._rows_a_cycle = rows_a_cycle
        self._looks: dict[str, tuple[int, int]] = {}

    def due(self, group_ids: Sequence[str], always: str = "") -> list[str]:
        """The groups whose turn it is; `always` and those never looked at are among them."""
        self._looks = {one: self._looks[one] for one in group_ids if one in self._looks}
        due = {one for one in group_ids if one == always or one not in self._looks}
        left = self._rows_a_cycle
        for group_id, (_, rows) in sorted(self._looks.items(), key=_longest_ago):
            if left <= 0 or rows > left < self._rows_a_cycle:
                break
            left -= rows
            due.add(group_id)
        return [one for one in group_ids if one in due]

    def looked(self, rows: Iterable[tuple[str, int]], at_ms: int) -> None:
        """Note what was looked at; what was asked for and not answered is due again."""
        self._looks |= {group_id: (at_ms, count) for group_id, count in rows}

    def forget(self) -> None:
        """Nothing that is known holds any more: all are due."""
        self._looks.clear()


def _longest_ago(look: tuple[str, tuple[int, int]]) -> tuple[int, str]:
    return look[1][0], look[0]
