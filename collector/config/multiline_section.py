"""The key `multiline` of an input: which lines form one event.

The module uses only the values that it gets.
"""

import re
from typing import Literal, get_args

from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from collector.config.base import CollectorModel, DurationMs, SizeBytes
from collector.config.multiline import INDENTED, PARTIAL_PRESETS, PRESETS, By, EventRules

Preset = Literal["java", "python", "go", "cri", "docker"]


class MultilineSection(CollectorModel):
    """The rule that forms events from lines: a preset, one pattern, or indentation."""

    preset: Preset | None = Field(
        default=None,
        description="a ready rule. `java`, `python`, `go`: a stack trace and the log line before"
        " it. `cri`, `docker`: the parts into which a container runtime cuts a long line",
        examples=["java"],
    )
    start: str | None = Field(
        default=None,
        description="a regular expression that is searched in each line: a match begins an event",
        examples=[r"^\d{4}-\d\d-\d\d"],
    )
    continue_: str | None = Field(
        default=None,
        alias="continue",
        description="a match continues the event of the line before",
        examples=[r"^(\s|\})"],
    )
    end: str | None = Field(
        default=None,
        description="a match is the last line of its event",
        examples=[";$"],
    )
    indent: bool = Field(
        default=False,
        description="true: a line that begins with a blank or a tab continues the event. It can"
        " stand beside `continue`",
        examples=[True],
    )
    max_lines: int = Field(
        default=1_000,
        ge=2,
        le=100_000,
        description="an event ends after so many lines; `events_cut` counts such events",
        examples=[200],
    )
    max_bytes: SizeBytes = Field(
        default=1 << 20,
        ge=1024,
        le=1 << 23,
        description="an event ends at this size, which `max_line_bytes` also limits",
        examples=["256KiB"],
    )
    max_age: DurationMs = Field(
        default=5_000,
        ge=100,
        le=3_600_000,
        description="the last event of a file is complete when nothing followed for so long",
        examples=["2s"],
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the mapping, and the name of a preset, which is its short form."""
        mapping = handler.resolve_ref_schema(handler(core_schema))
        return {"anyOf": [{"enum": list(get_args(Preset))}, mapping]}

    @field_validator("start", "continue_", "end")
    @classmethod
    def _pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(
                f"found {pattern!r}, expected a regular expression: {error}"
            ) from error
        return pattern

    @model_validator(mode="after")
    def _one_way(self) -> "MultilineSection":
        ways = {
            "preset": self.preset is not None,
            "start": self.start is not None,
            "end": self.end is not None,
            "continue or indent": self.continue_ is not None or self.indent,
        }
        given = [name for name, is_given in ways.items() if is_given]
        if len(given) != 1:
            raise ValueError(
                f"found {' and '.join(given) or 'none of them'}, expected one of preset, start,"
                " end, or continue with or without indent: true"
            )
        return self

    def rules(self) -> EventRules:
        """Return the section as rules with a compiled pattern."""
        by, text = By.CONTINUE, self.continue_
        if self.preset in PARTIAL_PRESETS:
            by, text = By.PARTIAL, PARTIAL_PRESETS[self.preset]
        elif self.preset is not None:
            text = PRESETS[self.preset]
        elif self.start is not None:
            by, text = By.START, self.start
        elif self.end is not None:
            by, text = By.END, self.end
        elif self.indent:
            text = INDENTED if text is None else f"{INDENTED}|{text}"
        assert text is not None
        return EventRules(by, re.compile(text), self.max_lines, self.max_bytes, self.max_age)
