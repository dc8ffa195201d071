"""Proposes the inputs and three metrics for a log.

This module is pure.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from appliance.detect.detection import Proposal
from appliance.detect.seen import SeenColumn
from stream.config.sections import RESERVED_NAMES

METRICS = 3
NAME = re.compile(r"[a-z][a-z0-9_]{0,30}\Z")
NAME_EXPECTED = "1 to 31 of a-z, 0-9 and _, beginning with a letter"

_METRIC_NAME_MAX = 48
_COLUMN_MAX = 20
PLACES = 6
_KEY_VALUES_MAX = 60
_TEXT_CHARACTERS = 60

# For each kind of metric, the suitable names of columns, the best first. A column matches a name if
# its own name ends with it: `cs_uri_stem` matches `uri_stem`.
_BY = """
    status level severity loglevel log_level error_severity priority outcome result result_type
    termination state method event event_id type code subsystem component module category source
    stream program role unit country host word
"""
_TOP = """
    path url uri uri_stem page endpoint route request logger program client client_ip remote_addr
    c_ip ip src object_key bucket frontend database source unit product user customer statement
    host name
"""
_WHO = "remote_addr client client_ip c_ip ip src user user_id username customer session host"
_DURATIONS = """
    total_ms duration duration_ms time_taken elapsed elapsed_ms latency latency_ms took took_ms
    request_time response_time target_s query_s request_s pause_ms ms us ns seconds millis
    runtime dur rt s
"""
_SIZES = """
    bytes body_bytes_sent bytes_sent sent_bytes sc_bytes size sent received length amount price
    total rows count
