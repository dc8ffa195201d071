"""From a line's text to columns, as SQL expressions of Spark.

Floor: pure, no JVM. Every input becomes a `ParsedInput`, steps of expressions: the first take the
line apart (once a line, and only for lines of its topic), the next cut single texts out of it, and
`columns` gives them their types. Each step reads the columns of the steps before, so that nothing
expensive stands in a plan twice. Text that does not fit a column's type is NULL; `raw` tells such
a fault from a field that is absent (missing, null, `-`, or empty where the type is not text).

Java's regular expressions recurse on a repeated group, and the stack then bounds the length of a
field: repeats of groups are possessive here, which Java runs as a loop.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from stream.config.expression import quote_name, quote_text
from stream.config.formats import Declared, parse_address, repeats_groups
from stream.config.sections import InputSection
from stream.parse.access import (
    access_pattern,
    pattern_texts,
    plain_texts,
    plain_time_sql,
    words_sql,
)
from stream.parse.json_paths import json_texts
from stream.parse.numbers import number
from stream.parse.times import TimeSql, line_time, parse_time

# Stands between the fields when a pattern's groups are written out in one replacement.
_SEPARATOR = "\x01"

_STRUCTURED_DATA = r"(?:-|(?:\[[^\]\\]*+(?:\\.[^\]\\]*+)*+\])++)"
_SYSLOG = (
    r"(?s)^(?:"
    # RFC 5424: priority, version 1, time, host, program, pid, message id, data, message.
    rf"<\d{{1,3}}>1 (\S++) (\S++) (\S++) (\S++) \S++ {_STRUCTURED_DATA}(?: (.*?))?"
    # RFC 3164 and what is written to files: time, host, program[pid]: message.
    r"|(?:<\d{1,3}>)?(?:([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)|(\d{4}-\d\d-\d\dT\S++)) (\S++)"
    r" ([^\s:\[]++)(?:\[([^\]\s]*+)\])?:? ?(.*?)"
    r")\s*$"
)

_LOGFMT_PAIR = r'[^\s="]++(?:=(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s"]*+))?'

# Java recurses on a repeated group, and a line could take all of the stack, which ends the JVM. So
# a user's pattern with one is tried on lines of at most this length; the worst patterns took 4 KiB
# of stack a character, and a quarter of the stack is what this bound leaves to them.
RECURSIVE_CHARACTERS_MAX = 8_192
STACK_BYTES = 128 << 20

# A line with more columns does not parse; the parser's own limit is as high.
CSV_COLUMNS_MAX = 20_480

_BLANK = ", ' ', "

_ESCAPED = r"(?s)\\(.)"
_BACKSLASH = "\\"



@dataclass(frozen=True, slots=True)
class ColumnSql:
    """A column: its typed value, and the text it was made from (None where it is text itself)."""

    value: str
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedInput:
    """How one input's lines become columns. Expressions name `line`, `arrival`, and each other.

    `steps` take the line apart: columns, each over those of the steps before it; the last of them
    are single texts. `matches` says whether taking apart succeeded; `time` is NULL where the line's
    time is absent or unreadable, and `time_fault` is the reason for that.
    """

    name: str
    topic: str
    reason: str
    steps: tuple[Mapping[str, str], ...]
    matches: str
    time: str
    time_fault: str
    columns: Mapping[str, ColumnSql]


def parse_input(name: str, section: InputSection, wanted: Collection[str]) -> ParsedInput:
    """The expressions of one input, as far as the columns in `wanted` need them.

    What Spark need not analyse, it need not optimise away again in every batch.
    """
    builders: dict[str, Callable[[_Texts], _Built]] = {
        "combined": _access,
        "common": _access,
        "json": _json,
        "logfmt": _logfmt,
        "syslog": _syslog,
        "csv": _csv,
        "regex": _regex,
        "raw": _raw,
    }
    texts = _Texts(name, section, {column.lower() for column in wanted})
    steps, matches, time, columns = builders[section.format](texts)
    columns = {column: sql for column, sql in columns.items() if column.lower() in texts.wanted}
    readers = [time.value, time.fault, matches, *(sql.value for sql in columns.values())]
    held = {
        column: sql
        for column, sql in texts.held.items()
        if any(quote_name(column) in reader for reader in readers)
    }
    reason = f"format:{section.format}"
    return ParsedInput(
        name, section.topic, reason, (*steps, held), matches, time.value, time.fault, columns
    )


_Steps = tuple[Mapping[str, str], ...]
# The steps that take a line apart; matches, time, columns.
_Built = tuple[_Steps, str, TimeSql, dict[str, ColumnSql]]


class _Texts:
    """Collects the texts that are cut out of one input's fields, and types them."""

    def __init__(self, name: str, section: InputSection, wanted: Collection[str]) -> None:
        self.name = name
        self.section = section
        self.wanted = wanted
        self.columns = [c for c in section.declared() if c.name.lower() in wanted]
        self.fields = quote_name(f"{name}.fields")
        self.words = quote_name(f"{name}.words")
        self.held: dict[str, str] = {}

    def in_one_step(self, taken: str) -> _Steps:
        """A line taken apart by one expression, the column `fields`."""
        return ({f"{self.name}.fields": taken},)

    def hold(self, what: str, text: str) -> str:
        """Make a text a column of its own and return the name it then has."""
        column = f"{self.name}.{what}.text"
        self.held[column] = text
        return quote_name(column)

    def typed(self, name: str, text: str, column_type: str) -> ColumnSql:
        """A text as a column of a type, NULL where it does not fit."""
        if column_type == "string":
            return ColumnSql(f"nullif({text}, '-')")
        held = self.hold(name, f"nullif(nullif(trim({text}), '-'), '')")
        if column_type == "timestamp":
            return ColumnSql(parse_time(held, self.section.tz), held)
        if column_type == "double" or column_type.startswith("decimal"):
            return ColumnSql(number(held, column_type), held)
        return ColumnSql(f"try_cast({held} AS {column_type})", held)

    def declared(self, text_of: Callable[[Declared], str]) -> dict[str, ColumnSql]:
        """The declared columns, given how to find the text of each."""
        return {
            column.name: self.typed(column.name, text_of(column), column.type)
            for column in self.columns
        }

    def time(self, text_of: Callable[[Declared], str]) -> TimeSql:
        """The line's time: the first readable one of the fields that `time:` names, or its arrival.

        The texts of a field such as ``date + time`` are joined by a blank.
        """
        section = self.section
        if section.time is None:
            return TimeSql("arrival")
        texts = []
        for place, field in enumerate(section.time.fields()):
            found = [
                text_of(Declared("time", parse_address(one, section.format), "string"))
                for one in field
            ]
            joined = f"concat({_BLANK.join(found)})" if len(found) > 1 else found[0]
            texts.append(self.hold("time" if place == 0 else f"time{place}", joined))
        return line_time(texts, section.tz, section.time)


