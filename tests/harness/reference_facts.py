"""Every name that the reference must document, collected from the code.

A fact is a row that a page must have below a heading. `undocumented` is pure: it takes the texts of
the pages as an argument, so a test can pass texts without a row.
"""

import re
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from pydantic import BaseModel

from appliance.config.findings import parts_of
from appliance.config.model import MillConfig
from sinks.mysql import schema, views
from sinks.redis.link import MergeFacts, meta_fields
from sinks.redis.view import PREFIX, latest_key
from sinks.rows import ALL_WINDOW_S, MetricDefinition
from sinks.truth import WriterGuard
from sinks.values import Measure
from stream.config.format_files import Format, shipped_names
from stream.config.formats import COMMON_COLUMNS, FORMAT_COLUMNS
from stream.config.functions import known_functions
from stream.config.input_section import ParsedInputSection
from tests.harness import ROOT
from tests.harness.reference_tables import MORE_OF_KEY, VALUE_FIELDS

REFERENCE = ROOT / "docs" / "reference"

CONFIGURATION, INPUTS, METRICS = "configuration.md", "inputs.md", "metrics.md"
FORMATS, TABLES, FUNCTIONS = "formats.md", "tables-and-keys.md", "functions.md"

PLACES: Mapping[str, tuple[str, str]] = {
    "MillConfig": (CONFIGURATION, "Sections"),
    "appliance.ClusterSection": (CONFIGURATION, "`cluster`"),
    "ClusterSecuritySection": (CONFIGURATION, "`cluster.security`"),
    "TopicSection": (CONFIGURATION, "`topics`"),
    "CollectorSection": (CONFIGURATION, "`collector`"),
    "StreamSection": (CONFIGURATION, "`stream`"),
    "ArchiveSection": (CONFIGURATION, "`stream.archive`"),
    "SinksSection": (CONFIGURATION, "`sinks`"),
    "RedisSection": (CONFIGURATION, "`sinks.redis`"),
    "MySqlSection": (CONFIGURATION, "`sinks.mysql`"),
    "SinkTls": (CONFIGURATION, "`sinks.redis.tls` and `sinks.mysql.tls`"),
    "MonitorSection": (CONFIGURATION, "`monitor`"),
    "monitor.ClusterSection": (CONFIGURATION, "`monitor.clusters`"),
    "AlertsSection": (CONFIGURATION, "`monitor.alerts`"),
    "RuleSection": (CONFIGURATION, "`monitor.alerts.rules`"),
    "NetworkSection": (CONFIGURATION, "`network`"),
    "NetworkTls": (CONFIGURATION, "`network.tls`"),
    "SecuritySection": (CONFIGURATION, "`security`"),
    "PortsSection": (CONFIGURATION, "`ports`"),
    "InputSection": (INPUTS, "`collector.inputs`"),
    "MultilineSection": (INPUTS, "Multi-line events"),
    "ParsedInputSection": (INPUTS, "`stream.from`"),
    "ColumnSection": (INPUTS, "Columns"),
    "TimeSection": (INPUTS, "When a line was"),
    "MetricSection": (METRICS, "`stream.metrics`"),
    "DefaultsSection": (METRICS, "`stream.defaults`"),
    "KeepSection": (METRICS, "How long windows are kept"),
    "Format": (FORMATS, "Formats of your own"),
    "FormatColumn": (FORMATS, "Columns of a format"),
}
"""The page and the heading under which the keys of each model are described."""


class Fact(NamedTuple):
    """A name that the reference documentation must list in a table row, below `heading` on `page`.

    `kind` is the kind of thing that has the name, for example a key or a function.
    """

    kind: str
    page: str
    heading: str
    name: str


def label_of(model: type[BaseModel]) -> str:
    """Return the name of a model. Two models are called ClusterSection, so put their room first."""
    room = model.__module__.partition(".")[0]
    return f"{room}.{model.__name__}" if model.__name__ == "ClusterSection" else model.__name__


@cache
def models() -> dict[str, type[BaseModel]]:
    """Return all models of the configuration file and of a format's file, by label."""
    found: dict[str, type[BaseModel]] = {}
    waiting: list[object] = [MillConfig, Format]
    while waiting:
        for part in parts_of(waiting.pop()):
            if isinstance(part, type) and issubclass(part, BaseModel):
                if label_of(part) not in found:
                    found[label_of(part)] = part
                    waiting += [field.annotation for field in part.model_fields.values()]
            else:
                waiting += typing.get_args(part)
    return found


def format_input(name: str) -> ParsedInputSection | None:
    """Return an input that has only `format: NAME`; None if the format needs more keys."""
    needs_more = ("regex", "w3c")
    if name in needs_more:
        return None
    return ParsedInputSection.model_validate({"topic": "any", "format": name})


def columns_of(name: str) -> dict[str, str]:
    """Return the columns that a format has even if the user declares none."""
    given = format_input(name)
    return {} if given is None else given.own_columns()


