"""The messages that give out producer ids to producers, and blocks of producer ids to brokers.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import Message, int16, int32, int64, string


class InitProducerIdRequest(Message, api_key=ApiKey.INIT_PRODUCER_ID, versions=(0, 4), flexible=2):
    """Ask for a producer id, new or resumed. Version 3 adds the id and epoch to resume.

    `transactional_id` None: an idempotent producer without transactions.
    """

    transactional_id: str | None = string(nullable=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)


class InitProducerIdResponse(Message, api_key=ApiKey.INIT_PRODUCER_ID, versions=(0, 4), flexible=2):
    """The producer id and epoch to use."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


class AllocateProducerIdsRequest(
    Message, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions=(0, 0), flexible=0
):
    """A broker's request to the controller for a block of unused producer ids."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AllocateProducerIdsResponse(
    Message, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions=(0, 0), flexible=0
):
    """The first producer id of the block, and the number of ids in it."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
