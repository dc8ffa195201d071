"""Merging is exact and independent of the order. Values follow the documented rules."""

from decimal import Decimal

import pytest

from sinks.distinct import unite
from sinks.number_text import grouped, plain
from sinks.values import SUM_MAX, Aggregate, combined, quantiles_of, unite_kll, value_of
from tests.harness.seed import seeded
from tests.harness.worked import hll, kll


def test_numbers_add_and_extremes_compare_with_missing_values() -> None:
    left = Aggregate(2, Decimal(5), Decimal(1), Decimal(4))
    right = Aggregate(1)
    both = Aggregate(3, Decimal(5), Decimal(1), Decimal(4))
    assert combined((left, right)) == combined((right, left)) == both


def test_sums_keep_all_digits_a_column_holds() -> None:
    total = combined((Aggregate(1, Decimal("1" + "0" * 25)), Aggregate(1, Decimal("1E-12")))).sum
    assert str(total) == "1" + "0" * 25 + ".000000000001"


def test_tiny_values_are_not_rounded_away() -> None:
    total = combined([Aggregate(1, Decimal("0.0000004"))] * 200_000)
    assert total.sum == Decimal("0.08")
    assert value_of("sum", total) == Decimal("0.08")
    assert value_of("sum", Aggregate(1, Decimal("11.0551240001"))) == Decimal("11.0551240001")


def test_a_sum_beyond_the_column_stays_at_its_limit() -> None:
    for sign in (1, -1):
        most = Aggregate(1, SUM_MAX.copy_sign(Decimal(sign)))
        beyond = combined((most, most))
        assert beyond == Aggregate(2, most.sum)
        # After an overflow the true sum is unknown. So a negative value must not bring the sum
        # below the limit.
        assert combined((beyond, Aggregate(1, Decimal(-5 * sign)))).sum == most.sum
    assert len(str(SUM_MAX).replace(".", "")) == 47


@pytest.mark.parametrize(
    ("total", "count", "value"),
    [
        ("0.000001", 2, "0.0000005"),
        ("0.0000044", 3, "0.000001466666666667"),
        ("-0.0000044", 3, "-0.000001466666666667"),
        ("2", 3, "0.666666666666666667"),
        ("1E-12", 3, "0.000000000000333333333333333333"),
        ("0.000000000001", 2 * 10**18, "0.000000000000000000000000000001"),
        ("7", 1, "7"),
        ("0", 3, "0"),
        ("20", 3, "6.666666666667"),
        ("-20", 3, "-6.666666666667"),
        ("5E-12", 1, "0.000000000005"),
        ("1725724716113000125", 1, "1725724716113000125"),
        ("99999999999999999999999999.999999999999", 1, "99999999999999999999999999.999999999999"),
    ],
)
def test_quotients_keep_their_digits_and_round_half_up(total: str, count: int, value: str) -> None:
    found = value_of("mean", Aggregate(count, Decimal(total)))
    assert found is not None
    assert plain(found) == value


def test_counts_of_any_size_are_written_in_full() -> None:
    assert plain(2**53 + 1) == "9007199254740993"
    assert value_of("count", Aggregate(2**53 + 1)) == 2**53 + 1


def test_sketches_of_many_slices_unite_at_once() -> None:
    rng = seeded("sketches at once")
    names = [[f"v{rng.randrange(300)}" for _ in range(rng.randrange(1, 40))] for _ in range(30)]
    parts = [Aggregate(len(some), hll=hll(*some)) for some in names]
    together = combined(parts)
    distinct = len({name for some in names for name in some})
    assert together.count == sum(len(some) for some in names)
    assert value_of("unique", together) == distinct
    assert combined(parts[:1]) == parts[0]


