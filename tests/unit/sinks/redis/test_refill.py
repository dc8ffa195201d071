"""In which order, and in portions of which size, empty Redis is filled again."""

from sinks.redis.refill import RefillPart, parts_of
from tests.harness.seed import seeded


def test_windows_are_read_together_up_to_a_number_of_cells() -> None:
    windows = [(50, 400), (40, 500), (30, 200), (20, 5_000), (10, 1)]
    assert parts_of("m", 10, windows, cells_max=1_000) == [
        RefillPart("m", 10, 40, 50),
        RefillPart("m", 10, 30, 30),
        RefillPart("m", 10, 20, 20),
        RefillPart("m", 10, 10, 10),
    ]
    assert parts_of("m", 10, []) == []


def test_every_window_is_in_exactly_one_part() -> None:
    chance = seeded("refill parts")
    windows = [(start, chance.randrange(1, 700)) for start in range(5_000, 0, -10)]
    parts = parts_of("m", 10, windows)
    covered = [
        start for part in parts for start, _ in windows if part.first_s <= start <= part.last_s
    ]
    assert covered == [start for start, _ in windows]


def test_totals_come_first_and_then_the_newest_windows() -> None:
    hour, minute, older, whole = (
        RefillPart("m", 3_600, 7_200, 7_200),
        RefillPart("m", 60, 10_740, 10_740),
        RefillPart("m", 60, 60, 600),
        RefillPart("m", 0, 0, 0),
    )
    found = sorted([older, minute, whole, hour], key=lambda part: part.rank)
    assert found[0] == whole
    assert found[-1] == older
