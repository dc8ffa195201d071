"""Detects the format of some lines. Other packages call only this module for the detection.

This module is pure: lines and formats in, a `Detection` out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from appliance.detect.columns import FieldsSeen, address_of, declarations, leaves, times_of
from appliance.detect.detection import Detection, Multiline, NotParsed, ShownColumn
from appliance.detect.events import Rule, likely_presets, stretches
from appliance.detect.guessing import guess_of
from appliance.detect.judging import (
    CHARACTERS_MAX,
    CLAIM_MIN,
    PARTIAL_RULES,
    RUNNER_UP_MIN,
    Fit,
    candidates,
    fit,
    winner,
)
from appliance.detect.noise import noise_of, nothing_fits
from appliance.detect.proposing import name_of, proposal_of
from appliance.detect.rows import Row, json_of, pairs_of, row_reader
from appliance.detect.seen import SeenColumn
from appliance.detect.tables import table_of
from stream.config.format_files import Format, users_formats
from stream.config.formats import FORMAT_COLUMNS
from stream.config.groups import group_names
from stream.config.input_section import ParsedInputSection
from stream.config.recognition import plain_text

ROWS = 5
NOT_PARSED = 5
PLACES = 5
ROWS_FOR_METRICS = 2_000
TABLE_SHARE_MIN = 0.9
_COLOUR = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]")
_RECEIPT_TIME = re.compile(r"[| ]rt=")
_W3C_HEADER = "#Fields:"


@dataclass(frozen=True, slots=True)
class _Found:
    """A format that parses enough of the lines, and the keys of an input with this format."""

    fit: Fit
    keys: Mapping[str, object]
    title: str
    notes: tuple[str, ...] = ()
    collector: Mapping[str, object] = field(default_factory=dict)


def detect(
    lines: Sequence[str],
    name: str,
    formats: Mapping[str, Format],
    collector: Mapping[str, object] | None = None,
) -> Detection:
    """Return the format of some lines, with proposed inputs and metrics.

    `name` is the name of the file. `collector` has the keys that the collector's input for this
    file needs, such as its encoding.
    """
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    reason = noise_of(lines)
    if reason is not None:
        return Detection(name, len(lines), reason=reason[0], remedy=reason[1])
    fits = candidates(formats, lines)
    found = _found(formats, lines, fits)
    if found is None:
        why, remedy = nothing_fits(lines, fits)
        return Detection(name, len(lines), reason=why, remedy=remedy)
    with users_formats(formats):
        return _told(lines, name, found, fits, dict(collector or {}))


def _found(
    formats: Mapping[str, Format], lines: Sequence[str], fits: Sequence[Fit]
) -> _Found | None:
    best = winner(fits)
    w3c = _w3c(lines)
    if w3c is not None and (best is None or best.evidence < w3c.fit.evidence - 0.1):
        return w3c
    if best is None or best.specificity[0] < 2:
        table = _table(lines)
        if table is not None and (best is None or best.evidence < table.fit.evidence):
            return table
    if best is None:
        return _guessed(lines)
    partial = PARTIAL_RULES.get(best.format.name)
    given = best.format
    collector: dict[str, object] = {}
    if (rule := partial or best.rule) is not None:
        collector["multiline"] = rule
    keys: dict[str, object] = {"format": given.name}
    notes: tuple[str, ...] = ()
    if given.reader in ("json", "logfmt") and not given.columns:
        keys, notes = _named_fields(given, best)
    elif given.name == "cef":
        timed = sum(_RECEIPT_TIME.search(one.text) is not None for one in best.parsed)
        if timed >= 0.9 * len(best.parsed):
            keys["time"] = "rt"
        else:
            notes = (NO_TIME,)
    return _Found(best, keys, given.title, notes, collector)


def _named_fields(given: Format, best: Fit) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the keys `time` and `columns` for lines whose fields have names."""
    seen = FieldsSeen()
    for event in best.parsed:
        if given.reader == "json":
            seen.add(leaves(json_of(plain_text(event.text)) or {}))
        else:
            pairs = pairs_of(plain_text(event.text))
            seen.add(((key,), value) for key, value in pairs.items())
    times = times_of(seen)
    word = "path" if given.reader == "json" else "key"
    columns, left_out = declarations(seen, given.reader, word, times)
    keys: dict[str, object] = {"format": given.name}
    notes = []
    if given.time is None:
        addresses = [address_of(path, given.reader) for path in times]
        if not addresses:
            notes.append(NO_TIME)
        else:
            keys["time"] = addresses[0] if len(addresses) == 1 else addresses
    if columns:
        keys["columns"] = columns
    if left_out:
        notes.append(f"{left_out} more fields are not proposed as columns: add those that you need")
    return keys, tuple(notes)