def test_the_order_of_merging_does_not_matter() -> None:
    rng = seeded("merge order")
    parts = [
        Aggregate(1, Decimal(rng.randrange(10**9)).scaleb(-6), Decimal(n), Decimal(n))
        for n in range(50)
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = combined((whole, part))
    rng.shuffle(parts)
    again = parts[0]
    for part in parts[1:]:
        again = combined((again, part))
    assert again == whole


@pytest.mark.parametrize(
    ("measure", "aggregate", "value"),
    [
        ("count", Aggregate(3), "3"),
        ("sum", Aggregate(3, Decimal("1.5")), "1.5"),
        ("sum", Aggregate(0), None),
        ("min", Aggregate(1, min=Decimal(-2)), "-2"),
        ("max", Aggregate(1, max=Decimal(7)), "7"),
        ("mean", Aggregate(3, Decimal(10)), "3.333333333333"),
        ("share", Aggregate(3, Decimal(1)), "0.333333333333333333"),
        ("min", Aggregate(1, min=Decimal("-0")), "-0"),
        ("unique", Aggregate(4, hll=hll("", "", "a")), "2"),
        ("unique", Aggregate(1, hll=hll("x" * 1_000_000)), "1"),
        ("percentile", Aggregate(3, kll=kll(7.5, 7.5, 7.5)), "7.5"),
        ("percentile", Aggregate(1, kll=kll(1.466666666667e-06)), "0.000001466667"),
        ("share", Aggregate(0, Decimal(0)), None),
        ("unique", Aggregate(4, hll=hll("a", "b")), "2"),
        ("percentile", Aggregate(3, kll=kll(0.02, 0.04, 1.5)), "0.04"),
        ("percentile", Aggregate(0), None),
    ],
)
def test_values_by_measure(measure: str, aggregate: Aggregate, value: str | None) -> None:
    found = value_of(measure, aggregate)
    assert (None if found is None else plain(found)) == value


def test_quantiles_are_inclusive_nearest_ranks() -> None:
    found = quantiles_of(Aggregate(2, kll=kll(0.03, 0.01)))
    assert found is not None
    assert {name: plain(value) for name, value in found.items()} == {
        "p50": "0.01",
        "p95": "0.03",
        "p99": "0.03",
    }


def test_sketches_unite() -> None:
    assert value_of("unique", Aggregate(0, hll=unite([hll("a", "b"), hll("b", "c")]))) == 3
    assert unite([]) is None
    assert unite_kll([]) is None
    united = unite_kll([kll(1.0), kll(3.0), kll(2.0)])
    assert value_of("percentile", Aggregate(3, kll=united)) == 2


def test_many_distinct_values_stay_within_the_promised_error() -> None:
    half = [f"visitor-{n}" for n in range(10_000)]
    other = [f"visitor-{n}" for n in range(5_000, 15_000)]
    found = value_of("unique", Aggregate(0, hll=unite([hll(*half), hll(*other)])))
    assert found is not None
    # The standard error is 1.6 %. Three standard errors are allowed.
    assert abs(int(found) - 15_000) < 15_000 * 0.016 * 3


@pytest.mark.parametrize(
    ("value", "text"),
    [("1E+3", "1000"), ("0.500000", "0.5"), ("100", "100"), ("0E-6", "0"), ("-0.10", "-0.1")],
)
def test_numbers_are_written_plainly(value: str, text: str) -> None:
    assert plain(Decimal(value)) == text


@pytest.mark.parametrize("value", [1e40, 1e300, float("inf"), -1e40, -1e300, float("-inf")])
def test_a_double_beyond_the_column_becomes_its_limit(value: float) -> None:
    limit = "9" * 26 + "." + "9" * 12
    found = value_of("percentile", Aggregate(1, kll=kll(value)))
    assert found is not None
    assert plain(found) == (limit if value > 0 else f"-{limit}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1725724716113000125", "1,725,724,716,113,000,125"),
        ("0.000001466666666666666667", "0.00000146666666667"),
        ("-16843.333333333333", "-16,843.3333333"),
        ("0.5", "0.5"),
        ("0E-30", "0"),
        ("1E-12", "0.000000000001"),
        ("99999999999999999999999999.5", "100,000,000,000,000,000,000,000,000"),
    ],
)
def test_a_page_shows_twelve_digits_and_every_whole_one(value: str, text: str) -> None:
    assert grouped(Decimal(value)) == text
