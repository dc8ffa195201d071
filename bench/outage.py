"""How long a partition was without an acknowledgement after a broker had ended.

Pure. All moments are seconds of one clock. A producer writes to every partition at a pace, so that
whatever is longer than the pace is a time in which nothing could be written there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.figures import percentile
from bench.measurement import Figures, Values

INTERNAL_DELEGATION = re.compile(
    r" \[(\d+)\]: (delegating|no longer delegated) to broker :0/internal"
)
"""What librdkafka's debug context `topic` says of a partition, when it takes it from a broker that
is not its leader any more, and when it has found another for it."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time between two acknowledgements of one partition."""

    partition: int
    began_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Delegated:
    """A partition was given to librdkafka's `:0/internal`, or taken from it."""

    at_s: float
    partition: int
    to_internal: bool


@dataclass(frozen=True, slots=True)
class Outage:
    """What one end of a broker meant for a producer."""

    gap: Gap
    at_internal_s: float
    """How much of the gap its partition was with no broker but librdkafka's own `:0/internal`, for
    which it looks for a leader when metadata comes and, without any, once a second."""

    was_controller: bool


def longest_gap(since_s: float, acks: Iterable[tuple[float, int]], partitions: int) -> Gap:
    """The longest gap of any partition from `since_s` on; `acks`: moment and partition, ascending.

    Time behind a partition's last acknowledgement does not count: the caller looks until all are
    served. Raises ValueError when a partition has none at all.
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
        raise ValueError(f"partitions without any acknowledgement: {sorted(silent)}")
    return longest


def delegated(at_s: float, text: str) -> Delegated | None:
    """A line of librdkafka's log; None when it tells of something else."""
    found = INTERNAL_DELEGATION.search(text)
    if found is None:
        return None
    return Delegated(at_s, int(found[1]), found[2] == "delegating")


def at_internal_s(gap: Gap, events: Iterable[Delegated]) -> float:
    """How much of a gap its partition was at `:0/internal`; events ascending."""
    end_s = gap.began_s + gap.seconds
    return sum(
        max(0.0, min(until_s, end_s) - max(from_s, gap.began_s))
        for from_s, until_s in _spans(gap.partition, events, end_s)
    )


def _spans(
    partition: int, events: Iterable[Delegated], end_s: float
) -> Iterator[tuple[float, float]]:
    """When it was there; librdkafka tells of one arrival several times."""
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
    """The broker that leads the most partitions, of several the lowest id; `leaders` by partition.

    Raises ValueError when nothing is led.
    """
    counts: dict[int, int] = {}
    for leader in leaders.values():
        counts[leader] = counts.get(leader, 0) + 1
    return min(counts, key=lambda node_id: (-counts[node_id], node_id))


def figures(outages: Sequence[Outage]) -> Figures:
    """Over all of them."""
    gaps_s = sorted(one.gap.seconds for one in outages)
    longest = max(outages, key=lambda one: one.gap.seconds)
    return {
        "p50_s": percentile(gaps_s, 0.5),
        "p99_s": percentile(gaps_s, 0.99),
        "max_s": longest.gap.seconds,
        "max_at_internal_s": longest.at_internal_s,
    }


def values(outages: Sequence[Outage]) -> Values:
    """Every one of them, in the order in which they happened."""
    return {
        "gap_s": [one.gap.seconds for one in outages],
        "at_internal_s": [one.at_internal_s for one in outages],
        "was_controller": [float(one.was_controller) for one in outages],
    }
