"""The base of all sections of the collector's configuration, and the types of its values."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema

from protocol.units import DURATION_PATTERN, SIZE_PATTERN, parse_duration_ms, parse_size_bytes


def _size(value: object) -> object:
    return parse_size_bytes(value) if isinstance(value, str) else value


def _duration(value: object) -> object:
    return parse_duration_ms(value) if isinstance(value, str) else value


SizeBytes = Annotated[
    int,
    BeforeValidator(_size),
    WithJsonSchema({"type": ["string", "integer"], "pattern": SIZE_PATTERN, "format": "size"}),
]
DurationMs = Annotated[
    int,
    BeforeValidator(_duration),
    WithJsonSchema(
        {"type": ["string", "integer"], "pattern": DURATION_PATTERN, "format": "duration-ms"}
    ),
]


class CollectorModel(BaseModel):
    """The base of the room's settings: unknown keys are faults, and values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)
