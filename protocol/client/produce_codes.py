"""Sets of error codes for a batch, by their meaning for the producer.

This module is pure.
"""

from protocol.errors import ErrorCode

SUSPECT = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Retriable codes that can last forever if our own bytes, or a bug of a broker, cause them."""

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Codes after which halves of the batch may be accepted."""

PRODUCER_REFUSED = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Codes which mean that another producer uses our producer id, or that the id has expired."""

NOT_WRITTEN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""Codes which mean that the batch is not in the log. After any other code it can be."""
