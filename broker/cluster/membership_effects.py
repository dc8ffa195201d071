"""What a broker's place in its cluster leads to: requests to the controller, and news of itself.

Floor: cluster. Pure data; `membership` gives it out, its driver performs it in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire.schema import Message


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the controller on a node; it is answered, or has failed, under its number."""

    number: int
    node_id: int
    message: Message


@dataclass(frozen=True, slots=True)
class Registered:
    """The registration is in force here: what the metadata say of partitions is meant for this
    process from here on. Whoever hears it calls `ready` when the broker can serve."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Unfenced:
    """The broker is in service."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """The broker was in service and is not any more: taken for dead, or about to stop."""


@dataclass(frozen=True, slots=True)
class MayStop:
    """Nobody counts on the broker any more."""


@dataclass(frozen=True, slots=True)
class Refused:
    """There is no place for this process; the text says why, and nothing follows."""

    text: str


Effect = Ask | Registered | Unfenced | Fenced | MayStop | Refused
