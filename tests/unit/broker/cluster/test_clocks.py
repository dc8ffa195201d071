"""The clocks of brokers are compared by the times in their heartbeats."""

from __future__ import annotations

import pytest

from broker.cluster.clocks import (
    CLOCK_LIMIT_MS,
    UNKNOWN_MS,
    ClockReadings,
    WrongClock,
    wrong_clocks,
)
from broker.metadata.broker_image import BrokerImage
from broker.node.waiting import clock_text
from protocol.types import ZERO_UUID

FAR = CLOCK_LIMIT_MS + 1


@pytest.mark.parametrize(
    ("clocks", "found"),
    [
        ({}, []),
        ({1: 0}, []),
        ({1: 0, 2: CLOCK_LIMIT_MS, 3: -CLOCK_LIMIT_MS}, []),
        ({1: 0, 2: 40, 3: FAR + 40}, [WrongClock(3, FAR)]),
        # The controller is broker 1, and its own clock is the wrong one.
        ({1: 0, 2: -FAR, 3: -FAR}, [WrongClock(1, FAR)]),
        ({1: 0, 2: FAR, 3: -FAR}, [WrongClock(2, FAR), WrongClock(3, -FAR)]),
        ({1: 0, 2: 0, 3: -FAR, 4: 10}, [WrongClock(3, -FAR)]),
        # Of two clocks, it is not known which one is wrong.
        ({2: 0, 3: -FAR}, [WrongClock(3, -FAR, True)]),
        ({1: FAR, 2: 0}, [WrongClock(1, FAR, True)]),
        ({1: CLOCK_LIMIT_MS, 2: 0}, []),
    ],
)
def test_a_clock_is_wrong_that_differs_from_the_median(
    clocks: dict[int, int], found: list[WrongClock]
) -> None:
    assert wrong_clocks(clocks) == found


def test_the_newest_heartbeat_of_each_broker_counts() -> None:
    readings = ClockReadings()
    readings.note(1, 5_000, 5_000)
    readings.note(2, 9_000, 5_000)
    readings.note(2, 5_500, 6_000)
    readings.note(3, 1, 2)
    assert readings.of({1, 2}) == {1: 0, 2: -500}
    # A broker that goes back to a version without the time has no known clock any more.
    readings.note(2, UNKNOWN_MS, 7_000)
    assert readings.of({1, 2, 3}) == {1: 0, 3: -1}


def test_the_text_names_the_host_and_the_limit() -> None:
    listeners = {"BROKER": ("mill-3.example.org", 29094)}
    broker = BrokerImage(3, ZERO_UUID, 7, listeners, None, is_fenced=False)
    assert clock_text(WrongClock(3, -75_400), {3: broker}) == (
        "the clock of broker 3 on mill-3.example.org is 75 s behind the others' clocks (limit: 60"
        " s): correct it there, and keep all hosts together with NTP"
    )
    text = clock_text(WrongClock(3, 75_400, True), {})
    assert "is 75 s ahead of the clock of the only other broker" in text
    assert text.endswith("The other clock can be the wrong one")
