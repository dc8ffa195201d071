"""The machine's clock and its simulated double pass the same tests."""

from __future__ import annotations

import pytest

from broker.real.world import SystemClock
from broker.world import Clock
from tests.sim.clock import SimClock


@pytest.fixture(params=[SystemClock(), SimClock(1_800_000_000_000, 5)], ids=["system", "sim"])
def clock(request: pytest.FixtureRequest) -> Clock:
    chosen: Clock = request.param
    return chosen


def test_readings_are_whole_milliseconds(clock: Clock) -> None:
    assert isinstance(clock.now_ms(), int)
    assert isinstance(clock.monotonic_ms(), int)
    # The value is a time between 2020 and 2100 in milliseconds. Seconds or microseconds would fail.
    assert 1_577_836_800_000 < clock.now_ms() < 4_102_444_800_000


def test_deadlines_never_go_back(clock: Clock) -> None:
    readings = [clock.monotonic_ms() for _ in range(1000)]
    assert readings == sorted(readings)


def test_a_set_wall_clock_moves_no_deadline() -> None:
    clock = SimClock(1000, 50)
    clock.advance(10)
    clock.set_wall_clock(3)
    assert (clock.now_ms(), clock.monotonic_ms()) == (3, 60)
