"""SQL that converts texts to numbers, and decides which numbers can be stored exactly.

This module is pure and needs no JVM. Spark's casts accept Java's notations (`5d`, `0x1p3`, `NaN`).
They also pass an exponent of any size to Java's BigDecimal, which raises for some exponents and
computes for minutes on others. So here a text is a number only if it matches a pattern and is not
too long.
"""

from stream.config.expression import quote_text

# The type of values and extremes: 26 digits before the decimal point and 12 after it.
EXACT_DIGITS, EXACT_PLACES = 38, 12
EXACT_DECIMAL = f"DECIMAL({EXACT_DIGITS},{EXACT_PLACES})"

# Longer texts are not numbers: the longest double, written out, has about 330 digits.
NUMBER_CHARACTERS_MAX = 400

_NUMBER = r"^[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]{1,3})?$"
# Both patterns are used only on texts that match _NUMBER, so the text has at least one digit.
_PLAIN_EXACT = r"^[+-]?0*+[0-9]{0,26}(?:\.[0-9]{0,12}0*+)?$"
_SCIENTIFIC = r"^[+-]?[0-9]{0,16}(?:\.[0-9]{0,17})?[eE][+-]?[0-9]{1,2}$"
# A text of this many characters with an exponent has at most 27 digits. So if its first digit
# stands for 10^16 or more, its last one stands for 10^-10 or more, and the type can hold it.
_LARGE_CHARACTERS_MAX = 29


def is_number(text: str) -> str:
    """Return SQL that tells whether a text is a decimal number, with or without exponent."""
    return f"(length({text}) <= {NUMBER_CHARACTERS_MAX} AND {text} RLIKE {quote_text(_NUMBER)})"


def number(text: str, sql_type: str) -> str:
    """Return SQL for a text as DOUBLE or DECIMAL; NULL if it is not a number or does not fit."""
    return f"IF({is_number(text)}, try_cast({text} AS {sql_type}), NULL)"


def exact_decimal(text: str) -> str:
    """Return SQL for a number's text as EXACT_DECIMAL; NULL if the type would round it.

    Trailing zeros are ignored. A text with an exponent can have at most 17 digits after the point,
    which is more than a double has.
    """
    held = f"try_cast({text} AS {EXACT_DECIMAL})"
    # Compare the rounded value with the text at more places: 37 places if it is below one, and 22
    # if it is below 10^16. All digits of the text are within these places, unless the value was
    # rounded to zero. Only the double shows such a value. Cast both operands to one type, because
    # Spark compares decimals of two types in a third type with fewer places.
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
