"""A wait ends when its condition holds. After the deadline its error names the condition. Progress
extends the deadline."""

import time
from itertools import count

import pytest

from tests.harness.wait import wait_until


def test_the_value_of_the_condition_comes_back() -> None:
    steps = count()
    assert wait_until(lambda: next(steps) > 3 and "there", 30, "four looks") == "there"


def test_what_stands_still_is_given_up() -> None:
    with pytest.raises(AssertionError, match=r"not within 0.1 s: the end; last seen: False"):
        wait_until(lambda: False, 0.1, "the end", progress=lambda: 7)


def test_an_exception_is_not_yet_and_is_shown() -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        wait_until(lambda: 1 // 0, 0.1, "a number", progress=count().__next__)


def test_what_goes_on_is_waited_for_beyond_the_time() -> None:
    begin = time.monotonic()
    steps = count()
    wait_until(lambda: time.monotonic() > begin + 0.4, 0.1, "later", progress=lambda: next(steps))