NO_TIME = "no field holds a time that the mill reads, so each line counts at its arrival"


def _table(lines: Sequence[str]) -> _Found | None:
    table = table_of(lines)
    if table is None:
        return None
    keys = table.keys
    made = Format.model_validate(
        {
            "name": str(keys["format"]),
            "title": "",
            "reader": "csv",
            "delimiter": "\t" if keys["format"] == "tsv" else keys.get("delimiter"),
            "header": keys.get("header"),
        }
    )
    found = fit(made, lines, None)
    if found.share < TABLE_SHARE_MIN:
        return None
    notes = [] if "time" in keys else [NO_TIME]
    if table.left_out:
        notes.append(
            f"{table.left_out} more fields get no type, so they are text: add those that you need"
            " with another type to `columns`"
        )
    title = "Table with a header" if "header" in keys else "Table without a header"
    return _Found(found, keys, title, tuple(notes))


def _w3c(lines: Sequence[str]) -> _Found | None:
    """Return the format of a W3C log, from the header lines in the log."""
    headers = list(
        dict.fromkeys(
            " ".join(line.removeprefix(_W3C_HEADER).split())
            for line in lines
            if line.startswith(_W3C_HEADER)
        )
    )
    if not headers:
        return None
    try:
        section = ParsedInputSection.model_validate(
            {"topic": "t", "format": "w3c", "header": headers}
        )
        made = Format.model_validate(
            {"name": "w3c", "title": "W3C log", "reader": "w3c", "header": headers}
        )
    except ValueError:
        return None
    found = fit(made, lines, None)
    if found.evidence < CLAIM_MIN:
        return None
    names = list(dict.fromkeys(name for header in headers for name in header.split()))
    read = row_reader(section)
    seen = FieldsSeen()
    columns_of = {one.steps[0]: one.name for one in section.declared()}
    for event in found.parsed:
        row = read(event.text) or {}
        seen.add(((one,), row.get(columns_of.get(one, ""))) for one in names if one in columns_of)
    columns, _ = declarations(seen, "w3c", "field")
    typed = {
        name: said
        for name, said in columns.items()
        if isinstance(said, dict) and said["type"] not in ("string", "timestamp")
    }
    keys: dict[str, object] = {"format": "w3c", "header": headers}
    if typed:
        keys["columns"] = typed
    return _Found(found, keys, "W3C log, with the fields that its header names")


def _guessed(lines: Sequence[str]) -> _Found | None:
    """Return a format whose pattern is derived from the lines."""
    texts = [plain_text(line[:CHARACTERS_MAX]) for line in lines if line.strip()]
    guess = guess_of(texts)
    if guess is None:
        return None
    made = Format.model_validate(
        {"name": "regex", "title": "", "reader": "regex", "pattern": guess.pattern}
    )
    single = fit(made, lines, None)
    rule: Rule = {"start": guess.start}
    found = single if single.share == 1.0 else fit(made, lines, rule)
    continued = [line for line in _rest(single) if line.startswith((" ", "\t")) or not line.strip()]
    traces = bool(likely_presets(_rest(single)))
    explained = single.share + (len(continued) / len(lines)) + (0.3 if traces else 0.0)
    if single.share < 0.1 or found.evidence < CLAIM_MIN or explained < CLAIM_MIN + 0.1:
        return None
    if not continued and not traces:
        found = single
    keys: dict[str, object] = {"format": "regex", "pattern": guess.pattern}
    keys["time"] = {"column": "ts", "layout": guess.layouts[0]} if guess.layouts else "ts"
    typed = {name: one for name, one in guess.types.items() if one != "string"}
    if typed:
        keys["columns"] = {
            name: {"type": one} if one == "timestamp" else one for name, one in typed.items()
        }
    notes = ["the format is a proposal: rename its groups, or move it into configs/formats"]
    if guess.is_ambiguous:
        notes.append(
            "days and months of these dates cannot be told apart, so they are not read until"
            ' `time` has a layout: {column: ts, layout: "%d/%m/%Y %H:%M:%S"}'
        )
    collector: dict[str, object] = {"multiline": found.rule} if found.rule is not None else {}
    return _Found(found, keys, "Lines with a time, by a proposed pattern", tuple(notes), collector)


