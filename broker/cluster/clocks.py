"""Compares the wall clocks of the brokers.

This module is pure. Each heartbeat has the time at which its sender sent it. The active controller
compares that with its own clock, and its answers have the differences of all brokers. So every
broker can name a host whose clock is wrong, also a host that only the controller reaches. A
heartbeat can be seconds old when it is read, so only large differences mean anything.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

CLOCK_LIMIT_MS = 60_000
"""The difference in milliseconds between a broker's clock and the others' above which it is a
problem."""

UNKNOWN_MS = -1
"""The time in a heartbeat of a broker whose version does not send it."""

Clocks = Mapping[int, int]
"""By how many milliseconds the clock of each broker is ahead of the controller's; negative if it is
behind."""


class ClockReadings:
    """What one controller knows of the clocks of the brokers that send it heartbeats."""

    def __init__(self) -> None:
        self._ahead_ms: dict[int, int] = {}

    def note(self, node_id: int, sent_at_ms: int, now_ms: int) -> None:
        """Note the sending time of a heartbeat. `now_ms` is the controller's wall clock when the
        heartbeat came."""
        if sent_at_ms == UNKNOWN_MS:
            self._ahead_ms.pop(node_id, None)
        else:
            self._ahead_ms[node_id] = sent_at_ms - now_ms

    def of(self, node_ids: Container[int]) -> dict[int, int]:
        """Return the differences of those of these brokers whose clocks are known."""
        return {one: ms for one, ms in sorted(self._ahead_ms.items()) if one in node_ids}


@dataclass(frozen=True, slots=True)
class WrongClock:
    """A broker whose clock differs from those of the other brokers by `ahead_ms` (negative: it is
    behind). With `is_unsure` only one other clock is known, so that one can be the wrong one."""

    node_id: int
    ahead_ms: int
    is_unsure: bool = False


def wrong_clocks(clocks: Clocks) -> list[WrongClock]:
    """Return the brokers whose clocks differ by more than `CLOCK_LIMIT_MS` from the median of all
    clocks."""
    if len(clocks) == 2:
        first, second = sorted(clocks, key=lambda one: (clocks[one] != 0, one))
        difference = clocks[second] - clocks[first]
        return [WrongClock(second, difference, True)] if abs(difference) > CLOCK_LIMIT_MS else []
    ordered = sorted(clocks.values())
    if not ordered:
        return []
    median = ordered[(len(ordered) - 1) // 2]
    return [
        WrongClock(node_id, ahead_ms - median)
        for node_id, ahead_ms in sorted(clocks.items())
        if abs(ahead_ms - median) > CLOCK_LIMIT_MS
    ]
