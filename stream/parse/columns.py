"""Turns a line's text into columns, as SQL expressions of Spark.

This module is pure and needs no JVM. Every input becomes a `ParsedInput` with *steps*, which are
sets of SQL expressions. The first steps split the line, once per line and only for lines of the
input's topic. The next step extracts single texts, and `columns` converts these to their types.
Each step reads the columns of earlier steps, so a plan evaluates no expensive expression twice. A
text that does not fit the type of its column gives NULL. `raw` distinguishes this fault from an
absent field (missing, null, `-`, or empty if the type is not text).

Java matches a repeated group by recursion, so its stack would limit the length of a field. All
repeats of groups in our patterns are possessive, because Java runs those as a loop.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from stream.config.expression import quote_name, quote_text
from stream.config.formats import Declared, parse_address
from stream.config.groups import java_pattern, repeats_groups
from stream.config.input_section import ParsedInputSection
from stream.parse.access import (
    access_pattern,
    other_format_sql,
    pattern_texts,
    plain_texts,
    plain_time_sql,
    words_sql,
)
from stream.parse.cef import read_cef
from stream.parse.delimited import read_csv, read_w3c
from stream.parse.json_paths import json_texts
from stream.parse.syslog import read_syslog
from stream.parse.texts import ColumnSql, LineSql, Texts, by_groups
from stream.parse.times import TimeSql, line_time

_LOGFMT_PAIR = r'[^\s="]++(?:=(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s"]*+))?'

# The longest line on which a user's pattern is tried if the pattern repeats a group. Java matches
# such a pattern by recursion, and a longer line could use up the stack, which ends the JVM. The
# worst patterns took 4 KiB of stack per character, so this limit allows a quarter of the stack.
RECURSIVE_CHARACTERS_MAX = 8_192
STACK_BYTES = 128 << 20

_ESCAPED = r"(?s)\\(.)"
_BACKSLASH = "\\"
_NGINX_ESCAPE = r"\x"


@dataclass(frozen=True, slots=True)
class ParsedInput:
    """The SQL by which the lines of one input become columns.

    Its expressions use the columns `line` and `arrival`, and the columns of earlier steps.

    `steps` split the line, and the last of them has single texts. `matches` is true if the split
    succeeded. `time` is NULL if the line's time is absent or unreadable, and `time_fault` gives the
    reason. `reason` is the reason of lines that do not match; `fault` is SQL for details of it, or
    None. `skipped` is true for headers and comments; it is None if the format has none.
    """

    name: str
    topic: str
    reason: str
    steps: tuple[Mapping[str, str], ...]
    matches: str
    time: str
    time_fault: str
    columns: Mapping[str, ColumnSql]
    fault: str | None = None
    skipped: str | None = None


def parse_input(name: str, section: ParsedInputSection, wanted: Collection[str]) -> ParsedInput:
    """Return the SQL for those columns of an input that are in `wanted`.

    Other columns are left out, so that Spark need not analyse and optimise them.
    """
    texts = Texts(name, section, {column.lower() for column in wanted})
    reading = _READERS[section.line_reader](texts)
    columns = {c: sql for c, sql in reading.columns.items() if c.lower() in texts.wanted}
    time = reading.time
    readers = [time.value, time.fault, reading.matches, *(sql.value for sql in columns.values())]
    held = {
        column: sql
        for column, sql in texts.held.items()
        if any(quote_name(column) in reader for reader in readers)
    }
    return ParsedInput(
        name,
        section.topic,
        f"format:{section.format}",
        (*reading.steps, held),
        reading.matches,
        time.value,
        time.fault,
        columns,
        reading.fault,
        reading.skipped,
    )


def _access(texts: Texts) -> LineSql:
    combined = texts.section.line_reader == "combined"
    words, fields = texts.words, texts.fields
    plain = f"{words} IS NOT NULL"
    pattern, groups = access_pattern(combined=combined)
    taken, matches = by_groups(pattern, [str(n + 1) for n in range(groups)], fields)
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
        # A missing optional field gives an empty text, which becomes NULL.
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
    looks_like = f"concat('looks like ', {other_format_sql()})"
    return LineSql(steps, f"({plain} OR {matches})", time, columns, looks_like)


def _json(texts: Texts) -> LineSql:
    section, fields = texts.section, texts.fields
    paths = [column.steps for column in texts.columns]
    paths += [parse_address(name, "json") for name in section.time_names()]
    paths = list(dict.fromkeys(paths))

    def text(column: Declared) -> str:
        return f"{fields}[{paths.index(column.steps)}]"

    plain = "millrace_plain(line)"
    plain = f"IF(contains(line, {quote_text(_NGINX_ESCAPE)}), millrace_json_text({plain}), {plain})"
    return LineSql(
        ({f"{texts.name}.text": plain}, *texts.in_one_step(json_texts(texts.text, paths))),
        f"({fields} IS NOT NULL)",
        texts.time(text),
        texts.declared(text),
    )


def _logfmt(texts: Texts) -> LineSql:
    fields = texts.fields
    taken = f"regexp_extract_all({texts.text}, {quote_text(_LOGFMT_PAIR)}, 0)"
    matches = f"coalesce(exists({fields}, pair -> contains(pair, '=')), false)"

    def text(column: Declared) -> str:
        head = f"{column.steps[0]}="
        pair = f"get(filter({fields}, pair -> startswith(pair, {quote_text(head)})), 0)"
        value = f"substring({pair}, {len(head) + 1})"
        inner = f"substring({value}, 2, length({value}) - 2)"
        # logfmt escapes characters like JSON. If JSON refuses the text, each backslash is removed.
        read = f"get_json_object(concat('{{\"v\":', {value}, '}}'), '$.v')"
        bare = f"regexp_replace({inner}, {quote_text(_ESCAPED)}, '$1')"
        escaped = (
            f"IF(contains({value}, {quote_text(_BACKSLASH)}), coalesce({read}, {bare}), {inner})"
        )
        return f"IF(startswith({value}, '\"'), {escaped}, {value})"

    return LineSql(texts.in_two_steps(taken), matches, texts.time(text), texts.declared(text))


def _regex(texts: Texts) -> LineSql:
    section = texts.section
    assert section.pattern is not None
    pattern, java_names = java_pattern(section.pattern)
    names = sorted({str(column.steps[0]) for column in texts.columns})
    names += [name for name in section.time_names() if name not in names]
    groups = [f"{{{java_names[name]}}}" for name in names]
    # A user's own pattern gets the line with its colours, because the pattern can contain them.
    line = "line" if section.format == "regex" else texts.text
    taken, matches = by_groups(pattern, groups, texts.fields, line)
    if repeats_groups(pattern):
        taken = f"IF(length(line) <= {RECURSIVE_CHARACTERS_MAX}, {taken}, NULL)"

    def text(column: Declared) -> str:
        # An empty match and a group that did not take part both give an empty text. So both are
        # NULL.
        return f"nullif({texts.fields}[{names.index(str(column.steps[0])) + 1}], '')"

    in_steps = texts.in_one_step if line == "line" else texts.in_two_steps
    return LineSql(in_steps(taken), matches, texts.time(text), texts.declared(text))


def _raw(texts: Texts) -> LineSql:
    return LineSql(texts.in_one_step("line"), "(line IS NOT NULL)", TimeSql("arrival"), {})


_READERS: Mapping[str, Callable[[Texts], LineSql]] = {
    "combined": _access,
    "common": _access,
    "json": _json,
    "logfmt": _logfmt,
    "syslog": read_syslog,
    "cef": read_cef,
    "csv": read_csv,
    "w3c": read_w3c,
    "regex": _regex,
    "raw": _raw,
}