def _access(texts: _Texts) -> _Built:
    combined = texts.section.format == "combined"
    words, fields = texts.words, texts.fields
    plain = f"{words} IS NOT NULL"
    pattern, groups = access_pattern(combined=combined)
    taken, matches = _by_groups(pattern, [str(group + 1) for group in range(groups)], fields)
    field = [f"{fields}[{group}]" for group in range(groups + 1)]
    request = texts.hold("request", field[5])
    of_plain = plain_texts(words, combined=combined)
    of_others = pattern_texts(field, request, combined=combined)
    either = {name: f"IF({plain}, {of_plain[name]}, {of_others[name]})" for name in of_plain}
    columns = {name: ColumnSql(text) for name, text in either.items()}
    for name in ("remote_addr", "ident", "user"):
        columns[name] = texts.typed(name, either[name], "string")
    columns["status"] = texts.typed("status", either["status"], "int")
    columns["bytes"] = texts.typed("bytes", either["bytes"], "bigint")
    if combined:
        # An optional field that is not there leaves an empty text behind.
        for name in ("referer", "user_agent"):
            columns[name] = ColumnSql(f"nullif(nullif({either[name]}, '-'), '')")
    given = texts.section.time
    other = line_time([field[4]], texts.section.tz, given)
    usual = plain_time_sql(words)
    if given is not None and given.fallback == "arrival":
        usual = f"coalesce({usual}, arrival)"
    time = TimeSql(f"IF({plain}, {usual}, {other.value})", other.fault)
    steps = (
        {f"{texts.name}.words": words_sql(combined=combined)},
        {f"{texts.name}.fields": f"IF({plain}, NULL, {taken})"},
    )
    return steps, f"({plain} OR {matches})", time, columns


def _json(texts: _Texts) -> _Built:
    section, fields = texts.section, texts.fields
    paths = [column.steps for column in texts.columns]
    paths += [parse_address(name, "json") for name in section.time_names()]
    paths = list(dict.fromkeys(paths))

    def text(column: Declared) -> str:
        return f"{fields}[{paths.index(column.steps)}]"

    return (
        texts.in_one_step(json_texts(paths)),
        f"({fields} IS NOT NULL)",
        texts.time(text),
        texts.declared(text),
    )


