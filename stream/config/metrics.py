"""Metrics in the form that `stream` computes with: slices, defaults, and definition hashes.

This module is pure and needs no JVM. A metric's *slice* is the period for which a batch is folded
to one cell per key. The sinks add each slice to every configured window that contains it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from sinks.local_time import LocalZone
from sinks.rows import MetricDefinition
from stream.config.expression import column_tokens, reads_otherwise_in_spark
from stream.config.format_files import shipped_input
from stream.config.input_section import ParsedInputSection
from stream.config.sections import MetricSection
from stream.config.settings import StreamSection
from stream.config.windows import KEEP_MYSQL, KEEP_REDIS, SLICE_S, kept_s, window_s
from stream.config.zones import window_zone

HASH_BYTES = 16

# The version of the rules for text literals (decision 0113); version 1 was Spark's own rules.
LITERALS_VERSION = 2

_LATER_KEYS = ("comment", "escape", "header", "reader")
"""The keys of an input that earlier versions of the stream did not have."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with all defaults applied: its section, and its definition for the sinks."""

    section: MetricSection
    inputs: tuple[str, ...]
    key: tuple[str, ...]
    definition: MetricDefinition

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def slice_s(self) -> int:
        return self.definition.slice_s


def resolve_metrics(section: StreamSection) -> tuple[Metric, ...]:
    """Return all metrics of a checked section, in the order of the file."""
    return tuple(_resolve(metric, section) for metric in section.metrics)


def slice_of(windows_s: Sequence[int]) -> int:
    """Return the size of a slice: the greatest common divisor of the windows, at least 10 s.

    Return 0 if the only window is `all`, which has no beginning.
    """
    sizes = [size for size in windows_s if size]
    return max(SLICE_S, math.gcd(*sizes)) if sizes else 0


def definition_hash(
    metric: MetricSection,
    inputs: Mapping[str, ParsedInputSection],
    windows_s: Sequence[int],
    zone: LocalZone | None = None,
) -> bytes:
    """Return a hash of the settings that give a metric its meaning: inputs, filter, key, measure.

    The hash includes only those declared columns that the metric uses. So it does not change when a
    user declares a column for another metric, or changes the order of windows. `literals` is added
    only for an expression with a literal that older versions read by Spark's rules, because only
    its meaning has changed.
    """
    meaning: dict[str, object] = {
        "from": [_input_meaning(metric, inputs[name]) for name in sorted(metric.from_)],
        "where": metric.where,
        "key": list(metric.key),
        "measure": metric.measure,
        "value": metric.value,
        "windows": sorted(windows_s),
    }
    if zone is not None:
        # Without a zone the key is left out, so metrics from before this key keep their hash.
        meaning["tz"] = zone.name
    expressions = (metric.where, metric.value)
    if any(text is not None and reads_otherwise_in_spark(text) for text in expressions):
        meaning["literals"] = LITERALS_VERSION
    text = json.dumps(meaning, sort_keys=True, ensure_ascii=False)
    return blake2b(text.encode(), digest_size=HASH_BYTES).digest()


def _resolve(metric: MetricSection, section: StreamSection) -> Metric:
    windows_s = tuple(window_s(text) for text in metric.windows or section.defaults.windows)
    zone = window_zone(_tz(metric, section), windows_s)
    columns = section.from_[metric.from_[0]].column_types()
    spelling = {column.lower(): column for column in columns}
    key = tuple(spelling[column.lower()] for column in metric.key)
    keeps = [keep for keep in (section.defaults.keep, metric.keep) if keep is not None]
    definition = MetricDefinition(
        name=metric.name,
        key_columns=key,
        measure=metric.measure,
        windows_s=windows_s,
        slice_s=slice_of(windows_s),
        keep_redis_s=kept_s(KEEP_REDIS, [keep.redis for keep in keeps], windows_s),
        keep_mysql_s=kept_s(KEEP_MYSQL, [keep.mysql for keep in keeps], windows_s),
        top=metric.top,
        max_keys=metric.max_keys or section.defaults.max_keys,
        definition_hash=definition_hash(metric, section.from_, windows_s, zone),
        topics=tuple(sorted(section.from_[name].topic for name in metric.from_)),
        zone=zone,
    )
    return Metric(metric, metric.from_, key, definition)


def _tz(metric: MetricSection, section: StreamSection) -> str:
    """Return the zone in which a metric's days begin.

    It is the metric's own `tz`, or the default, or the zone of its inputs if they have the same.
    Otherwise it is UTC.
    """
    said = metric.tz or section.defaults.tz
    zones = {section.from_[name].tz for name in metric.from_}
    return said or (zones.pop() if len(zones) == 1 else "UTC")


def _input_meaning(metric: MetricSection, section: ParsedInputSection) -> dict[str, object]:
    columns = list(section.column_types())
    named = {column.lower() for column in metric.key}
    for text in (metric.where, metric.value):
        if text is not None:
            named |= {token.name.lower() for token in column_tokens(text, columns)}
    declared = [
        [column.name.lower(), list(column.steps), column.type]
        for column in section.declared()
        if column.name.lower() in named
    ]
    return {**_keys_of_its_own(section), "columns": sorted(declared)}


def _keys_of_its_own(section: ParsedInputSection) -> dict[str, object]:
    """Return the keys of an input that are part of a metric's definition.

    Keys that older versions did not have are included only if they are set. Values from the file of
    a shipped format are not included, so a later version can improve that file without changing the
    definition.
    """
    meaning = section.model_dump(mode="json", exclude={"columns"})
    shipped = shipped_input(section.format)
    if shipped is not None:
        usual = ParsedInputSection.model_validate(shipped).model_dump(mode="json")
        for key in shipped:
            if key in meaning and key not in ("topic", "format") and meaning[key] == usual[key]:
                meaning[key] = None
    return {k: v for k, v in meaning.items() if v is not None or k not in _LATER_KEYS}
