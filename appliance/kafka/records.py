"""Format keys and values as text, as Kafka's deserializers do.

This module is pure.
"""

import math
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal

Deserializer = Callable[[bytes], bytes]


class UndecodableBytes(ValueError):
    """Raised for bytes that do not have the type that the user has named."""


def _number(form: str, size: int, what: str) -> Deserializer:
    def decode(data: bytes) -> bytes:
        if len(data) != size:
            raise UndecodableBytes(f"found {len(data)} bytes, expected the {size} of {what}")
        return str(struct.unpack(form, data)[0]).encode()

    return decode


FLOAT_DIGITS_MAX = 9
DOUBLE_DIGITS_MAX = 17
"""The number of significant digits that distinguishes any two numbers of the type."""


def _real(form: str, size: int, what: str, digits_max: int) -> Deserializer:
    """Return a deserializer that formats floating-point numbers as Java does.

    The text has as few digits as identify the number.
    """

    def decode(data: bytes) -> bytes:
        if len(data) != size:
            raise UndecodableBytes(f"found {len(data)} bytes, expected the {size} of {what}")
        number: float = struct.unpack(form, data)[0]
        if not math.isfinite(number):
            name = "NaN" if math.isnan(number) else "Infinity"
            return f"{'-' if number < 0 else ''}{name}".encode()
        texts = (f"{number:.{digits}g}" for digits in range(1, digits_max + 1))
        text = next(text for text in texts if struct.pack(form, float(text)) == data)
        return java_text(Decimal(text)).encode()

    return decode


def java_text(number: Decimal) -> str:
    """Return a number in Java's format: without exponent from 0.001 to below 10,000,000, else with
    one."""
    if not number or Decimal("0.001") <= abs(number) < 10_000_000:
        text = f"{number:f}"
        return text if "." in text else f"{text}.0"
    sign, digits, _ = number.normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{number.adjusted()}"


def _uuid(data: bytes) -> bytes:
    try:
        return str(uuid.UUID(data.decode())).encode()
    except ValueError as error:
        raise UndecodableBytes(f"found {data!r}, expected a UUID as text") from error


DESERIALIZERS: dict[str, Deserializer] = {
    "StringDeserializer": lambda data: data,
    "ByteArrayDeserializer": lambda data: data,
    "ShortDeserializer": _number(">h", 2, "a short"),
    "IntegerDeserializer": _number(">i", 4, "an integer"),
    "LongDeserializer": _number(">q", 8, "a long"),
    "FloatDeserializer": _real(">f", 4, "a float", FLOAT_DIGITS_MAX),
    "DoubleDeserializer": _real(">d", 8, "a double", DOUBLE_DIGITS_MAX),
    "UUIDDeserializer": _uuid,
}
