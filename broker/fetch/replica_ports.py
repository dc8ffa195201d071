"""The objects that the answers to followers' fetches use.

This module has only data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.metrics.warnings import Warnings
from broker.replicas.copy_limit import CopyLimit
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.world import World


@dataclass(frozen=True, slots=True)
class ReplicaFetchPorts:
    """The objects that `ReplicaFetches` uses."""

    world: World
    replicas: Replicas
    warnings: Warnings
    lived_ms: Callable[[], int]
    """The clock for the progress of followers: the milliseconds in which this broker ran."""
    heard: Callable[[Replica], None]
    """Called when a follower has made progress and can be ready for the ISR (`isr_driver`)."""
    limit: CopyLimit
    """The limit on the copies that this broker sends."""