def _rest(of: Fit) -> list[str]:
    return [event.text for event in of.failed]


def _told(
    lines: Sequence[str],
    file: str,
    found: _Found,
    fits: Sequence[Fit],
    collector: dict[str, object],
) -> Detection:
    """Return the detection of a format that was found: its columns, sample rows, the lines that it
    does not parse, and the proposed configuration."""
    best = found.fit
    name = name_of(file)
    section = ParsedInputSection.model_validate({"topic": "logs.t", **found.keys})
    read = row_reader(section)
    types = _types(section)
    seen = {column: SeenColumn() for column in types}
    shown: list[Row] = []
    for event in _spread(best):
        row = read(event)
        if row is None:
            continue
        if len(shown) < ROWS:
            shown.append(row)
        for column, text in row.items():
            if column in seen:
                seen[column].add(text)
    if any(_COLOUR.search(line) for line in lines):
        collector["strip_ansi"] = True
    types_of_metrics = {column: one for column, one in types.items() if column != "time"}
    failed = best.failed
    second = next(
        (
            (one.format.name, one.share)
            for one in fits
            if one.format.name != best.format.name and one.evidence >= RUNNER_UP_MIN
        ),
        None,
    )
    detection = Detection(
        file,
        len(lines),
        str(found.keys["format"]),
        found.title,
        best.share,
        _shown_columns(best.format, types, shown),
        tuple(shown),
        tuple(NotParsed(event.first, event.text) for event in failed[:NOT_PARSED]),
        len(failed),
        runner_up=second,
        notes=found.notes,
        proposal=proposal_of(
            name, found.keys, {**found.collector, **collector}, types_of_metrics, seen
        ),
    )
    return replace(detection, multiline=_multiline(found))


def _types(section: ParsedInputSection) -> dict[str, str]:
    """Return the columns of a line with their types. If the line has a time, `time` comes first."""
    own = FORMAT_COLUMNS[section.line_reader]
    has_time = section.time is not None or section.line_reader in (
        "combined", "common", "syslog", "w3c"
    )  # fmt: skip
    columns = section.declared()
    if section.pattern is not None:
        groups = group_names(section.pattern)
        columns.sort(key=lambda one: groups.index(str(one.steps[0])))
    declared = {one.name: one.type for one in columns}
    return {**({"time": "timestamp"} if has_time else {}), **own, **declared}


def _shown_columns(
    given: Format, types: Mapping[str, str], rows: Sequence[Row]
) -> tuple[ShownColumn, ...]:
    abouts = {name: column.about for name, column in given.columns.items()}
    return tuple(
        ShownColumn(name, one, "time of the line" if name == "time" else abouts.get(name, ""))
        for name, one in types.items()
    )


def _spread(best: Fit) -> list[str]:
    """Return the first events and a sample of the later ones."""
    texts = [event.text for event in best.parsed]
    if len(texts) <= ROWS_FOR_METRICS:
        return texts
    step = len(texts) // (ROWS_FOR_METRICS - ROWS)
    return [*texts[:ROWS], *texts[ROWS::step]]


def _multiline(found: _Found) -> Multiline | None:
    """Return the events that have several lines, with the rule that joins their lines. None if
    there are no such events."""
    best = found.fit
    rule = found.collector.get("multiline")
    long = [event for event in best.events if event.size > 1]
    if rule is None and not long:
        return None
    return Multiline(rule, len(long), tuple(stretches(best.events, PLACES)))
