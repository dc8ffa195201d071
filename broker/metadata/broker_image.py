"""One registered broker in the cluster's metadata.

This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    """True during a controlled shutdown: the broker leads no partition and is in no ISR."""
    directory_ids: tuple[Uuid, ...] = ()

    @property
    def is_active(self) -> bool:
        """True if the broker may lead partitions and be in sync."""
        return not (self.is_fenced or self.is_stopping)


def registered(record: RegisterBrokerRecord) -> BrokerImage:
    """Return the broker after its registration."""
    return BrokerImage(
        record.broker_id,
        record.incarnation_id,
        record.broker_epoch,
        {one.name: (one.host, one.port) for one in record.end_points},
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        tuple(record.log_dirs),
    )
