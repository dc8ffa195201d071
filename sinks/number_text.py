"""Formats numbers as text for Redis, the command line and the API.

This module is pure.
"""

from decimal import Context, Decimal

Number = Decimal | int

# A page shows this many digits of a fraction; stored numbers keep all digits.
DIGITS_SHOWN = 12


def plain(value: Number) -> str:
    """Return a number without an exponent and without trailing zeros."""
    if isinstance(value, int):
        return str(value)
    return _without_zeros(f"{value:f}")


def grouped(value: Number, digits: int = DIGITS_SHOWN) -> str:
    """Return a number for a page with thousands separators and at least `digits` digits."""
    number = Decimal(value)
    if number == number.to_integral_value():
        return f"{int(number):,}"
    places = max(0, digits - 1 - number.adjusted())
    # This context has room for all digits, so only the last decimal is rounded.
    rounded = number.quantize(Decimal(1).scaleb(-places), context=Context(prec=100))
    return _without_zeros(f"{rounded:,f}")


def exact_percent(share: float) -> str:
    """Return a share in per cent with one place. Only a share of exactly 1 is shown as 100 %."""
    # Show at most 99.9 % for any other share, because a reader takes 100 % to mean that nothing is
    # missing.
    return "100 %" if share == 1.0 else f"{min(share, 0.999) * 100:.1f} %"


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
