"""The judge of a fleet's lines finds lines that are lost, doubled or out of order."""

import pytest

from tests.harness.fleet_lines import FleetJudge, line_of


def judged(*numbers: int) -> FleetJudge:
    judge = FleetJudge()
    for number in numbers:
        judge.note(line_of("web-1", number, 1_000).rstrip(b"\n"), 1_250)
    return judge


def test_lines_in_order_have_all_arrived() -> None:
    judge = judged(0, 1, 2)
    judge.note(line_of("web-2", 0, 1_100), 1_200)
    assert judge.faults == []
    assert judge.has_all({"web-1": 3, "web-2": 1, "web-3": 0})
    assert not judge.has_all({"web-1": 4, "web-2": 1})
    assert not judge.has_all({"web-1": 3})
    assert judge.latencies_s(1_000, 1_100) == [0.25, 0.25, 0.25]
    assert judge.latencies_s(1_000, 1_101) == [0.1, 0.25, 0.25, 0.25]


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ((0, 2), "web-1: found line 2, expected 1"),
        ((0, 1, 1), "web-1: found line 1, expected 2"),
        ((1,), "web-1: found line 1, expected 0"),
    ],
)
def test_a_line_that_is_lost_doubled_or_out_of_order(numbers: tuple[int, ...], fault: str) -> None:
    assert judged(*numbers).faults == [fault]
