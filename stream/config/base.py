"""The base class of all sections of the stream's configuration.

The module uses only the values that it gets: it opens no file and starts no JVM.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, WithJsonSchema

from protocol.units import DURATION_PATTERN, SIZE_PATTERN, parse_duration_ms, parse_size_bytes
from stream.config.times import LISTED_SCHEMA, listed

NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
"""The names of inputs, metrics and formats."""

NAME_PATTERN = "^[a-z][a-z0-9_]{0,47}$"
"""The same pattern for JSON Schema, in which `$` matches only at the end."""


def _duration(value: str) -> str:
    parse_duration_ms(value)
    return value


def _size(value: str) -> str:
    parse_size_bytes(value)
    return value


DurationText = Annotated[
    str,
    AfterValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "format": "duration"}),
]
SizeText = Annotated[
    str,
    AfterValidator(_size),
    WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN, "format": "size"}),
]
Names = Annotated[tuple[str, ...], BeforeValidator(listed), WithJsonSchema(LISTED_SCHEMA)]


class Section(BaseModel):
    """A part of the configuration: unknown keys are faults, and values are immutable."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, serialize_by_alias=True, validate_by_name=True
    )
