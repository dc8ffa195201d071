"""Extracts single texts from a line and converts them to the columns' types, as SQL.

Room: pure, no JVM. Each reader of a format (`columns.py`, `delimited.py`, `syslog.py`, `cef.py`)
splits a line by steps of expressions and makes columns of the texts with `Texts`. Text that does
not fit a column's type is NULL; `raw` tells such a fault from an absent field (missing, null, `-`,
or empty if the type is not text).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from stream.config.expression import quote_name, quote_text
from stream.config.formats import Declared, parse_address
from stream.config.input_section import ParsedInputSection
from stream.parse.numbers import number
from stream.parse.times import TimeSql, line_time, parse_time

# Separates the fields when a single replacement writes out a pattern's groups.
_SEPARATOR = "\x01"
_BLANK = ", ' ', "


@dataclass(frozen=True, slots=True)
class ColumnSql:
    """A column: its typed value, and the text it was made from (None if it is text itself)."""

    value: str
    raw: str | None = None


Steps = tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class LineSql:
    """How a reader splits a line.

    `steps` do that, and `matches` tells whether it succeeded. `fault` is SQL that describes in a
    few words what is wrong with a line that does not match, or None. `skipped` tells which lines
    are headers or comments, which are neither counted nor faulty.
    """

    steps: Steps
    matches: str
    time: TimeSql
    columns: dict[str, ColumnSql]
    fault: str | None = None
    skipped: str | None = None


class Texts:
    """Collects the texts extracted from one input's fields, and converts their types."""

    def __init__(self, name: str, section: ParsedInputSection, wanted: Collection[str]) -> None:
        self.name = name
        self.section = section
        self.wanted = wanted
        self.columns = [c for c in section.declared() if c.name.lower() in wanted]
        self.fields = quote_name(f"{name}.fields")
        self.words = quote_name(f"{name}.words")
        self.text = quote_name(f"{name}.text")
        self.held: dict[str, str] = {}

    def in_one_step(self, taken: str) -> Steps:
        """Return the step for a line that one expression splits, the column `fields`."""
        return ({f"{self.name}.fields": taken},)

    def in_two_steps(self, taken: str) -> Steps:
        """Do the same on the line's plain text, without byte order mark and colours."""
        return ({f"{self.name}.text": "millrace_plain(line)"}, *self.in_one_step(taken))

    def hold(self, what: str, text: str) -> str:
        """Make a text a column of its own, and return the column's name."""
        column = f"{self.name}.{what}.text"
        self.held[column] = text
        return quote_name(column)

    def typed(self, name: str, text: str, column_type: str) -> ColumnSql:
        """Return a text as a column of a type, NULL if it does not fit."""
        if column_type == "string":
            return ColumnSql(f"nullif({text}, '-')")
        held = self.hold(name, f"nullif(nullif(trim({text}), '-'), '')")
        if column_type == "timestamp":
            return ColumnSql(parse_time(held, self.section.tz), held)
        if column_type == "double" or column_type.startswith("decimal"):
            return ColumnSql(number(held, column_type), held)
        return ColumnSql(f"try_cast({held} AS {column_type})", held)

    def declared(self, text_of: Callable[[Declared], str]) -> dict[str, ColumnSql]:
        """Return the declared columns; `text_of` returns the text of each."""
        return {
            column.name: self.typed(column.name, text_of(column), column.type)
            for column in self.columns
        }

    def time(self, text_of: Callable[[Declared], str]) -> TimeSql:
        """Return the line's time: the first readable field that `time:` names, or its arrival.

        The texts of a field such as ``date + time`` are joined by a blank.
        """
        section = self.section
        if section.time is None:
            return TimeSql("arrival")
        return self.time_of(section.time.fields(), text_of)

    def time_of(
        self, fields: Sequence[Sequence[str]], text_of: Callable[[Declared], str]
    ) -> TimeSql:
        """Return the time in the first readable one of some fields."""
        section = self.section
        texts = []
        for place, field in enumerate(fields):
            found = [
                text_of(Declared("time", parse_address(one, section.line_reader), "string"))
                for one in field
            ]
            joined = f"concat({_BLANK.join(found)})" if len(found) > 1 else found[0]
            texts.append(self.hold("time" if place == 0 else f"time{place}", joined))
        return line_time(texts, section.tz, section.time)


def by_groups(
    pattern: str, groups: Sequence[str], fields: str, line: str = "line"
) -> tuple[str, str]:
    """Match once, and split one replacement into fields 1 to n; fewer if there is no match.

    The separator must not occur in the line. For nearly every line that is a control character,
    for others the control character followed by the line's own digest.
    """
    usual = quote_text(_SEPARATOR)
    holds_it = f"contains({line}, {usual})"
    other = f"concat({usual}, md5({line}))"
    replacement = quote_text("".join(f"{_SEPARATOR}${group}" for group in groups) + _SEPARATOR)
    pieces = "".join(f"{other}, {quote_text(f'${group}')}, " for group in groups)
    separator = f"IF({holds_it}, {other}, {usual})"
    between = f"IF({holds_it}, concat({pieces}{other}), {replacement})"
    replaced = f"regexp_replace({line}, {quote_text(pattern)}, {between})"
    return f"split({replaced}, {separator})", f"(coalesce(size({fields}), 0) > {len(groups) + 1})"
