"""One registered broker, as the metadata log describes it, and its directories.

This module is pure. `image` has the brokers of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.metadata.features import METADATA_VERSION, UNNAMED, LevelRange, ranges_of
from broker.metadata.records import RegisterBrokerRecord
from protocol.types import Uuid


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One registered broker. `listeners` maps a listener's name to the broker's advertised address.

    `directory_ids` are its log directories; empty if the record of the broker has none.
    """

    node_id: int
    incarnation_id: Uuid
    broker_epoch: int
    listeners: Mapping[str, tuple[str, int]]
    rack: str | None
    is_fenced: bool
    is_stopping: bool = False
    """True during a controlled shutdown: the broker leads no partition and is not in sync for
    any."""
    directory_ids: tuple[Uuid, ...] = ()
    features: Mapping[str, LevelRange] = field(default_factory=dict)
    """The levels that the broker supports, by feature."""

    @property
    def levels(self) -> LevelRange:
        """The levels of the metadata log that the broker supports."""
        return self.features.get(METADATA_VERSION, UNNAMED)

    @property
    def is_active(self) -> bool:
        """True if the broker may lead partitions and be in sync."""
        return not (self.is_fenced or self.is_stopping)


def registered_broker(record: RegisterBrokerRecord) -> BrokerImage:
    """Return the broker that a registration describes."""
    return BrokerImage(
        record.broker_id,
        record.incarnation_id,
        record.broker_epoch,
        {one.name: (one.host, one.port) for one in record.end_points},
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        tuple(record.log_dirs),
        ranges_of(record.features),
    )


def directories_for(
    replicas: Sequence[int], brokers: Mapping[int, BrokerImage], known: Mapping[int, Uuid]
) -> tuple[Uuid, ...]:
    """Return the directories of replicas, in their order; empty if one of them is unknown.

    `known` has directories by node id. For a replica that is not in `known`, this is the first
    directory of its broker. It is unknown if the broker registered without directories or is not
    registered any more.
    """
    found: list[Uuid] = []
    for node_id in replicas:
        broker = brokers.get(node_id)
        if node_id in known:
            found.append(known[node_id])
        elif broker is not None and broker.directory_ids:
            found.append(broker.directory_ids[0])
        else:
            return ()
    return tuple(found)
