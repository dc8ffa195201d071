"""Computes how long a partition had no acknowledgement after a broker was stopped.

This module is pure. All times are seconds of one clock. A producer writes to every partition at a
fixed interval. So during any gap above the interval, nothing could be written to the partition.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.figures import percentile
from bench.measurement import Figures, Values

INTERNAL_DELEGATION = re.compile(
    r" \[(\d+)\]: (delegating|no longer delegated) to broker :0/internal"
)
"""librdkafka's debug lines of context `topic`. It writes them when it takes a partition away from a
broker that no longer leads it, and when it gives the partition to the new leader."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time between two acknowledgements of one partition."""

    partition: int
    began_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Delegated:
    """A move of a partition to librdkafka's `:0/internal`, or from `:0/internal` to a broker."""

    at_s: float
    partition: int
    to_internal: bool


@dataclass(frozen=True, slots=True)
class Outage:
    """The effect of the stop of one broker on a producer."""

    gap: Gap
    at_internal_s: float
    """The seconds of the gap during which the partition was at librdkafka's `:0/internal`. For such
    a partition, librdkafka looks for a leader whenever metadata arrives, and otherwise once a
    second."""

    was_controller: bool


def longest_gap(since_s: float, acks: Iterable[tuple[float, int]], partitions: int) -> Gap:
    """Return the longest gap of any partition from `since_s` on.

    `acks` has the time and partition of each acknowledgement, in ascending order. The time after a
    partition's last acknowledgement is not a gap, because the caller waits until all partitions are
    served. Raises ValueError if a partition has no acknowledgement.
    """
    latest = dict.fromkeys(range(partitions), since_s)
    silent = set(latest)
    longest = Gap(0, since_s, 0.0)
    for at_s, partition in acks:
        if at_s < since_s:
            continue
        silent.discard(partition)
        if at_s - latest[partition] > longest.seconds:
            longest = Gap(partition, latest[partition], at_s - latest[partition])
        latest[partition] = at_s
    if silent:
        raise ValueError(
            "expected an acknowledgement from every partition, found none from the partitions "
            f"{sorted(silent)}"
        )
    return longest


def delegated(at_s: float, text: str) -> Delegated | None:
    """Return the move that a line of librdkafka's log reports; None if it reports no move."""
    found = INTERNAL_DELEGATION.search(text)
    if found is None:
        return None
    return Delegated(at_s, int(found[1]), found[2] == "delegating")


def at_internal_s(gap: Gap, events: Iterable[Delegated]) -> float:
    """Return how many seconds of a gap the partition was at `:0/internal`. Events must be
    ascending."""
    end_s = gap.began_s + gap.seconds
    return sum(
        max(0.0, min(until_s, end_s) - max(from_s, gap.began_s))
        for from_s, until_s in _spans(gap.partition, events, end_s)
    )


def _spans(
    partition: int, events: Iterable[Delegated], end_s: float
) -> Iterator[tuple[float, float]]:
    """Return the spans during which a partition was at `:0/internal`.

    librdkafka reports the same move to `:0/internal` several times, so only the first report starts
    a span.
    """
    from_s: float | None = None
    for one in events:
        if one.partition != partition:
            continue
        if one.to_internal:
            from_s = one.at_s if from_s is None else from_s
        elif from_s is not None:
            yield from_s, one.at_s
            from_s = None
    if from_s is not None:
        yield from_s, end_s


def most_led(leaders: Mapping[int, int]) -> int:
    """Return the id of the broker that leads the most partitions; of several such brokers, the
    lowest id.

    `leaders` maps each partition to its leader. Raises ValueError if no partition has a leader.
    """
    counts: dict[int, int] = {}
    for leader in leaders.values():
        counts[leader] = counts.get(leader, 0) + 1
    return min(counts, key=lambda node_id: (-counts[node_id], node_id))


def figures(outages: Sequence[Outage]) -> Figures:
    """Return the figures over all outages."""
    gaps_s = sorted(one.gap.seconds for one in outages)
    longest = max(outages, key=lambda one: one.gap.seconds)
    return {
        "p50_s": percentile(gaps_s, 0.5),
        "p99_s": percentile(gaps_s, 0.99),
        "max_s": longest.gap.seconds,
        "max_at_internal_s": longest.at_internal_s,
    }


def values(outages: Sequence[Outage]) -> Values:
    """Return the figures of every outage, in the order of the outages."""
    return {
        "gap_s": [one.gap.seconds for one in outages],
        "at_internal_s": [one.at_internal_s for one in outages],
        "was_controller": [float(one.was_controller) for one in outages],
    }
