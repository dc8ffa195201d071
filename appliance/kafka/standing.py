"""Collects the state of a cluster: its brokers, its quorum and its partitions.

Kafka's protocol reports addresses, leaders, in-sync replicas and the quorum of every cluster. Only
the `/status` of Millrace's brokers has incarnations, broker epochs, fencing and partition epochs.
For other clusters these values are null. The module is pure, except for `ask`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.kafka.topics import DescribedTopic, PartitionFilter, names, views
from protocol.client.cluster import Cluster
from protocol.client.errors import UnsupportedVersion
from protocol.client.metadata import ClusterMetadata
from protocol.client.quorum_admin import QuorumInfo, QuorumReplica, describe_quorum
from protocol.client.topic_details import PartitionDetails

Row = dict[str, Any]
Details = Mapping[str, Any]
"""The details of one broker's `/status`."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The answers about a cluster.

    `quorum` is None if the cluster has none, or does not report it.
    """

    metadata: ClusterMetadata
    quorum: QuorumInfo | None
    topics: Sequence[DescribedTopic]
    told: Sequence[Details] = ()

    @property
    def newest(self) -> Details:
        """Return the details from the broker that has replayed the most metadata.

        The result is empty if no broker reported details.
        """
        return max(self.told, key=lambda one: one.get("metadata_offset") or 0, default={})

    @property
    def controller_id(self) -> int | None:
        """Return the leader of the quorum; without a quorum, the controller that Metadata names."""
        if self.quorum is not None:
            return self.quorum.leader_id if self.quorum.leader_id >= 0 else None
        named = self.metadata.controller_id
        return named if named >= 0 else None

    def partitions(self) -> Iterator[tuple[DescribedTopic, PartitionDetails]]:
        """Return all partitions, in order."""
        for topic in self.topics:
            for partition in topic.details.partitions:
                yield topic, partition


async def ask(cluster: Cluster, told: Sequence[Details] = ()) -> ClusterState:
    """Ask a cluster for its state. Raises ApiError and ClientError."""
    topics = await views(cluster, await names(cluster))
    try:
        quorum = await describe_quorum(cluster)
    except UnsupportedVersion:
        quorum = None
    return ClusterState(cluster.current, quorum, topics, told)


def counts(standing: ClusterState) -> dict[str, int]:
    """Count the partitions, and those with problems."""
    live = set(standing.metadata.brokers)
    rows = list(standing.partitions())

    def having(problem: PartitionFilter) -> int:
        return sum(problem.has(one, topic.min_isr, live) for topic, one in rows)

    return {
        "topics": len(standing.topics),
        "partitions": len(rows),
        "under_replicated": having(PartitionFilter(under_replicated=True)),
        "under_min_isr": having(PartitionFilter(under_min_isr=True)),
        "offline": having(PartitionFilter(unavailable=True)),
    }


def broker_rows(standing: ClusterState) -> list[Row]:
    """Return one row for each broker that any answer names, including dead brokers."""
    registered = {one["node_id"]: one for one in standing.newest.get("brokers", ())}
    partitions = [one for _, one in standing.partitions()]
    voters = () if standing.quorum is None else standing.quorum.voters
    known = {
        *standing.metadata.brokers,
        *registered,
        *(one.node_id for one in voters),
        *(node_id for one in partitions for node_id in one.replicas),
    }
    return [
        _broker_row(node_id, standing, registered.get(node_id), partitions)
        for node_id in sorted(known)
    ]


def _broker_row(
    node_id: int,
    standing: ClusterState,
    registered: Details | None,
    partitions: Sequence[PartitionDetails],
) -> Row:
    live = standing.metadata.brokers.get(node_id)
    entry = registered or {}
    is_voter = standing.quorum is not None and any(
        one.node_id == node_id for one in standing.quorum.voters
    )
    return {
        "broker": node_id,
        "state": _state(live is not None, registered),
        "address": None if live is None else f"{live.host}:{live.port}",
        "listeners": entry.get("listeners"),
        "rack": live.rack if live is not None else entry.get("rack"),
        "controller": node_id == standing.controller_id,
        "voter": None if standing.quorum is None else is_voter,
        "epoch": entry.get("broker_epoch"),
        "incarnation": entry.get("incarnation_id"),
        "leads": sum(one.leader_id == node_id for one in partitions),
        "replicas": sum(node_id in one.replicas for one in partitions),
        "in_sync": sum(node_id in one.in_sync_replicas for one in partitions),
    }


def _state(is_live: bool, registered: Details | None) -> str:
    """Return a broker's state.

    Metadata lists only brokers in service. For another broker its registration says why it is not
    in service.
    """
    if registered is not None and registered.get("is_stopping"):
        return "stopping"
    if registered is not None and registered.get("is_fenced"):
        return "fenced"
    return "in service" if is_live else "away"


def quorum_row(standing: ClusterState, now_ms: int) -> Row | None:
    """Return the quorum with its replicas; ages in ms at `now_ms`, Unix time."""
    quorum = standing.quorum
    if quorum is None:
        return None

    def rows(replicas: Iterable[QuorumReplica], role: str) -> list[Row]:
        return [
            {
                "node": one.node_id,
                "role": "leader" if one.node_id == quorum.leader_id else role,
                "end_offset": one.log_end_offset,
                "lag": quorum.lag(one),
                "fetched_ago_ms": _ago(one.fetched_at_ms, now_ms),
                "caught_up_ago_ms": _ago(one.caught_up_at_ms, now_ms),
            }
            for one in replicas
        ]

    return {
        "leader": standing.controller_id,
        "epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "replicas": [*rows(quorum.voters, "voter"), *rows(quorum.observers, "observer")],
    }


def _ago(moment_ms: int | None, now_ms: int) -> int | None:
    # The clocks of two machines can differ, so do not let an age be negative.
    return None if moment_ms is None else max(now_ms - moment_ms, 0)


def partition_rows(standing: ClusterState) -> list[Row]:
    """Return one row for each partition: leader, epochs, in-sync replicas, eligible leader
    replicas."""
    epochs: dict[tuple[str, int], int] = {}
    for details in sorted(standing.told, key=lambda one: one.get("metadata_offset") or 0):
        for row in details.get("partition_list", ()):
            if "partition_epoch" in row:
                epochs[row["topic"], row["partition"]] = row["partition_epoch"]
    return [
        {
            "topic": topic.name,
            "partition": one.partition,
            "leader": one.leader_id,
            "leader_epoch": one.leader_epoch,
            "partition_epoch": epochs.get((topic.name, one.partition)),
            "replicas": list(one.replicas),
            "in_sync": list(one.in_sync_replicas),
            "elr": _listed(one.eligible_leader_replicas),
            "last_known_elr": _listed(one.last_known_elr),
        }
        for topic, one in standing.partitions()
    ]


def _listed(nodes: Iterable[int] | None) -> list[int] | None:
    return None if nodes is None else list(nodes)
