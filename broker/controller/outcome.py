"""The result of a decision: records to commit, and the reply to send after that.

This module has only data classes. Orders that are not client requests are also defined here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.metadata.records import MetadataRecord

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class ControllerDecision(Generic[R]):
    """`records` go into the metadata log as one batch. `reply` can be sent once they
    are durable.
    """

    records: Sequence[MetadataRecord]
    reply: R


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A broker needs a block of producer ids. The reply is a range."""

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class CreateOwnTopic:
    """A topic that the broker itself needs: named in a metadata request, or an internal topic.

    The reply is an error code. It is NONE if the topic already exists.
    """

    name: str