"""
_NOT_BY = re.compile(
    r"(?:^|_)(?:id|pid|tid|message|msg|log|line|ident|protocol|referer|time|date|thread|port|query"
    r"|text|tag|trace_id|span_id|request_id)$"
)
_NO_MEASURE = re.compile(
    r"(?:^|_)(?:id|pid|tid|port|status|code|version|thread|line|line_num|number\d*|facility"
    r"|severity|level|priority|substatus|connection|ident|zip|year|win32_status|uptime_s"
    r"|generation|timestamp|time|date|user|customer|order|session|client)$"
)
_NUMERIC = ("int", "bigint", "double")

Metric = dict[str, object]


def name_of(file: str) -> str:
    """Return a name for the input of a file: `app` for `app-2024.log.gz`."""
    base = file.replace("\\", "/").rsplit("/", 1)[-1].lower()
    base = re.split(r"\.(?:log|txt|json|jsonl|csv|tsv|gz|zst|bz2|xz)\b|\.\d", base, maxsplit=1)[0]
    parts = [part for part in re.split(r"[^a-z0-9]+", base) if part and not part.isdigit()]
    words = "_".join(parts).lstrip("0123456789_")[:24].strip("_")
    return words or "log"


def proposal_of(
    name: str,
    keys: Mapping[str, object],
    collector: Mapping[str, object],
    types: Mapping[str, str],
    seen: Mapping[str, SeenColumn],
) -> Proposal:
    """Return the proposal for a log. `keys` has the keys of its input in the stream, `collector`
    those of its input in the collector.
    """
    topic = f"logs.{name}"
    return Proposal(
        name,
        {"paths": [f"watched/{name}/**"], "topic": topic, **collector},
        {"topic": topic, **keys},
        tuple(metrics_of(name, types, seen)),
    )


def metrics_of(name: str, types: Mapping[str, str], seen: Mapping[str, SeenColumn]) -> list[Metric]:
    """Return three metrics that suit the columns. If too few columns are suitable, the remaining
    metrics count lines."""
    there = [column for column in types if column in seen and seen[column].present]
    makers: Sequence[Callable[[], Metric | None]] = (
        lambda: _counted(name, types, seen, there),
        lambda: _ranked(name, types, seen, there, made),
        lambda: _measured(name, types, seen, there),
        lambda: _unique(name, types, seen, there),
        lambda: _metric(name, "lines", measure="count"),
        lambda: _metric(name, "lines_by_file", key="file", measure="count"),
        lambda: _metric(name, "files", measure="unique", value="file"),
    )
    made: list[Metric] = []
    for make in makers:
        if len(made) < METRICS and (metric := make()) is not None:
            made.append(metric)
    return made


def _counted(
    name: str, types: Mapping[str, str], seen: Mapping[str, SeenColumn], there: Sequence[str]
) -> Metric | None:
    """Return a metric that counts lines by a column with few values; None if there is no such
    column.
    """
    few = [
        column
        for column in there
        if types[column] in ("string", "int", "boolean")
        and seen[column].distinct <= _KEY_VALUES_MAX
        and seen[column].characters_mean <= _TEXT_CHARACTERS / 2
        and not _NOT_BY.search(column)
    ]
    best = _best([one for one in few if seen[one].distinct > 1], _BY) or _best(few, _BY)
    best = best or _first(few, lambda one: 1 < seen[one].distinct < seen[one].present)
    return None if best is None else _metric(name, f"by_{_short(best)}", key=best, measure="count")


def _ranked(
    name: str,
    types: Mapping[str, str],
    seen: Mapping[str, SeenColumn],
    there: Sequence[str],
    made: Sequence[Metric],
) -> Metric | None:
    """Return a metric of the most frequent values of a column with many values; None if there is no
    such column.
    """
    taken = {str(metric.get("key")) for metric in made}
    many = [
        column
        for column in there
        if types[column] == "string"
        and column not in taken
        and seen[column].characters_mean <= _TEXT_CHARACTERS
        and seen[column].distinct > 1
        and not _NOT_BY.search(column)
    ]
    best = _best(many, _TOP)
    best = best or _first(many, lambda one: seen[one].distinct < seen[one].present)
    if best is None:
        return None
    return _metric(name, f"top_{_short(best)}", key=best, measure="count", top=10)


def _measured(
    name: str, types: Mapping[str, str], seen: Mapping[str, SeenColumn], there: Sequence[str]
) -> Metric | None:
    """Return a metric of the percentiles of a duration or the sum of a size; None if there is no
    such column.
    """
    numbers = [one for one in there if types[one] in _NUMERIC and not _NO_MEASURE.search(one)]
    duration = _best(numbers, _DURATIONS)
    if duration is not None:
        return _metric(name, _short(duration), measure="percentile", value=_value(duration, seen))
    size = _best(numbers, _SIZES)
    if size is not None:
        return _metric(name, f"{_short(size)}_sum", measure="sum", value=_value(size, seen))
    if numbers:
        return _metric(
            name, f"{_short(numbers[0])}_mean", measure="mean", value=_value(numbers[0], seen)
        )
    return None


def _value(column: str, seen: Mapping[str, SeenColumn]) -> str:
    """Return the expression of a metric's value: the column, rounded if its numbers have more
    decimals than a metric accepts."""
    return f"round({column}, {PLACES})" if seen[column].is_fine else column


def _unique(
    name: str, types: Mapping[str, str], seen: Mapping[str, SeenColumn], there: Sequence[str]
) -> Metric | None:
    several = [one for one in there if seen[one].distinct > 1]
    who = _best(several, _WHO)
    return (
        None if who is None else _metric(name, f"unique_{_short(who)}", measure="unique", value=who)
    )


def _best(columns: Sequence[str], names: str) -> str | None:
    """Return the column whose name ends with the best of these names; None if there is no such
    column."""
    for name in names.split():
        for column in columns:
            if column == name or column.endswith(f"_{name}"):
                return column
    return None


def _metric(name: str, suffix: str, **keys: object) -> Metric:
    full = f"{name}_{suffix.lower()}"[:_METRIC_NAME_MAX].rstrip("_")
    if full in RESERVED_NAMES:
        full = f"{full}_lines"
    return {"name": full, "from": name, **keys}


def _short(column: str) -> str:
    """Return the last words of a column's name, shortened to the length that the name of a metric
    may have."""
    while len(column) > _COLUMN_MAX and "_" in column.strip("_"):
        column = column.strip("_").partition("_")[2]
    return column[:_COLUMN_MAX].strip("_")


def _first(columns: Iterable[str], is_one: Callable[[str], bool]) -> str | None:
    return next((column for column in columns if is_one(column)), None)


def renamed(proposal: Proposal, name: str, paths: Sequence[str] = ()) -> Proposal:
    """Return the same proposal under another name. `paths` has globs that are added to the globs of
    its folder."""
    topic = f"logs.{name}"
    metrics = tuple(
        {
            **metric,
            "name": f"{name}{str(metric['name']).removeprefix(proposal.name)}"[:_METRIC_NAME_MAX],
            "from": name,
        }
        for metric in proposal.metrics
    )
    globs = [f"watched/{name}/**", *paths]
    return Proposal(
        name,
        {**proposal.collector, "paths": globs, "topic": topic},
        {**proposal.stream, "topic": topic},
        metrics,
    )
