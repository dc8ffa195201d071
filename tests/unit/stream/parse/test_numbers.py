"""Which strings are numbers, and which of them a DECIMAL represents exactly. Only patterns
decide."""

import re
from decimal import Context, Decimal

import pytest

from stream.parse.numbers import EXACT_DIGITS, EXACT_PLACES, exact_decimal, is_number
from tests.harness.seed import seeded
from tests.unit.stream.parse.test_columns import literals

IS_NUMBER, PLAIN, SCIENTIFIC = (
    re.compile(text, re.ASCII) for text in dict.fromkeys(literals(exact_decimal("t")))
)
WHOLE_DIGITS = EXACT_DIGITS - EXACT_PLACES
PLACES, ENOUGH = Decimal(1).scaleb(-EXACT_PLACES), Context(prec=100)


def test_the_first_pattern_is_that_of_numbers() -> None:
    assert literals(is_number("t")) == [IS_NUMBER.pattern]


@pytest.mark.parametrize("text", ["0", "-7", "+1", ".5", "5.", "1e5", "1.5E-10", "00012", "1e999"])
def test_numbers_are_numbers(text: str) -> None:
    assert IS_NUMBER.search(text)
    Decimal(text)


@pytest.mark.parametrize(
    "text",
    ["", "-", ".", "5d", "7f", "0x1p3", "NaN", "Infinity", "1e", "1e1000", "1 ", " 1", "1,5", "--1",
     "1.2.3", "e5", "١"],
)  # fmt: skip
def test_what_java_alone_takes_for_a_number_is_none(text: str) -> None:
    assert not IS_NUMBER.search(text)


def test_a_plain_number_is_exact_where_its_digits_fit() -> None:
    chance = seeded("exact decimals")
    met = {True: 0, False: 0}
    for _ in range(20_000):
        whole = "".join(chance.choice("0000123456789") for _ in range(chance.randrange(32)))
        places = "".join(chance.choice("0000123456789") for _ in range(chance.randrange(16)))
        text = chance.choice(["", "-", "+"]) + whole + chance.choice(["", ".", f".{places}"])
        if not IS_NUMBER.search(text):
            continue
        number = Decimal(text)
        fits = abs(number) < Decimal(10) ** WHOLE_DIGITS and number == number.quantize(
            PLACES, context=ENOUGH
        )
        met[fits] += 1
        assert bool(PLAIN.search(text)) is fits, text
    assert min(met.values()) > 1_000


def test_only_an_exponent_makes_a_number_scientific() -> None:
    assert SCIENTIFIC.search("1.5e-3")
    assert SCIENTIFIC.search("9999999999999999E+11")
    assert SCIENTIFIC.search("-.5e3")
    assert not SCIENTIFIC.search("1.5")
    assert not SCIENTIFIC.search("1e100")
