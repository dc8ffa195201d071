"""What the error codes that answer a batch say of it, beside whether they pass by themselves.

Floor: client. Pure.
"""

from protocol.errors import ErrorCode

SUSPECT = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Retriable, but they may last for ever if our own bytes or a broker's bug are behind them."""

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Halves of the batch may be taken."""

PRODUCER_REFUSED = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Our ids are somebody else's, or nobody's any more."""

NOT_WRITTEN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""Certain that nothing is in the log: after any other code something may be."""
