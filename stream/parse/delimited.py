"""SQL that parses delimited fields: csv with or without a header, and the W3C extended log format.

This module is pure and needs no JVM. Lines arrive one by one and from any file, so a header is
recognised by its content: a line with the names that the input declares is a header and not a row.
If an input declares several headers, a row has the columns of the header that fits it. A header
fits if it has the same number of fields, and for W3C also if the kinds of fields agree (an address,
a number, a path). A row is refused if no header fits it, or more than one.
"""

from collections.abc import Sequence

from stream.config.expression import quote_name, quote_text
from stream.config.formats import Declared
from stream.config.headers import header_names
from stream.config.line_patterns import w3c_pattern
from stream.parse.texts import LineSql, Texts, by_groups

ANOTHER_NUMBER = "another number of fields than the header"
ANOTHER_HEADER = "a header of other fields"
QUOTES = "quotes in disorder"
TOO_MANY = "too many fields"
AMBIGUOUS = "more than one header fits"

_FIELDS = "#Fields:"

FIELDS_MAX = 20_480
"""The most fields of a csv line, as in `java/Delimited.java`."""


def read_csv(texts: Texts) -> LineSql:
    """Return how to read a csv input."""
    section, fields = texts.section, texts.fields
    given = [
        section.delimiter or ",",
        "" if section.quote == "none" else section.quote or '"',
        section.escape or "",
    ]
    taken = f"millrace_delimited({texts.text}, {', '.join(map(quote_text, given))})"
    headers = [header_names(text, section) for text in section.header or ()]
    sizes = sorted({len(names) for names in headers})
    bare = f"replace({texts.text}, {quote_text(given[0])}, '')"
    delimiters = f"length({texts.text}) - length({bare})"
    fitting = f"size({fields}) IN ({', '.join(map(str, sizes))})" if sizes else "true"

    def text(column: Declared) -> str:
        step = column.steps[0]
        if isinstance(step, int):
            return f"nullif(get({fields}, {step - 1}), '')"
        places = {len(names): names.index(step) for names in headers if step in names}
        if len(set(places.values())) == 1 and len(places) == len(sizes):
            return f"nullif(get({fields}, {next(iter(places.values()))}), '')"
        cases = " ".join(f"WHEN {size} THEN {place}" for size, place in places.items())
        return f"nullif(get({fields}, CASE size({fields}) {cases} END), '')"

    return LineSql(
        texts.in_two_steps(taken),
        f"({fields} IS NOT NULL AND {fitting})",
        texts.time(text),
        texts.declared(text),
        f"CASE WHEN {fields} IS NOT NULL THEN {quote_text(ANOTHER_NUMBER)}"
        f" WHEN {delimiters} >= {FIELDS_MAX} THEN {quote_text(TOO_MANY)}"
        f" ELSE {quote_text(QUOTES)} END",
        _skipped(texts, headers),
    )


def _skipped(texts: Texts, headers: Sequence[Sequence[str]]) -> str | None:
    """Return SQL that is true for headers and comments; None if the input has neither.

    A line with only the first names of a header is a header too.
    """
    section, fields = texts.section, texts.fields
    cases = []
    if section.comment is not None:
        cases.append(f"startswith({texts.text}, {quote_text(section.comment)})")
    trimmed = f"transform({fields}, field -> trim(field))"
    for names in headers:
        listed = ", ".join(quote_text(name) for name in names)
        least = min(2, len(names))
        cases.append(
            f"(get({fields}, 0) IS NOT NULL AND trim(get({fields}, 0)) = {quote_text(names[0])}"
            f" AND size({fields}) BETWEEN {least} AND {len(names)}"
            f" AND {trimmed} = slice(array({listed}), 1, size({fields})))"
        )
    return f"coalesce({' OR '.join(cases)}, false)" if cases else None


def read_w3c(texts: Texts) -> LineSql:
    """Return how to read a W3C input: one pattern per header. Lines with # are skipped."""
    section, text = texts.section, texts.text
    headers = [header_names(line, section) for line in section.header or ()]
    wanted = {str(column.steps[0]) for column in texts.columns}
    timed = (("date", "time"),) if section.time is None else section.time.fields()
    wanted.update(name for field in timed for name in field)
    steps: dict[str, str] = {}
    matches: list[str] = []
    places: list[list[str]] = []
    for number, names in enumerate(headers):
        here = [name for name in names if name in wanted]
        column = quote_name(f"{texts.name}.fields{number}")
        taken, fits = by_groups(w3c_pattern(names, here), _numbers(here), column, text)
        steps[f"{texts.name}.fields{number}"] = taken
        matches.append(fits)
        places.append(here)

    def field(name: str) -> str:
        found = [
            f"WHEN {fits} THEN {quote_name(f'{texts.name}.fields{number}')}[{here.index(name) + 1}]"
            for number, (fits, here) in enumerate(zip(matches, places, strict=True))
            if name in here
        ]
        cases = f"CASE {' '.join(found)} END" if found else "NULL"
        bare = f"nullif({cases}, '-')"
        quoted = f"replace(substring({bare}, 2, length({bare}) - 2), '\"\"', '\"')"
        return f"IF(startswith({bare}, '\"'), {quoted}, {bare})"

    def of(column: Declared) -> str:
        return field(str(column.steps[0]))

    count = " + ".join(f"IF({fits}, 1, 0)" for fits in matches) or "0"
    known = " OR ".join(f"{_directive(text)} = {quote_text(' '.join(names))}" for names in headers)
    is_header = f"startswith({text}, {quote_text(_FIELDS)})"
    return LineSql(
        ({f"{texts.name}.text": "millrace_plain(line)"}, steps),
        f"({count} = 1)",
        texts.time_of(timed, of),
        texts.declared(of),
        f"CASE WHEN {is_header} THEN {quote_text(ANOTHER_HEADER)} WHEN {count} > 1"
        f" THEN {quote_text(AMBIGUOUS)} ELSE {quote_text(ANOTHER_NUMBER)} END",
        f"coalesce(startswith({text}, '#') AND (NOT {is_header} OR {known or 'false'}), false)",
    )


def _directive(text: str) -> str:
    """Return SQL for the names of a `#Fields:` line, separated by single blanks."""
    names = f"substring({text}, {len(_FIELDS) + 1})"
    return f"trim(regexp_replace({names}, '[\\\\s]+', ' '))"


def _numbers(names: Sequence[str]) -> list[str]:
    return [str(number) for number in range(1, len(names) + 1)]
