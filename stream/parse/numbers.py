"""Texts as numbers, as SQL: what counts as one, and which are held exactly.

Floor: pure, no JVM. Spark's own casts read Java's spellings (`5d`, `0x1p3`, `NaN`), and hand an
exponent of any size to Java's BigDecimal, which raises for one and computes for minutes on another.
So a text is a number only where it is written as one, within bounds.
"""

from stream.config.expression import quote_text

# What values and their extremes are held in: 26 digits before the point, 12 after it.
EXACT_DIGITS, EXACT_PLACES = 38, 12
EXACT_DECIMAL = f"DECIMAL({EXACT_DIGITS},{EXACT_PLACES})"

# Longer texts are no numbers: a double of full length, written out, has some 330 digits.
NUMBER_CHARACTERS_MAX = 400

_NUMBER = r"^[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]{1,3})?$"
# Both of numbers alone, so that some digit is there.
_PLAIN_EXACT = r"^[+-]?0*+[0-9]{0,26}(?:\.[0-9]{0,12}0*+)?$"
_SCIENTIFIC = r"^[+-]?[0-9]{0,16}(?:\.[0-9]{0,17})?[eE][+-]?[0-9]{1,2}$"
# A text of at most so many characters with an exponent has at most 27 digits. So where the first of
# them stands for 10^16 or more, the last one stands for 10^-10 or more, and is held.
_LARGE_CHARACTERS_MAX = 29


def is_number(text: str) -> str:
    """Whether a text is written as a decimal number, with or without an exponent."""
    return f"(length({text}) <= {NUMBER_CHARACTERS_MAX} AND {text} RLIKE {quote_text(_NUMBER)})"


def number(text: str, sql_type: str) -> str:
    """A text as a DOUBLE or DECIMAL, NULL where it is no number or does not fit."""
    return f"IF({is_number(text)}, try_cast({text} AS {sql_type}), NULL)"


def exact_decimal(text: str) -> str:
    """A number's text as EXACT_DECIMAL, NULL where that would round it.

    Zeros at the end do not count. With an exponent at most 17 digits after the point are read, more
    than a double has.
    """
    held = f"try_cast({text} AS {EXACT_DECIMAL})"
    # Everything such a text can hold stands within 37 places where it is below one, and within 22
    # where it is below 10^16; what is smaller still shows in the double alone. Both sides have one
    # type, because Spark compares decimals of two types in a third one with fewer places.
    is_exact = (
        f"CASE WHEN abs({held}) < 1 THEN {_is_same(text, held, 'DECIMAL(38,37)')}"
        f" WHEN abs({held}) < {10**16} THEN {_is_same(text, held, 'DECIMAL(38,22)')}"
        f" ELSE length({text}) <= {_LARGE_CHARACTERS_MAX} END"
        f" AND ({held} <> 0 OR try_cast({text} AS DOUBLE) = 0)"
    )
    return (
        f"CASE WHEN NOT {is_number(text)} THEN NULL"
        f" WHEN {text} RLIKE {quote_text(_PLAIN_EXACT)} THEN {held}"
        f" WHEN {text} RLIKE {quote_text(_SCIENTIFIC)} AND {is_exact} THEN {held} END"
    )


def _is_same(text: str, held: str, sql_type: str) -> str:
    return f"try_cast({text} AS {sql_type}) = try_cast({held} AS {sql_type})"
