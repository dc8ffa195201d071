"""The state of the cluster and of this broker's replicas, for `/status` and `/metrics`.

The state is computed when it is requested, from the metadata image, the quorum and the partition
states. Ages are in *lived* milliseconds, which do not include stalls of this broker's event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from broker.cluster.metadata import Metadata
from broker.config import BrokerConfig
from broker.controller.leadership import min_in_sync_replicas
from broker.controller.placement import cordoned_brokers
from broker.metadata.broker_image import BrokerImage
from broker.metadata.features import METADATA_VERSION
from broker.metadata.image import MetadataImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import BROKER_RESOURCE
from broker.quorum.quorum_status import QuorumReplicaStatus
from broker.replicas.copies import CopyState
from broker.replicas.replica import Replica
from broker.replication.partition import FollowerRole, LeaderRole, OfflineRole
from broker.replication.progress import FollowerStatus
from broker.replication.tracked import CopyPause
from protocol.reassignment import (
    FOLLOWER_RATE,
    LEADER_RATE,
    effective_min_isr,
    is_under_replicated,
    original_replicas,
)
from protocol.types import NO_NODE, TopicPartition, uuid_to_base64

_ROLES: Mapping[type, str] = {
    LeaderRole: "leader",
    FollowerRole: "follower",
    OfflineRole: "offline",
}

FOLLOWED_ROWS_MAX = 200
"""The largest number of partitions whose followers are listed. Partitions whose followers are
furthest behind are listed first.

A broker can have thousands of partitions. It gets this request every two seconds, and serves no
other request while it answers.
"""

NEEDED_NAMED_MAX = 10
"""The largest number of partitions that are named for each needed broker."""

_THROTTLES: Mapping[str, str] = {
    "leader_rate": LEADER_RATE,
    "follower_rate": FOLLOWER_RATE,
}

Followed = Mapping[TopicPartition, tuple[FollowerStatus, ...]]
"""The state of each follower of the partitions that this broker leads and that have followers."""


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """Kafka's counts for the partitions that this broker leads. `offline` is the number of offline
    partitions in the whole cluster."""

    leads: int
    under_replicated: int
    under_min_isr: int
    offline: int
    follower_lag_max: int
    """The number of offsets by which the slowest follower is behind; 0 if no follower is behind."""


def followed_of(replicas: Iterable[Replica], now_ms: int) -> Followed:
    """Return the followers of all partitions that this broker leads. `now_ms` is lived time."""
    return {
        one.topic_partition: followers
        for one in replicas
        if (followers := one.state.followers(now_ms))
    }


def tally_of(
    image: MetadataImage, replicas: Iterable[Replica], followed: Followed
) -> PartitionCounts:
    """Return the counts of the given replicas and of the cluster's offline partitions."""
    led = [one for one in replicas if one.is_led]
    return PartitionCounts(
        leads=len(led),
        under_replicated=sum(one.state.is_under_replicated for one in led),
        under_min_isr=sum(one.state.is_under_min_isr for one in led),
        offline=sum(
            partition.leader == NO_NODE
            for topic in image.topics.values()
            for partition in topic.partitions
        ),
        follower_lag_max=max(
            (one.lag or 0 for followers in followed.values() for one in followers), default=0
        ),
    )


def copies_details(image: MetadataImage, config: BrokerConfig) -> dict[str, object]:
    """Return how many partitions are under-replicated, and which brokers are needed.

    A broker is needed if a partition would refuse writes with acks=all, or would have no leader,
    when this broker stops. A partition that always needs all its replicas makes no broker needed.
    """
    not_in_sync = 0
    needed: dict[int, list[str]] = {}
    for topic in image.topics.values():
        lagging = [
            (number, one)
            for number, one in enumerate(topic.partitions)
            if is_under_replicated(one.replicas, one.adding_replicas, one.in_sync_replicas)
        ]
        if not lagging:
            continue
        not_in_sync += len(lagging)
        min_isr = min_in_sync_replicas(topic, image, config)
        for number, one in lagging:
            least = effective_min_isr(min_isr, one.replicas, one.adding_replicas)
            if len(original_replicas(one.replicas, one.adding_replicas)) <= least:
                continue
            for node_id in one.replicas:
                if len(set(one.in_sync_replicas) - {node_id}) < least:
                    needed.setdefault(node_id, []).append(f"{topic.name}-{number}")
    return {
        "not_in_sync": not_in_sync,
        "needed": {
            str(node_id): {"count": len(names), "partitions": sorted(names)[:NEEDED_NAMED_MAX]}
            for node_id, names in sorted(needed.items())
        },
    }


def copying_details(
    copies: Mapping[TopicPartition, CopyState], *, is_out_of_room: bool
) -> dict[str, object]:
    """Return how many replicas this broker copies, and why some of them wait."""
    queued = sum(CopyPause.QUEUE in one.waits_for for one in copies.values())
    return {"count": len(copies), "queued": queued, "is_out_of_room": is_out_of_room}


