"""The changes of the cluster as Prometheus metrics. Unknown values are left out.

This module is pure.
"""

from collections.abc import Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from monitor.state.moves import by_topic
from monitor.state.placement import doubled_racks
from monitor.state.snapshot import Snapshot
from monitor.views import changes


def change_metrics(snapshot: Snapshot) -> Iterable[Metric]:
    """Yield the families about reassignments, brokers, racks, voters and levels."""
    topics = by_topic(snapshot.moves)
    now_ms = snapshot.taken_at_ms
    yield _family(
        "move_to_go_bytes", "Bytes that the moves of a topic still lack", "topic",
        {name: _sum([one.to_go for one in moves]) for name, moves in topics.items()},
    )  # fmt: skip
    yield _family(
        "move_still_seconds", "How long a move of the topic has not advanced, the longest", "topic",
        {
            name: _longest_s([changes.still_ms(one, now_ms) for one in moves])
            for name, moves in topics.items()
        },
    )  # fmt: skip
    brokers = {f"broker-{one.node_id}": one for one in snapshot.brokers}
    yield _family(
        "broker_replicas", "Replicas that are assigned to the broker", "broker",
        {name: one.replicas for name, one in brokers.items()},
    )  # fmt: skip
    yield _family(
        "broker_cordoned", "1 if the broker gets no new replicas", "broker",
        {name: one.facts.is_cordoned for name, one in brokers.items()},
    )  # fmt: skip
    yield _family(
        "broker_out_of_room", "1 if copies pause, because the disk is nearly full", "broker",
        {name: one.facts.is_out_of_room for name, one in brokers.items()},
    )  # fmt: skip
    yield _family(
        "throttle_left", "1 for each throttle that is set although nothing moves", "setting",
        {one.subject: 1 for one in changes.throttles_left(snapshot)},
    )  # fmt: skip
    yield _family(
        "doubled_racks_partitions", "Partitions with two replicas in one rack without need",
        "topic", doubled_racks(snapshot),
    )  # fmt: skip
    yield from _alone("quorum_voters", "Voters of the quorum", changes.voter_count(snapshot))
    behind_ms = changes.behind_ms(snapshot)
    yield from _alone(
        "level_behind_seconds", "How long all brokers have supported a later level",
        None if behind_ms is None else behind_ms / 1000,
    )  # fmt: skip


def _family(name: str, text: str, label: str, values: Mapping[str, float | None]) -> Metric:
    family = GaugeMetricFamily(f"millrace_{name}", text, labels=[label])
    for key, value in values.items():
        if value is not None:
            family.add_metric([key], value)
    return family


def _alone(name: str, text: str, value: float | None) -> Iterable[Metric]:
    if value is not None:
        family = GaugeMetricFamily(f"millrace_{name}", text)
        family.add_metric([], value)
        yield family


def _sum(values: list[int | None]) -> int | None:
    known = [one for one in values if one is not None]
    return sum(known) if len(known) == len(values) else None


def _longest_s(values: list[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return max(known) / 1000 if known else None
