"""Distinct values are counted exactly up to the limit. Above it they are a sketch that DataSketches
can read."""

import datasketches
import pytest

from sinks.distinct import is_estimate, number_of, unite
from sinks.estimates import UNIQUE_ERROR, UNIQUE_EXACT_MAX, is_estimated
from tests.harness.hashing import murmur3, sketch_of, word_of
from tests.harness.seed import seeded
from tests.harness.worked import hll, older_hll


def names(begin: int, end: int) -> list[str]:
    return [f"u{number}" for number in range(begin, end)]


def test_the_hash_is_murmur3() -> None:
    # The verification code of the reference implementation, computed over inputs of all lengths to
    # 255.
    octets = bytes(range(256))
    hashes = b"".join(
        half.to_bytes(8, "little")
        for length in range(256)
        for half in murmur3(octets[:length], 256 - length)
    )
    assert murmur3(hashes, 0)[0] & 0xFFFFFFFF == 0x6384BA69


@pytest.mark.parametrize("count", [0, 1, 2, 1_000, UNIQUE_EXACT_MAX])
def test_values_are_exact_up_to_the_limit(count: int) -> None:
    sketch = hll(*names(0, count))
    assert number_of(sketch) == count
    assert not is_estimate(sketch)


def test_one_value_more_is_an_estimate_that_is_not_smaller() -> None:
    for seed in range(50):
        values = [f"{seed}/{number}" for number in range(UNIQUE_EXACT_MAX + 1)]
        sketch = hll(*values)
        assert is_estimate(sketch)
        assert UNIQUE_EXACT_MAX < number_of(sketch) < UNIQUE_EXACT_MAX * 1.1


def test_registers_are_those_of_the_library() -> None:
    values = names(0, 5_000)
    ours, theirs = hll(*values), older_hll(*values)
    head = 40
    assert ours[1 + head :] == theirs[head:]
    read = datasketches.hll_sketch.deserialize(ours[1:])
    assert read.lg_config_k == 12
    assert abs(read.get_estimate() - 5_000) < 5_000 * 0.05


def test_neither_order_nor_batches_change_a_sketch_across_the_limit() -> None:
    chance = seeded("distinct merges")
    values = names(0, 3_000)
    whole = hll(*values)
    for _ in range(5):
        chance.shuffle(values)
        parts = [hll(*values[at : at + 90]) for at in range(0, len(values), 80)]
        assert unite(parts) == whole
        one_by_one = parts[0]
        for part in parts[1:]:
            united = unite([part, one_by_one])
            assert united is not None
            one_by_one = united
        assert one_by_one == whole
    assert unite([whole, hll(*values[:10])]) == whole, "a batch that comes again changes nothing"


def test_batches_that_share_values_stay_exact_at_the_limit() -> None:
    left, right = names(0, 700), names(UNIQUE_EXACT_MAX - 700, UNIQUE_EXACT_MAX)
    united = unite([hll(*left), hll(*right)])
    assert united == hll(*names(0, UNIQUE_EXACT_MAX))
    beyond = unite([united or b"", hll("one more")])
    assert beyond is not None
    assert is_estimate(beyond)


@pytest.mark.parametrize("count", [3, 300, 600, 5_000])
def test_what_an_older_version_stored_goes_on(count: int) -> None:
    stored = older_hll(*names(0, count))
    assert abs(number_of(stored) - count) <= count * 0.05
    assert is_estimate(stored)
    assert unite([stored]) == stored
    more = unite([stored, hll(*names(count // 2, 2 * count))])
    again = unite([hll(*names(count // 2, 2 * count)), stored])
    assert more == again
    assert more is not None
    assert abs(number_of(more) - 2 * count) <= max(1, 2 * count * 0.06)


def test_an_empty_text_is_a_value() -> None:
    assert number_of(hll("", "", "a")) == 2
    many = names(0, UNIQUE_EXACT_MAX + 1)
    with_empty = unite([hll(*many), hll("")])
    assert with_empty == hll(*many, "")


def test_words_without_any_bit_make_a_sketch() -> None:
    words = [1, *(word_of(name) for name in names(0, UNIQUE_EXACT_MAX)), 1 << 63]
    assert number_of(sketch_of(words)) > UNIQUE_EXACT_MAX


@pytest.mark.parametrize("count", [1_500, 20_000])
def test_estimates_are_as_near_as_is_promised(count: int) -> None:
    chance = seeded(f"unique of {count}")
    far = 0
    for _ in range(60):
        found = number_of(sketch_of({chance.getrandbits(64) | 1 for _ in range(count)}))
        far += abs(found - count) > UNIQUE_ERROR * count
    assert far <= 9, "of 60, three are expected beyond"


def test_what_a_number_alone_tells_of_an_estimate() -> None:
    from decimal import Decimal

    assert not is_estimated("unique", Decimal(1_024), None)
    assert is_estimated("unique", Decimal(1_025), None)
    assert not is_estimated("percentile", Decimal(5), 200)
    assert is_estimated("percentile", Decimal(5), 201)
    assert not is_estimated("sum", Decimal(10**30), None)
