"""SQL that extracts single texts from a line and converts them to the types of the columns.

This module is pure and needs no JVM. Each reader of a format (`columns.py`, `delimited.py`,
`syslog.py`, `cef.py`) splits a line by steps of SQL expressions, and uses `Texts` to convert the
resulting texts to columns. A text that does not fit the type of its column gives NULL. `raw`
distinguishes this fault from an absent field (missing, null, `-`, or empty if the type is not
text).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from stream.config.expression import quote_name, quote_text
from stream.config.formats import Declared, parse_address
from stream.config.input_section import ParsedInputSection
from stream.parse.numbers import number
from stream.parse.times import TimeSql, line_time, parse_time

# The character between the fields, when one replacement writes all groups of a pattern to a text.
_SEPARATOR = "\x01"
_BLANK = ", ' ', "


@dataclass(frozen=True, slots=True)
class ColumnSql:
    """A column: SQL for its value, and for the text from which the value was converted.

    `raw` is None if the value is a text itself.
    """

    value: str
    raw: str | None = None


Steps = tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class LineSql:
    """The SQL by which a reader splits a line.

    `steps` split the line, and `matches` is true if that succeeded. `fault` describes in a few
    words why a line does not match; it is None if there is only one reason. `skipped` is true for
    headers and comments, which are neither counted nor faulty; it is None if the format has none.
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
        """Return the step that splits a line by one expression into the column `fields`."""
        return ({f"{self.name}.fields": taken},)

    def in_two_steps(self, taken: str) -> Steps:
        """Return two steps: the first removes byte order mark and colours, the second splits."""
        return ({f"{self.name}.text": "millrace_plain(line)"}, *self.in_one_step(taken))

    def hold(self, what: str, text: str) -> str:
        """Make a text a separate column, so that it is evaluated once. Return the column's name."""
        column = f"{self.name}.{what}.text"
        self.held[column] = text
        return quote_name(column)

    def typed(self, name: str, text: str, column_type: str) -> ColumnSql:
        """Return a text as a column of a type. Its value is NULL if the text does not fit."""
        if column_type == "string":
            return ColumnSql(f"nullif({text}, '-')")
        held = self.hold(name, f"nullif(nullif(trim({text}), '-'), '')")
        if column_type == "timestamp":
            return ColumnSql(parse_time(held, self.section.tz), held)
        if column_type == "double" or column_type.startswith("decimal"):
            return ColumnSql(number(held, column_type), held)
        return ColumnSql(f"try_cast({held} AS {column_type})", held)

    def declared(self, text_of: Callable[[Declared], str]) -> dict[str, ColumnSql]:
        """Return the declared columns; `text_of` returns SQL for the text of a column."""
        return {
            column.name: self.typed(column.name, text_of(column), column.type)
            for column in self.columns
        }

    def time(self, text_of: Callable[[Declared], str]) -> TimeSql:
        """Return the line's time: the first readable field that the key `time` names.

        Without that key it is the time at which the line arrived.

        The texts of a field such as ``date + time`` are joined by a blank.
        """
        section = self.section
        if section.time is None:
            return TimeSql("arrival")
        return self.time_of(section.time.fields(), text_of)

    def time_of(
        self, fields: Sequence[Sequence[str]], text_of: Callable[[Declared], str]
    ) -> TimeSql:
        """Return the time in the first readable field. Each field is a list of texts to join."""
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
    """Return two SQL expressions: the groups of a pattern as an array, and whether it matched.

    The first expression is an array with group n at position n. The second is true if the line
    matched; `fields` is the name of the column with that array.

    The groups are written to one text and split at a separator, which must not occur in the line.
    For nearly every line the separator is a control character. For a line with this character it is
    the character followed by the MD5 sum of the line.
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
