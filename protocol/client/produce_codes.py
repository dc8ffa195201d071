"""Sets of error codes for a batch, by their meaning for the producer.

This module is pure.
"""

from protocol.errors import ErrorCode

SUSPECT = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Retriable, but they can last forever if our own bytes or a broker's bug cause them."""

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Halves of the batch may be accepted."""

PRODUCER_REFUSED = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Another producer uses our ids, or they have expired."""

NOT_WRITTEN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""The batch is certainly not in the log. After any other code it can be."""
