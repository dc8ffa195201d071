"""The time of a line in the configuration file: its fields and its format.

This module is pure. Each `ValueError` says what was found and what was expected. The short form of
`time:` names one field or several. The long form also has layouts, and says what happens to a line
if its time is missing or unreadable.
"""

import re
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
    field_validator,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from stream.config.windows import fault

# Directives that are abbreviations for others.
_LONG = {
    "D": "%m/%d/%y", "F": "%Y-%m-%d", "R": "%H:%M", "T": "%H:%M:%S", "A": "%a", "B": "%b",
    "h": "%b", "e": "%d", "k": "%H", "l": "%I", "L": "%f", "N": "%f", "n": " ", "t": " ",
}  # fmt: skip
_SHORT = "aYymdbjHIMSfpszZ%"
DIRECTIVES = tuple(f"%{letter}" for letter in sorted({*_SHORT, *_LONG}, key=str.casefold))

_LAYOUT_MAX = 200
_JOINED = re.compile(r"\s+\+\s+")


def compile_layout(layout: str) -> str:
    """Return a layout that has only the directives of `TimeLayout.java`.

    Raises ValueError for an unknown directive, and for a layout that does not define a time.
    """
    if len(layout) > _LAYOUT_MAX:
        raise fault(f"a layout of {len(layout)} characters", f"at most {_LAYOUT_MAX}")
    text = re.sub(r"%(.?)", _expanded, layout, flags=re.DOTALL)
    text = re.sub(r"\s+", " ", text).strip()
    found = re.findall(r"%(.)", text)
    given = [letter for letter in found if letter != "%"]
    for letter in given:
        if given.count(letter) > 1 and letter != "a":
            raise fault(f"%{letter} twice in layout {layout!r}", "each part of a time once")
    _check_parts(layout, set(given))
    return text


def _expanded(match: re.Match[str]) -> str:
    letter = match[1]
    if letter in _LONG:
        return _LONG[letter]
    if not letter or letter not in _SHORT:
        raise fault(
            f"directive {match[0]!r} at character {match.start() + 1} of layout {match.string!r}",
            f"one of {' '.join(DIRECTIVES)}",
        )
    return match[0]


def _check_parts(layout: str, given: set[str]) -> None:
    """Refuse a layout that does not name the day, or that names a part twice."""
    if "s" in given:
        more = sorted(given - {"s", "f", "a"})
        if more:
            raise fault(f"%s and %{more[0]} in layout {layout!r}", "%s, seconds since 1970, alone")
        return
    for one, other in (("Y", "y"), ("m", "b"), ("H", "I"), ("z", "Z")):
        # A layout can have both forms of the zone. Then the offset (%z) is used.
        if {one, other} <= given and one != "z":
            raise fault(f"%{one} and %{other} in layout {layout!r}", "one of the two")
    has_month = "m" in given or "b" in given
    if not ("j" in given or ("d" in given and has_month)):
        raise fault(f"layout {layout!r} without a day", "%d with %m or %b, or %j, or %s")
    if "j" in given and ("d" in given or has_month or not given & {"Y", "y"}):
        raise fault(f"%j in layout {layout!r}", "%j with a year (%Y or %y) and no month or day")
    if ("I" in given) != ("p" in given):
        raise fault(f"layout {layout!r}", "%I (hours 1 to 12) and %p (AM or PM) together")
    for part, whole in (("M", "HI"), ("S", "M"), ("f", "S")):
        if part in given and not given & set(whole):
            wanted = " or ".join(f"%{letter}" for letter in whole)
            raise fault(f"%{part} in layout {layout!r} without {wanted}", f"{wanted} beside it")


def joined(address: str) -> tuple[str, ...]:
    """Split an address such as ``date + time`` into the fields whose texts make one time."""
    return tuple(_JOINED.split(address.strip()))


def listed(value: object) -> object:
    """Return a single text as a tuple of one; any other value is returned unchanged."""
    return (value,) if isinstance(value, str) else value


_LISTED = ({"type": "string"}, {"type": "array", "items": {"type": "string"}})
LISTED_SCHEMA: dict[str, object] = {"anyOf": [*_LISTED]}
"""The JSON Schema of what `listed` reads."""

_Texts = Annotated[tuple[str, ...], BeforeValidator(listed), WithJsonSchema(LISTED_SCHEMA)]


class TimeSection(BaseModel):
    """The key `time:` of an input: the fields of a line that can have its time, and their format.

    `column` names the fields that can have the time; the first field that exists and is readable is
    used. With `layout`, only texts in one of the layouts are times. `fallback` is for lines without
    a readable time: `arrival` counts them at their arrival, `none` counts them only in the window
    `all`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: _Texts = Field(
        default=(),
        description="a field or a list of fields; `date + clock` joins the texts of two fields"
        " with a blank. In a list, a number below 100,000,000 is read as a duration, and a date"
        " without a time of day is not used",
        examples=[["ts", "date + clock"]],
    )
    layout: _Texts = Field(
        default=(),
        description="a layout or a list of layouts; without it all spellings below are read."
        " Formats that have a time of their own (combined, common, syslog) take it without"
        " `column`",
        examples=["%d/%m/%Y %H:%M:%S"],
    )
    fallback: Literal["none", "arrival"] = Field(
        default="none",
        description="`arrival`: a line whose time is missing or unreadable is counted at its"
        " arrival. `none`: it counts only in the window `all`",
        examples=["arrival"],
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the mapping, and its short forms: a field or a list of fields."""
        mapping = handler.resolve_ref_schema(handler(core_schema))
        return {"anyOf": [*_LISTED, mapping]}

    @field_validator("column")
    @classmethod
    def _check_column(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for index, name in enumerate(value):
            if name in value[:index]:
                raise fault(f"{name!r} twice", "each field once")
        return value

    @field_validator("layout")
    @classmethod
    def _check_layout(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for layout in value:
            compile_layout(layout)
        return value

    @model_serializer
    def _as_written(self) -> object:
        """Return the shortest form of `time:` that has the same meaning."""
        column = self.column[0] if len(self.column) == 1 else list(self.column)
        if not self.layout and self.fallback == "none":
            return column
        said: dict[str, object] = {"column": column} if self.column else {}
        if self.layout:
            said["layout"] = list(self.layout)
        return said if self.fallback == "none" else {**said, "fallback": self.fallback}

    def fields(self) -> tuple[tuple[str, ...], ...]:
        """Return each field that can have the time, as the addresses of the texts to join."""
        return tuple(joined(name) for name in self.column)


def _as_section(value: object) -> object:
    """Return any form of `time:` in the long form."""
    if isinstance(value, str | list | tuple):
        if not value:
            raise fault("no field", "a field's name, or a list of names")
        return {"column": value}
    if isinstance(value, dict | TimeSection):
        return value
    raise fault(repr(value), "a field's name, a list of names, or column, layout and fallback")


Time = Annotated[TimeSection, BeforeValidator(_as_section)]
