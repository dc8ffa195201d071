"""Random messages of any class and version, from a seed that can be replayed."""

import os
import random
import uuid
from typing import Any

from protocol.messages.api import DECLARED, ApiKey, request_class, response_class
from protocol.wire.schema import Field, Message, Struct

SEED = int(os.environ.get("MILLRACE_SEED", "20261121"))

NUMBER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
UINT16_MAX = 0xFFFF
TEXTS = ("", "a", "logs.access", "größe", "日本", "x" * 126, "x" * 127, "ü" * 100, "y" * 300)


def seeded_random(seed: int = SEED) -> random.Random:
    """Return random numbers from a printed seed. pytest shows the seed when the test fails."""
    print(f"replay with MILLRACE_SEED={seed}")
    return random.Random(seed)


def message_classes() -> list[type[Message]]:
    """Return every declared request and response class."""
    return [of(key) for key in DECLARED for of in (request_class, response_class)]


def kafkas_classes() -> list[type[Message]]:
    """Return every declared class except the messages that only we have."""
    return [cls for cls in message_classes() if cls.api_key != ApiKey.REPLICA_REPORT]


class Examples:
    """A source of random messages."""

    def __init__(self, seed: int) -> None:
        self.random = seeded_random(seed)

    def message(self, cls: type[Message], version: int) -> Any:
        """Return a message with random values in the fields of this version, and defaults in the
        others."""
        return self.struct(cls, version)

    def struct(self, cls: type[Struct], version: int) -> Any:
        """Return a random struct."""
        value = cls()
        for field in cls.fields:
            if field.since <= version <= field.until and self.random.random() < 0.9:
                setattr(value, field.name, self.value(field, version))
        return value

    def value(self, field: Field, version: int) -> Any:
        """Return a random value that the field can have in this version, including null."""
        nullable = field.nullable is not None and version >= field.nullable
        if nullable and self.random.random() < 0.2:
            return None
        if field.kind == "array":
            return [self.element(field.element, version) for _ in range(self.count(field))]
        if field.kind == "struct":
            value = self.element(field.element, version)
            # A tagged struct at its defaults is left out, and so comes back as None.
            return None if field.tag is not None and value == type(value)() else value
        return self.simple(field.kind)

    def count(self, field: Field) -> int:
        """Return the length of an array: mostly small, and large only for arrays of simple
        values."""
        few = self.random.choice((0, 1, 1, 2, 3))
        if not isinstance(field.element, type) and self.random.random() < 0.1:
            return self.random.choice((15, 16, 17, 126, 127, 128, 200))
        return few

    def element(self, element: Any, version: int) -> Any:
        """Return one element of an array, or a nested struct."""
        if isinstance(element, type):
            return self.struct(element, version)
        return self.simple(element.kind)

    def simple(self, kind: str) -> Any:
        """Return a random value of a simple kind, including its extremes."""
        pick = self.random
        if kind == "bool":
            return pick.random() < 0.5
        if kind == "uuid":
            return uuid.UUID(int=pick.choice((0, 1, pick.getrandbits(128))))
        if kind == "string":
            return pick.choice(TEXTS)
        if kind in ("bytes", "records"):
            return pick.randbytes(pick.choice((0, 1, 61, 127, 128, 500)))
        if kind == "uint16":
            return pick.choice((0, 1, UINT16_MAX, pick.randrange(UINT16_MAX)))
        if kind == "float64":
            # NaN is equal to nothing, so a round trip cannot be compared.
            return pick.choice((0.0, -1.5, 1e300, float("inf"), pick.random()))
        half = 1 << (NUMBER_BITS[kind] - 1)
        return pick.choice((0, 1, -1, half - 1, -half, pick.randrange(-half, half)))

    def unknown_tags(self) -> dict[int, bytes]:
        """Return tagged fields that no version defines."""
        count = self.random.choice((0, 0, 1, 3))
        return {
            self.random.randrange(100, 2**31): self.random.randbytes(self.random.randrange(200))
            for _ in range(count)
        }
