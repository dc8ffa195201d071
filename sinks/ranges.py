"""The offsets that each metric has counted, as stored in the table `metric_ranges`.

This module is pure. Metrics can be added to and removed from the configuration while lines arrive.
A change takes effect at the ledger's ends at the time when a driver opens the sinks: lines before
these offsets were counted with the old metrics, later lines with the new ones. A partition without
a row was counted from its first line on.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Ledger = Mapping[tuple[str, int], int]

Topics = Mapping[str, Collection[str]]
"""The topics of each metric. An empty collection means all topics."""


class MetricRange(NamedTuple):
    """A range of a partition's offsets that a metric has counted.

    `end_offset` is None as long as the metric continues to count the partition.
    """

    metric: str
    topic: str
    partition: int
    start_offset: int
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class MetricsChange:
    """The changes when a driver opens the sinks with other metrics than the last driver.

    `rows` must be written over rows of the same start. `resumed` are metrics that were removed for
    a while, so lines are missing in them. `unused` are metrics that were removed before they
    counted any line, so nothing about them needs to be kept.
    """

    rows: tuple[MetricRange, ...]
    resumed: tuple[str, ...]
    unused: tuple[str, ...]


def is_away(name: str, ranges: Iterable[MetricRange]) -> bool:
    """Tell whether a stored metric was removed from the configuration, so it is not counted."""
    own = [one for one in ranges if one.metric == name]
    return bool(own) and all(one.end_offset is not None for one in own)


def change(
    names: Topics, stored: Topics, ranges: Collection[MetricRange], ledger: Ledger
) -> MetricsChange:
    """Return the change from the stored metrics to those of this driver."""
    away = {name for name in stored if is_away(name, ranges)}
    resumed = sorted(away.intersection(names))
    rows = [
        MetricRange(name, topic, partition, end, None)
        for name in [*resumed, *sorted(set(names).difference(stored))]
        for (topic, partition), end in _own(names[name], ledger)
    ]
    starts = {
        (one.metric, one.topic, one.partition): one.start_offset
        for one in ranges
        if one.end_offset is None
    }
    unused: list[str] = []
    for name in sorted(set(stored).difference(names, away)):
        ends = _own(stored[name], ledger)
        if not any(end for _, end in ends):
            unused.append(name)
        rows += [
            MetricRange(name, topic, partition, starts.get((name, topic, partition), 0), end)
            for (topic, partition), end in ends
        ]
    return MetricsChange(tuple(rows), tuple(resumed), tuple(unused))


def _own(topics: Collection[str], ledger: Ledger) -> list[tuple[tuple[str, int], int]]:
    """Return the ledger's entries of these topics, in order."""
    return [
        (place, end) for place, end in sorted(ledger.items()) if not topics or place[0] in topics
    ]


def gap_below(own: Iterable[MetricRange], floor: int) -> tuple[int, int] | None:
    """Return the last missing offsets [start, end) before the present range, from `floor` on.

    `own` are the metric's ranges of one partition. None if nothing is missing.
    """
    high: int | None = None
    for one in sorted(own, key=lambda one: one.start_offset, reverse=True):
        if high is not None and one.end_offset is not None and one.end_offset < high:
            floor = max(floor, one.end_offset)
            break
        high = one.start_offset
    return None if high is None or high <= floor else (floor, high)