def membership_details(
    metadata: Metadata, node_id: int, config: BrokerConfig, ages_ms: Mapping[int, int]
) -> dict[str, object]:
    """Return the brokers of the cluster, this broker's registration, and the quorum's state.

    `ages_ms` says for how long brokers are registered that registered after this process.
    """
    quorum, image = metadata.quorum, metadata.image
    cordoned = cordoned_brokers(image, config)
    own = image.brokers.get(node_id)
    leader_id = quorum.leader_id
    return {
        "controller_id": None if leader_id == NO_NODE else leader_id,
        "controller_epoch": quorum.epoch,
        "is_controller": metadata.controller.is_active,
        "quorum_role": quorum.role_name,
        "voters": [key.node_id for key in quorum.voters],
        "metadata_offset": image.end_offset,
        "finalised_level": image.features.get(METADATA_VERSION),
        "broker_epoch": None if own is None else own.broker_epoch,
        "is_fenced": own is None or own.is_fenced,
        "is_stopping": own is not None and own.is_stopping,
        "brokers": [
            _broker(one, image, is_cordoned=one.node_id in cordoned)
            | {"registered_ago_ms": ages_ms.get(one.node_id)}
            for _, one in sorted(image.brokers.items())
        ],
        "quorum": _quorum(metadata),
    }


def _broker(broker: BrokerImage, image: MetadataImage, *, is_cordoned: bool) -> dict[str, object]:
    for_all = image.settings(BROKER_RESOURCE, "")
    of_this = image.settings(BROKER_RESOURCE, str(broker.node_id))
    return {
        "node_id": broker.node_id,
        "broker_epoch": broker.broker_epoch,
        "incarnation_id": uuid_to_base64(broker.incarnation_id),
        "directory_ids": [uuid_to_base64(one) for one in broker.directory_ids],
        "listeners": {name: f"{host}:{port}" for name, (host, port) in broker.listeners.items()},
        "rack": broker.rack,
        "is_fenced": broker.is_fenced,
        "is_stopping": broker.is_stopping,
        "is_cordoned": is_cordoned,
        "levels": broker.levels._asdict(),
        **{name: _rate(of_this.get(key, for_all.get(key))) for name, key in _THROTTLES.items()},
    }


def _rate(value: str | None) -> int | None:
    """Return a rate that was set at run time, in bytes a second; None if none was set."""
    return int(value) if value is not None and value.isdecimal() else None


def _quorum(metadata: Metadata) -> dict[str, object] | None:
    """Return the end offset of each replica of the metadata log; None if this node does not lead
    it."""
    status = metadata.quorum.status()
    if status is None:
        return None

    def rows(replicas: Iterable[QuorumReplicaStatus]) -> list[dict[str, object]]:
        return [
            {
                "node_id": one.key.node_id,
                "directory_id": uuid_to_base64(one.key.directory_id),
                "end_offset": one.end_offset if one.end_offset >= 0 else None,
                "lag": status.end_offset - one.end_offset if one.end_offset >= 0 else None,
                "fetched_ago_ms": one.fetched_ago_ms,
                "caught_up_ago_ms": one.caught_up_ago_ms,
            }
            for one in replicas
        ]

    return {
        "leader_id": status.leader_id,
        "epoch": status.epoch,
        "high_watermark": status.committed_offset,
        "voters": rows(status.voters),
        "observers": rows(status.observers),
    }


def partition_details(
    image: MetadataImage,
    replicas: Iterable[Replica],
    followed: Followed,
    copies: Mapping[TopicPartition, CopyState],
) -> dict[str, object]:
    """Return all replicas of this broker, with the state of each that is being copied, and the
    followers of up to `FOLLOWED_ROWS_MAX` partitions.

    `followers_left_out` is the number of partitions led by this broker whose followers are not
    listed.
    """
    worst = sorted(followed, key=lambda one: (_sort_key(followed[one]), one))[:FOLLOWED_ROWS_MAX]
    shown = {one: followed[one] for one in worst}
    return {
        "partition_list": [
            _partition(one, _partition_image(image, one), shown.get(one.topic_partition, ()))
            | _copy(copies.get(one.topic_partition))
            for one in sorted(replicas, key=lambda one: one.topic_partition)
        ],
        "followers_left_out": len(followed) - len(shown),
    }


def _copy(copy: CopyState | None) -> dict[str, object]:
    if copy is None:
        return {}
    waits_for = [str(one.name).lower() for one in copy.waits_for]
    return {"copy": {"missing_bytes": copy.missing_bytes, "waits_for": waits_for}}


def _sort_key(followers: Iterable[FollowerStatus]) -> tuple[int, int]:
    """Return the key by which partitions are sorted. Partitions with the most replicas out of sync
    come first, then those with the largest lag."""
    outsiders = [one for one in followers if not one.is_in_sync]
    return -len(outsiders), -max((one.lag or 0 for one in followers), default=0)


def _partition_image(image: MetadataImage, replica: Replica) -> PartitionImage | None:
    """Return the partition in the image; None if its topic has been removed."""
    topic = image.topics.get(replica.topic)
    if topic is None or replica.index >= len(topic.partitions):
        return None
    return topic.partitions[replica.index]


def _partition(
    replica: Replica, seen: PartitionImage | None, followers: Iterable[FollowerStatus]
) -> dict[str, object]:
    log = replica.log
    row: dict[str, object] = {
        "topic": replica.topic,
        "partition": replica.index,
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "high_watermark": log.high_watermark,
        "size_bytes": log.size_bytes,
        "role": _ROLES[type(replica.state.role)],
    }
    if seen is not None:
        row["leader_epoch"] = seen.leader_epoch
        row["partition_epoch"] = seen.partition_epoch
    rows = [
        {
            "node_id": one.node_id,
            "end_offset": one.end_offset,
            "lag": one.lag,
            "caught_up_ago_ms": one.caught_up_ago_ms,
            "is_in_sync": one.is_in_sync,
        }
        for one in followers
    ]
    return row | {"followers": rows} if rows else row