def _logfmt(texts: _Texts) -> _Built:
    fields = texts.fields
    taken = f"regexp_extract_all(line, {quote_text(_LOGFMT_PAIR)}, 0)"
    matches = f"coalesce(exists({fields}, pair -> contains(pair, '=')), false)"

    def text(column: Declared) -> str:
        head = f"{column.steps[0]}="
        pair = f"get(filter({fields}, pair -> startswith(pair, {quote_text(head)})), 0)"
        value = f"substring({pair}, {len(head) + 1})"
        inner = f"substring({value}, 2, length({value}) - 2)"
        # Writers of logfmt quote as JSON does; what JSON refuses stands for itself.
        read = f"get_json_object(concat('{{\"v\":', {value}, '}}'), '$.v')"
        bare = f"regexp_replace({inner}, {quote_text(_ESCAPED)}, '$1')"
        escaped = (
            f"IF(contains({value}, {quote_text(_BACKSLASH)}), coalesce({read}, {bare}), {inner})"
        )
        return f"IF(startswith({value}, '\"'), {escaped}, {value})"

    return texts.in_one_step(taken), matches, texts.time(text), texts.declared(text)


def _syslog(texts: _Texts) -> _Built:
    taken, matches = _by_groups(_SYSLOG, [str(i + 1) for i in range(11)], texts.fields)
    field = [f"nullif({texts.fields}[{index}], '')" for index in range(12)]
    stamp = texts.hold("time", f"coalesce({field[6]}, {field[1]}, {field[7]})")
    columns = {
        "host": ColumnSql(f"nullif(coalesce({field[2]}, {field[8]}), '-')"),
        "program": ColumnSql(f"nullif(coalesce({field[3]}, {field[9]}), '-')"),
        "pid": texts.typed("pid", f"coalesce({field[4]}, {field[10]})", "int"),
        "message": ColumnSql(f"coalesce({field[5]}, {field[11]}, '')"),
    }
    time = line_time([stamp], texts.section.tz, texts.section.time)
    return texts.in_one_step(taken), matches, time, columns


def _csv(texts: _Texts) -> _Built:
    section, fields = texts.section, texts.fields
    positions = [int(column.steps[0]) for column in texts.columns]
    positions += [int(name) for name in section.time_names()]
    quote = section.quote or '"'
    schema = ", ".join(f"c{place} STRING" for place in range(1, max(positions, default=1) + 1))
    options = {
        "sep": section.delimiter or ",",
        "quote": quote,
        "escape": quote,
        "maxColumns": str(CSV_COLUMNS_MAX),
        "maxCharsPerColumn": "-1",
    }
    listed = ", ".join(f"{quote_text(key)}, {quote_text(text)}" for key, text in options.items())
    # An odd number of quotes is a field that never ends.
    whole = f"(length(line) - length(replace(line, {quote_text(quote)}, ''))) % 2 = 0"
    taken = f"IF({whole}, from_csv(line, {quote_text(schema)}, map({listed})), NULL)"

    def text(column: Declared) -> str:
        return f"{fields}.c{column.steps[0]}"

    return (
        texts.in_one_step(taken),
        f"({fields} IS NOT NULL)",
        texts.time(text),
        texts.declared(text),
    )


def _regex(texts: _Texts) -> _Built:
    section = texts.section
    assert section.pattern is not None
    names = sorted({str(column.steps[0]) for column in texts.columns})
    names += [name for name in section.time_names() if name not in names]
    groups = [f"{{{name}}}" for name in names]
    taken, matches = _by_groups(section.pattern, groups, texts.fields)
    if repeats_groups(section.pattern):
        taken = f"IF(length(line) <= {RECURSIVE_CHARACTERS_MAX}, {taken}, NULL)"

    def text(column: Declared) -> str:
        # A group that took no part leaves an empty text behind, too.
        return f"nullif({texts.fields}[{names.index(str(column.steps[0])) + 1}], '')"

    return texts.in_one_step(taken), matches, texts.time(text), texts.declared(text)


def _raw(texts: _Texts) -> _Built:
    return texts.in_one_step("line"), "(line IS NOT NULL)", TimeSql("arrival"), {}


def _by_groups(pattern: str, groups: list[str], fields: str) -> tuple[str, str]:
    """Match once and cut the groups out of one replacement: fields 1 to n; fewer if no match.

    What stands between the fields must not stand in the line. A control character does that for
    nearly every line, and for others the control character with the line's own digest.
    """
    usual = quote_text(_SEPARATOR)
    holds_it = f"contains(line, {usual})"
    other = f"concat({usual}, md5(line))"
    replacement = quote_text("".join(f"{_SEPARATOR}${group}" for group in groups) + _SEPARATOR)
    pieces = "".join(f"{other}, {quote_text(f'${group}')}, " for group in groups)
    separator = f"IF({holds_it}, {other}, {usual})"
    between = f"IF({holds_it}, concat({pieces}{other}), {replacement})"
    replaced = f"regexp_replace(line, {quote_text(pattern)}, {between})"
    return f"split({replaced}, {separator})", f"(coalesce(size({fields}), 0) > {len(groups) + 1})"
