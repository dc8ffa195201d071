"""The result of a decision: the records to commit, and the reply to send after the commit.

This module has only data classes. It also defines the controller requests that only brokers and the
controller itself make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.metadata.records import MetadataRecord

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class ControllerDecision(Generic[R]):
    """The result of a decision.

    `records` go into the metadata log as one batch. `reply` can be sent once they are durable.
    """

    records: Sequence[MetadataRecord]
    reply: R


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A broker's request for a block of producer ids. The reply is a range of ids."""

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class CompleteReassignments:
    """The controller's own request to complete the reassignments whose conditions hold."""


@dataclass(frozen=True, slots=True)
class CreateOwnTopic:
    """The request for a topic that the broker itself needs: an internal topic, or a topic in a
    metadata request.

    The reply is an error code. It is NONE if the topic already exists.
    """

    name: str
