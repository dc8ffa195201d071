"""The age of a timestamp while the wall clock is set to another time."""

from broker.coordinators.ages import LEAPS_MAX, SET_MS_MIN, Ages

DAY = 86_400_000


def test_a_clock_that_is_never_set_gives_the_age() -> None:
    ages = Ages(1_000, 0)
    for passed_ms in range(0, DAY, DAY // 10):
        # The wall clock is adjusted by one millionth all the time.
        ages.look(1_000 + passed_ms * 1_000_001 // 1_000_000, passed_ms)
    assert ages.of(1_000, DAY) == DAY - 1_000


def test_a_clock_that_is_set_ahead_makes_nothing_older() -> None:
    ages = Ages(DAY, 0)
    ages.look(9 * DAY + 500, 500)
    assert ages.of(DAY, 9 * DAY + 500) == 500
    assert ages.of(9 * DAY + 100, 9 * DAY + 500) == 400, "it was there after the leap"
    ages.look(10 * DAY + 500, DAY + 500)
    assert ages.of(DAY, 10 * DAY + 500) == DAY + 500


def test_a_clock_that_is_set_back_keeps_nothing_for_longer() -> None:
    ages = Ages(DAY, 0)
    ages.look(9 * DAY + 500, 500)
    ages.look(DAY + 1_000, 1_000)
    assert ages.of(DAY, DAY + 1_000) == 1_000
    assert ages.of(9 * DAY + 600, DAY + 1_000) == 400, "of the time in between"


def test_of_many_leaps_the_oldest_count_as_one() -> None:
    ages = Ages()
    count = 2 * LEAPS_MAX
    for number in range(1, count + 1):
        ages.look(number * SET_MS_MIN, 0)
    end_ms = count * SET_MS_MIN
    assert ages.of(0, end_ms) == 0
    assert ages.of(end_ms, end_ms) == 0
    assert ages.of(end_ms - SET_MS_MIN, end_ms + 7) == 7