def format_names() -> list[str]:
    """Return the names of all formats, with the names of the readers first."""
    return list(dict.fromkeys([*FORMAT_COLUMNS, *shipped_names()]))


def tables() -> dict[str, list[str]]:
    """Return the columns of each table of MySQL, and those of the view `windows`."""
    found = {}
    for text in schema.TABLES:
        match = re.match(r"CREATE TABLE IF NOT EXISTS (\w+) \((.*)\)\Z", text, re.DOTALL)
        if match is not None:
            columns = [part.split()[0].strip("`") for part in _parts(match[2])]
            found[match[1]] = [one for one in columns if one not in ("PRIMARY", "KEY", "UNIQUE")]
    found["windows"] = _selected(views.WINDOWS_VIEW)
    return found


def view_columns() -> list[str]:
    """Return the columns of the views of metrics, of all measures, except the key columns."""
    found: list[str] = []
    for measure in Measure:
        found += _selected(views.view(_definition(measure)))
    return list(dict.fromkeys(found))


def redis_keys() -> list[str]:
    """Return all keys and channels of Redis: those of windows, and those that the code names.

    A name in the code that ends with a colon is only the beginning of a key.
    """
    source = "".join(path.read_text() for path in sorted((ROOT / "sinks/redis").glob("*.py")))
    named = sorted({f"mill:{name}" for name in re.findall(r"['\"]mill:([a-z_]+:?)['\"]", source)})
    window = f"{PREFIX}<metric>:<size>"
    return [
        window,
        f"{window}:<start>",
        latest_key("<metric>", ALL_WINDOW_S),
        "…:top",
        *(MORE_OF_KEY.get(name, name) for name in named),
    ]


def meta_fields_of_redis() -> list[str]:
    """Return the fields of `mill:meta`."""
    facts_of_merge = MergeFacts(now_ms=0, lines=0, lag=None, changed=())
    return [*meta_fields(WriterGuard("", 0, 0, 0), facts_of_merge)[::2], "rebuilding"]


@cache
def facts() -> tuple[Fact, ...]:
    """Return everything that the reference must document."""
    return tuple(_facts())


def _facts() -> Iterator[Fact]:
    for label, model in models().items():
        page, heading = PLACES[label]
        for name, field in model.model_fields.items():
            yield Fact("key", page, heading, f"`{field.alias or name}`")
    for name in format_names():
        yield Fact("format", FORMATS, "All formats", f"[`{name}`](#{name})")
        for column in columns_of(name):
            yield Fact("column of a format", FORMATS, f"`{name}`", f"`{column}`")
    for column in COMMON_COLUMNS:
        yield Fact("column of a format", FORMATS, "Columns of every line", f"`{column}`")
    for measure in Measure:
        yield Fact("measure", METRICS, "Measures", f"`{measure}`")
    for function in known_functions().values():
        yield Fact("function", FUNCTIONS, function.group, f"`{function.call}`".replace("|", "\\|"))
    for column in view_columns():
        yield Fact("view column", TABLES, "The view of a metric", f"`{column}`")
    for table, columns in tables().items():
        for column in columns:
            yield Fact("table column", TABLES, f"`{table}`", f"`{column}`")
    for key in redis_keys():
        yield Fact("Redis key", TABLES, "Redis keys", f"`{key}`")
    for name in meta_fields_of_redis():
        yield Fact("field", TABLES, "Fields of `mill:meta`", f"`{name}`")
    for name in VALUE_FIELDS:
        yield Fact("field", TABLES, "Fields of a window", f"`{name}`")


def undocumented(pages: Mapping[str, str]) -> list[Fact]:
    """Return the facts that have no row below their heading, given the texts of the pages."""
    rows = {page: dict(_rows(text)) for page, text in pages.items()}
    return [
        fact for fact in facts() if fact.name not in rows.get(fact.page, {}).get(fact.heading, ())
    ]


def _rows(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each heading with the first cells of the rows below it."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for part in re.split(r"^#+ ", prose, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        cells = re.findall(r"^\| ((?:[^|\\]|\\.)+?) \|", body, flags=re.MULTILINE)
        yield heading, cells


def _definition(measure: Measure) -> MetricDefinition:
    return MetricDefinition(
        name="m",
        key_columns=(),
        measure=measure,
        windows_s=(60,),
        slice_s=60,
        keep_redis_s={},
        keep_mysql_s={},
        top=None,
        max_keys=None,
        definition_hash=b"",
        topics=(),
        zone=None,
    )


def _selected(view: str) -> list[str]:
    """Return the names of the columns that a view selects."""
    match = re.search(r"AS SELECT (.*?) FROM ", view, re.DOTALL)
    assert match is not None
    return [part.split()[-1].rpartition(".")[2].strip("`") for part in _parts(match[1])]


def _parts(text: str) -> list[str]:
    """Split a text at the commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
