import pytest

from bench.figures import Spread, percentile, rounded, spread, text_of


def test_spread_is_of_all_runs() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(1.0, 2.0, 3.0, 3)
    assert spread([4.0, 1.0]).median == 2.5


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.501, 51), (0.99, 99), (1.0, 100)]
)
def test_a_percentile_is_a_value_that_was_seen(share: float, expected: int) -> None:
    assert percentile(list(range(1, 101)), share) == expected


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert [percentile([7.0], share) for share in (0.0, 0.5, 0.99, 1.0)] == [7.0] * 4


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="found none"):
        percentile([], 0.5)


@pytest.mark.parametrize(
    ("value", "short", "text"),
    [
        (1234567.8, 1234568, "1,234,568"),
        (12.34567, 12.35, "12.35"),
        (0.000123456, 0.0001235, "0.0001235"),
        (0.0, 0.0, "0.0"),
        (-12.34567, -12.35, "-12.35"),
        (9999.6, 10000, "10,000"),
    ],
)
def test_figures_keep_four_digits(value: float, short: float, text: str) -> None:
    assert rounded(value) == short
    assert text_of(value) == text
