"""Numbers as people and programs read them in Redis, on the command line and in the API. Pure."""

from decimal import Context, Decimal

Number = Decimal | int

# What a page shows of a number that is not whole; stored numbers have all of their digits.
DIGITS_SHOWN = 12


def plain(value: Number) -> str:
    """A number without an exponent and without zeros at its end."""
    if isinstance(value, int):
        return str(value)
    return _without_zeros(f"{value:f}")


def grouped(value: Number, digits: int = DIGITS_SHOWN) -> str:
    """A number for a page: thousands apart, every digit before the point, `digits` at least."""
    number = Decimal(value)
    if number == number.to_integral_value():
        return f"{int(number):,}"
    places = max(0, digits - 1 - number.adjusted())
    # All digits of the number fit, so that nothing is rounded but at its last place.
    rounded = number.quantize(Decimal(1).scaleb(-places), context=Context(prec=100))
    return _without_zeros(f"{rounded:,f}")


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
