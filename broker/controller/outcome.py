"""What deciding about one input gives: records to commit, and the reply to send after that.

Floor: controller. Data only. `Input` kinds that are not requests of a client stand here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.metadata.records import MetadataRecord

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """`records` go into the metadata log as one batch; `reply` may leave once they are durable."""

    records: Sequence[MetadataRecord]
    reply: R


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A broker needs a block of producer ids. The reply is a range."""

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class CreateOwnTopic:
    """A topic that the broker wants itself: named in a metadata request, or an internal one.

    The reply is an error code; a topic that exists already is a success.
    """

    name: str
