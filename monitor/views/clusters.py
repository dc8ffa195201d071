"""The state of the other clusters that the page shows, each as one row.

This module is pure. A cluster that does not answer keeps its last known state, with the time of
that state.
"""

from dataclasses import dataclass

from monitor.lag.reader_status import SEVERITY
from monitor.state.partition_health import health_of
from monitor.state.snapshot import GroupView, Snapshot, TopicView
from monitor.views import render

GROUPS_SHOWN_MAX = 200
TOPICS_SHOWN_MAX = 500


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The state of a further cluster that the monitor shows.

    `snapshot` is None until the first poll is complete.
    """

    name: str
    bootstrap_servers: str
    snapshot: Snapshot | None
    level: str
    badge: str
    says: str

    @property
    def is_known(self) -> bool:
        """True if one of the cluster's brokers has ever answered."""
        return self.snapshot is not None and self.snapshot.kafka_at_ms is not None

    @property
    def brokers(self) -> str:
        """The number of brokers that answer, as text."""
        if self.snapshot is None or not self.is_known:
            return render.UNKNOWN
        alive = sum(one.alive for one in self.snapshot.brokers)
        return f"{alive} of {len(self.snapshot.brokers)}"

    @property
    def groups(self) -> list[GroupView]:
        """The cluster's groups, worst first."""
        found = list(self.snapshot.groups) if self.snapshot is not None else []
        return sorted(
            found,
            key=lambda one: (-SEVERITY[one.judged.status], -one.total.lag, one.group_id),
        )

    @property
    def topics(self) -> list[TopicView]:
        """The cluster's topics by name, internal ones last."""
        found = list(self.snapshot.topics) if self.snapshot is not None else []
        return sorted(found, key=lambda one: (one.internal, one.name))

    @property
    def worst(self) -> GroupView | None:
        """The group in the worst state; None if no group has anything to read."""
        return next((one for one in self.groups if one.total.known), None)


def cluster_view(name: str, bootstrap_servers: str, snapshot: Snapshot | None) -> ClusterView:
    """Return the view of a cluster from its own sampler's latest snapshot."""
    level, badge, says = _state(snapshot)
    return ClusterView(name, bootstrap_servers, snapshot, level, badge, says)


def _state(snapshot: Snapshot | None) -> tuple[str, str, str]:
    if snapshot is None:
        return "unknown", "measuring", "It is asked for the first time."
    if snapshot.kafka_at_ms != snapshot.taken_at_ms:
        why = "; ".join(error.text for error in snapshot.errors) or "no broker answers"
        if snapshot.kafka_at_ms is None:
            return "bad", "away", f"{why}. It has never answered."
        age = render.duration(snapshot.taken_at_ms - snapshot.kafka_at_ms)
        return "bad", "away", f"{why}. What is shown of it is {age} old."
    health = health_of(snapshot.partitions)
    down = [str(one.node_id) for one in snapshot.brokers if not one.alive]
    if health.offline:
        return "bad", "offline partitions", health.meaning
    if down:
        return "bad", "broker down", f"Down: {', '.join(down)}. {health.meaning}"
    if health.under_min_isr or health.under_replicated:
        return "warn", "under-replicated", health.meaning
    return "good", "up", health.meaning or "It has no topics."


def cluster_row(view: ClusterView) -> dict[str, object]:
    """Return one cluster as a row of the API."""
    snapshot = view.snapshot if view.is_known else None
    health = None if snapshot is None else health_of(snapshot.partitions)
    worst = view.worst
    return {
        "cluster": view.name,
        "bootstrap_servers": view.bootstrap_servers,
        "state": view.badge,
        "says": view.says,
        "cluster_id": None if snapshot is None else snapshot.cluster_id,
        "answered_at_ms": None if snapshot is None else snapshot.kafka_at_ms,
        "brokers": None if snapshot is None else len(snapshot.brokers),
        "brokers_alive": None
        if snapshot is None
        else sum(broker.alive for broker in snapshot.brokers),
        "topics": None if snapshot is None else len(snapshot.topics),
        "partitions": None if health is None else health.total,
        "offline_partitions": None if health is None else health.offline,
        "under_replicated_partitions": None if health is None else health.under_replicated,
        "groups": None if snapshot is None else len(snapshot.groups),
        "worst_group": None if worst is None else worst.group_id,
        "worst_group_lag": None if worst is None else worst.total.lag,
    }
