"""Keys and values as text: what Kafka's deserializers make of bytes. Pure."""

import struct
import uuid
from collections.abc import Callable

Deserializer = Callable[[bytes], bytes]


class Undecodable(ValueError):
    """Bytes that are none of what was announced."""


def _number(form: str, size: int, what: str) -> Deserializer:
    def decode(data: bytes) -> bytes:
        if len(data) != size:
            raise Undecodable(f"found {len(data)} bytes, expected the {size} of {what}")
        return str(struct.unpack(form, data)[0]).encode()

    return decode


DESERIALIZERS: dict[str, Deserializer] = {
    "StringDeserializer": lambda data: data,
    "ByteArrayDeserializer": lambda data: data,
    "ShortDeserializer": _number(">h", 2, "a short"),
    "IntegerDeserializer": _number(">i", 4, "an integer"),
    "LongDeserializer": _number(">q", 8, "a long"),
    "FloatDeserializer": _number(">f", 4, "a float"),
    "DoubleDeserializer": _number(">d", 8, "a double"),
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode())).encode(),
}
