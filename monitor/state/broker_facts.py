"""The facts about brokers that matter while the cluster changes: rack, levels, cordon, copies.

This module has only data classes. A value that no broker reports is None.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The facts about one broker beside its address and state. Rates are in bytes a second.

    `finalised` is the level of the metadata log that this broker knows, and `supported` the oldest
    and the newest level at which it runs.
    """

    rack: str | None = None
    version: str | None = None
    started_at_ms: int | None = None
    finalised: int | None = None
    supported: tuple[int, int] | None = None
    is_cordoned: bool | None = None
    leader_rate: int | None = None
    follower_rate: int | None = None
    copies: int | None = None
    """The number of replicas that this broker copies."""
    queued: int | None = None
    """The number of these replicas that wait until other copies are done."""
    is_out_of_room: bool | None = None
    log_bytes: int | None = None


NO_FACTS = BrokerFacts()


@dataclass(frozen=True, slots=True)
class Leaving:
    """A cordoned broker: the replicas that are left on it, and the most that it had since the
    cordon.

    `is_emptied` is true while a reassignment takes replicas away from it.
    """

    left: int
    most: int
    size_bytes: int | None
    is_emptied: bool
