"""The snapshot as Prometheus metrics. Unknown values are left out, never written as 0."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitor.api.change_metrics import change_metrics
from monitor.api.collectors import collector_metrics
from monitor.api.group_metrics import group_metrics
from monitor.state.partition_health import health_of
from monitor.state.snapshot import Snapshot
from monitor.views.clusters import ClusterView, cluster_row
from monitor.views.stages import NOW, STAGES, stage_series, window_values

MILLISECOND = 0.001

PIECE_LENGTH = 1 << 18
"""The size of the pieces in which the text is sent. Each piece is rendered in a thread."""

STREAM_FAMILIES: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("stream_busy_share", "Share of the last minute with a batch in hand", "", {"": "busy"}),
    ("stream_cells_per_second", "Cells made or changed", "", {"": "cells"}),
    ("stream_batches_per_second", "Batches counted", "", {"": "batches"}),
    (
        "line_seconds",
        "From the stamp of a live line's record until its number is in the sinks, last minute",
        "quantile",
        {"0.5": "line_p50_s", "0.99": "line_p99_s"},
    ),
    (
        "stage_busy_share",
        "Share of the last minute that a stage of batches took",
        "stage",
        {stage: stage_series(stage, "busy") for stage in STAGES},
    ),
    (
        "stage_batch_seconds",
        "What a stage takes of a batch, mean of the last minute",
        "stage",
        {stage: stage_series(stage, "ms") for stage in STAGES},
    ),
)
"""The name, help text and label of a family, and the series for each value of the label."""


class SnapshotMetrics(Collector):
    """Renders one snapshot without its groups. Each scrape makes a new object, so all values of a
    scrape come from the same polling cycle.
    """

    def __init__(self, snapshot: Snapshot, clusters: Sequence[ClusterView] = ()) -> None:
        self._snapshot = snapshot
        self._clusters = clusters

    def collect(self) -> Iterable[Metric]:
        """Yield the families of this snapshot."""
        yield from self._topics()
        yield from self._cluster()
        yield from self._parts()
        yield from self._alerts()
        yield from self._others()
        yield from collector_metrics(self._snapshot)

    def _topics(self) -> Iterable[Metric]:
        labels = ["topic", "partition"]
        start = GaugeMetricFamily(
            "millrace_log_start_offset", "First readable offset", labels=labels
        )
        end = GaugeMetricFamily("millrace_log_end_offset", "Next offset", labels=labels)
        size = GaugeMetricFamily("millrace_log_size_bytes", "Bytes on disk", labels=labels)
        for topic in self._snapshot.topics:
            for part in topic.partitions:
                key = [topic.name, str(part.partition)]
                for family, value in (
                    (start, part.log_start_offset),
                    (end, part.log_end_offset),
                    (size, part.size_bytes),
                ):
                    if value is not None:
                        family.add_metric(key, value)
        yield from (start, end, size)

    def _cluster(self) -> Iterable[Metric]:
        """Yield the metrics of partitions and of the quorum, if the brokers report them."""
        if self._snapshot.kafka_at_ms != self._snapshot.taken_at_ms:
            return
        health = health_of(self._snapshot.partitions)
        for name, text, value in (
            ("partitions", "Partitions of all topics", health.total),
            (
                "under_replicated_partitions",
                "Partitions with a leader that lack a replica in sync",
                health.under_replicated,
            ),
            (
                "under_min_isr_partitions",
                "Partitions with a leader and too few replicas in sync for acks=all",
                health.under_min_isr,
            ),
            ("offline_partitions", "Partitions without a leader", health.offline),
            ("active_controller_count", "Brokers that act as the controller: 1", self._active()),
        ):
            family = GaugeMetricFamily(f"millrace_{name}", text)
            family.add_metric([], value)
            yield family
        if (quorum := self._snapshot.quorum) is not None:
            lag = GaugeMetricFamily(
                "millrace_quorum_lag_offsets",
                "How far a replica of the metadata log is behind the leader",
                labels=["node_id"],
            )
            for one in quorum.replicas:
                if one.lag is not None:
                    lag.add_metric([str(one.node_id)], one.lag)
            yield lag
        yield from change_metrics(self._snapshot)

    def _active(self) -> int:
        """Count the brokers that report themselves as the active controller, because two at once
        are the fault that this metric reveals.
        """
        told = [
            part.details["is_controller"]
            for part in self._snapshot.parts
            if part.reachable and "is_controller" in part.details
        ]
        if told:
            return sum(one is True for one in told)
        return sum(broker.is_controller for broker in self._snapshot.brokers)

    def _parts(self) -> Iterable[Metric]:
        stuck = GaugeMetricFamily(
            "millrace_part_stuck_seconds",
            "How long the part has finished nothing though it has work; 0 if it is not stuck",
            labels=["part"],
        )
        up = GaugeMetricFamily("millrace_part_up", "1 if the part answers", labels=["part"])
        ready = GaugeMetricFamily("millrace_part_ready", "1 if the part is ready", labels=["part"])
        for part in self._snapshot.parts:
            up.add_metric([part.name], part.reachable)
            ready.add_metric([part.name], part.ready)
            now_ms = self._snapshot.taken_at_ms
            since_ms = part.stuck.since_ms if part.stuck else now_ms
            stuck.add_metric([part.name], (now_ms - since_ms) / 1000)
        brokers = GaugeMetricFamily(
            "millrace_broker_alive", "1 if the broker answers", labels=["node_id"]
        )
        fenced = GaugeMetricFamily(
            "millrace_broker_fenced", "1 if it answers and is out of service", labels=["node_id"]
        )
        for broker in self._snapshot.brokers:
            brokers.add_metric([str(broker.node_id)], broker.alive)
            fenced.add_metric([str(broker.node_id)], broker.fenced)
        at = GaugeMetricFamily("millrace_snapshot_timestamp_seconds", "When this was read")
        at.add_metric([], self._snapshot.taken_at_ms / 1000)
        yield from (up, ready, stuck, brokers, fenced, at)
        config = GaugeMetricFamily(
            "millrace_config_problem", "1 if the saved configuration does not apply"
        )
        config.add_metric([], self._snapshot.config_problem is not None)
        yield config
        yield from self._not_counted()
        yield from self._stages()

    def _stages(self) -> Iterable[Metric]:
        """Yield the stream's own measurements of the last minute."""
        known = window_values(self._snapshot.part("stream"), NOW)
        for name, text, label, series in STREAM_FAMILIES:
            family = GaugeMetricFamily(f"millrace_{name}", text, labels=[label] if label else [])
            found = [(key, known[one]) for key, one in series.items() if one in known]
            for key, value in found:
                scale = MILLISECOND if name == "stage_batch_seconds" else 1
                family.add_metric([key] if label else [], value * scale)
            if found:
                yield family

    def _not_counted(self) -> Iterable[Metric]:
        """Yield MySQL's counts of lines that were not counted in any metric, since the first
        run.
        """
        mysql = self._snapshot.part("mysql")
        for key, text in (
            ("lines_unparsed", "Lines that did not parse"),
            ("lines_set_aside", "Lines that could not be counted and were set aside"),
            ("metric_faults", "Faults of single metrics on lines that others counted"),
        ):
            value = mysql.details.get(key) if mysql is not None and mysql.reachable else None
            if isinstance(value, int):
                family = GaugeMetricFamily(f"millrace_{key}", text)
                family.add_metric([], value)
                yield family

    def _alerts(self) -> Iterable[Metric]:
        """Yield the metrics of alerts, and the values that only the rules of alerts use."""
        snapshot = self._snapshot
        free = GaugeMetricFamily("millrace_disk_free_bytes", "Bytes left", labels=["disk"])
        size = GaugeMetricFamily("millrace_disk_size_bytes", "Bytes in all", labels=["disk"])
        for disk in snapshot.disks:
            free.add_metric([disk.name], disk.free_bytes)
            size.add_metric([disk.name], disk.size_bytes)
        share = GaugeMetricFamily(
            "millrace_unparsed_share", "Share of the last ten minutes' lines that did not parse"
        )
        if snapshot.unparsed_share is not None:
            share.add_metric([], snapshot.unparsed_share)
        still = GaugeMetricFamily(
            "millrace_file_stuck_seconds", "How long nothing of a file is read", labels=["path"]
        )
        for one in snapshot.still_files or ():
            if not one.is_unended:
                still.add_metric([one.path], (snapshot.taken_at_ms - one.since_ms) / 1000)
        firing = GaugeMetricFamily(
            "millrace_alert_open", "1 for each open alert", labels=["rule", "subject"]
        )
        for alert in snapshot.alerts.open:
            firing.add_metric([alert.rule, alert.subject], 1)
        yield from (free, size, share, still, firing)

    def _others(self) -> Iterable[Metric]:
        """Yield the metrics of the other clusters, with the name of the cluster as a label."""
        if not self._clusters:
            return
        up = GaugeMetricFamily(
            "millrace_cluster_up", "1 if a broker of it answered in the last look",
            labels=["cluster"],
        )  # fmt: skip
        families = {
            key: GaugeMetricFamily(f"millrace_cluster_{key}", text, labels=["cluster"])
            for key, text in (
                ("brokers_alive", "Brokers that answer"),
                ("partitions", "Partitions of all topics"),
                ("offline_partitions", "Partitions without a leader"),
                ("under_replicated_partitions", "Partitions that lack a replica in sync"),
            )
        }
        lag = GaugeMetricFamily(
            "millrace_cluster_group_lag_offsets", "Offsets not yet read, where they are known",
            labels=["cluster", "group"],
        )  # fmt: skip
        for view in self._clusters:
            snapshot = view.snapshot
            is_up = snapshot is not None and snapshot.kafka_at_ms == snapshot.taken_at_ms
            up.add_metric([view.name], is_up)
            if snapshot is None or not is_up:
                continue
            row = cluster_row(view)
            for key, family in families.items():
                if isinstance(value := row[key], int):
                    family.add_metric([view.name], value)
            for group in snapshot.groups:
                if group.total.known:
                    lag.add_metric([view.name, group.group_id], group.total.lag)
        yield from (up, *families.values(), lag)


def metric_pieces(snapshot: Snapshot, clusters: Sequence[ClusterView] = ()) -> Iterator[bytes]:
    """Yield the snapshot and the other clusters in Prometheus's text format, in pieces."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotMetrics(snapshot, clusters))
    gathered, length = [], 0
    for piece in group_metrics(snapshot):
        gathered.append(piece)
        length += len(piece)
        if length >= PIECE_LENGTH:
            yield "".join(gathered).encode()
            gathered, length = [], 0
    yield "".join(gathered).encode()
    yield generate_latest(registry)
