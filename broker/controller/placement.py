"""Chooses the brokers for new partitions: which may get replicas, and how they are spread.

This module is pure. This module chooses the brokers that may get replicas: those in service that
are not cordoned. A broker that is out of service gets replicas only if there are too few others, so
that topics can be created while a broker restarts. The module `spreading` has the rules by which
the replicas are spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from broker.config import BrokerConfig
from broker.controller.spreading import PlacementCounts, Racks, spread
from broker.metadata.image import MetadataImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import BROKER_RESOURCE
from protocol.errors import ApiError, ErrorCode


class ReplicaPlacer:
    """Places the new partitions of one request. Each placed partition is taken into account when
    the next ones are placed."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config
        self._cordoned: Collection[int] | None = None
        self._counts: PlacementCounts | None = None

    @property
    def cordoned(self) -> Collection[int]:
        """The brokers that get no new replicas."""
        if self._cordoned is None:
            self._cordoned = cordoned_brokers(self._image, self._config)
        return self._cordoned

    def candidates(self, replication_factor: int) -> Racks:
        """Return the brokers for new partitions, with their racks.

        Raises INVALID_REPLICATION_FACTOR if there are too few.
        """
        brokers = self._image.brokers
        cordoned = self.cordoned
        active = [one for one in brokers.values() if one.is_active and one.node_id not in cordoned]
        if 1 <= replication_factor <= len(active):
            return {one.node_id: one.rack for one in active}
        away = [
            one for one in brokers.values() if not one.is_active and one.node_id not in cordoned
        ]
        if not 1 <= replication_factor <= len(active) + len(away):
            note = f", {len(cordoned)} of them cordoned" if cordoned else ""
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor is {replication_factor}, but the cluster has {len(brokers)} "
                f"brokers{note}",
            )
        # Prefer the brokers that will probably be back first: those in a controlled shutdown,
        # because they often restart, and then those that registered last.
        away.sort(key=lambda one: (one.is_fenced, -one.broker_epoch))
        chosen = [*active, *away[: replication_factor - len(active)]]
        return {one.node_id: one.rack for one in chosen}

    def place(
        self,
        racks: Racks,
        count: int,
        replication_factor: int,
        existing: Iterable[PartitionImage] = (),
    ) -> list[list[int]]:
        """Return the replicas of `count` new partitions of a topic with these `existing` ones.

        Raises INVALID_REPLICATION_FACTOR if a partition would have no leader.
        """
        if not is_led_by_any(racks, self._image):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {replication_factor} needs the brokers {sorted(racks)}, but "
                "none of them is in service: start one",
            )
        if self._counts is None:
            topics = self._image.topics.values()
            self._counts = _counts_of(one for topic in topics for one in topic.partitions)
        return spread(racks, count, replication_factor, _counts_of(existing), self._counts)


def _counts_of(partitions: Iterable[PartitionImage]) -> PlacementCounts:
    """Return the replica counts of these partitions. A partition that is being reassigned is
    counted with its future replicas."""
    counts = PlacementCounts()
    for replicas, number in Counter(one.target_replicas for one in partitions).items():
        counts.add(replicas, number)
    return counts


def cordoned_brokers(image: MetadataImage, config: BrokerConfig) -> frozenset[int]:
    """Return the brokers that get no new replicas (KIP-1066)."""
    for_all = image.settings(BROKER_RESOURCE, "")
    return frozenset(
        node_id
        for node_id in image.brokers
        if config.with_dynamic(
            for_all, image.settings(BROKER_RESOURCE, str(node_id))
        ).cordoned_log_dirs
    )


def is_led_by_any(replicas: Iterable[int], image: MetadataImage) -> bool:
    """Return True if any of these replicas is on a broker in service, so that the partition has a
    leader."""
    return any(image.brokers[one].is_active for one in replicas)


def check_assignment(
    replicas: Sequence[int], image: MetadataImage, cordoned: Collection[int] = ()
) -> None:
    """Refuse an invalid list of replicas that a client has chosen.

    `cordoned` are the brokers that must not get a replica here.
    """
    if not replicas or len(set(replicas)) != len(replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"found replicas {list(replicas)}, expected at least one broker, and each only once",
        )
    unknown = sorted(set(replicas) - image.brokers.keys())
    if unknown:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the replicas name the brokers {unknown}, which are not registered in this cluster",
        )
    if refused := sorted(set(replicas).intersection(cordoned)):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"brokers {refused} are cordoned: they get no new replicas until you delete their "
            "setting cordoned.log.dirs",
        )
    if not is_led_by_any(replicas, image):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"none of the brokers {list(replicas)} is in service: name another broker",
        )
