"""Errors between a client and a cluster, besides the codes in a broker's answer.

A broker's refusal is `protocol.errors.ApiError`. The others are:

    ClientError
      BrokerUnreachable       no connection could be made: nothing was sent
        EntryRefused            the broker refuses the login, or the client the certificate
      ConnectionLost          the connection ended before the answer: unknown whether executed
        RequestTimedOut         the answer did not come in time (the connection is closed)
      UnsupportedVersion      broker and client share no version of this request
      ClientClosed            this client was closed in the meantime
      RecordTooLarge          a record or batch cannot be sent under the limits set
      DeliveryTimedOut        a batch was not acknowledged within delivery_timeout_ms
      OffsetOutOfRange        a reader's position does not exist in the log (any more)
        LogTruncated            records below the position were truncated by a new leader
      NoCommittedOffset       no committed offset, and `offset_reset` is none
      TransactionFailed       the transaction can only be aborted
      ProducerFenced          another producer has taken over the transactional id: close this one

UnreadableBatch is a CorruptBatch. It names the batch of a log that a reader cannot read.
"""

from protocol.errors import ApiError, CorruptBatch, ErrorCode
from protocol.types import TopicPartition


class ClientError(Exception):
    """The base class of all errors of this module."""


class BrokerUnreachable(ClientError):
    """No connection could be made. The request was never sent, so a retry is always safe."""


class EntryRefused(BrokerUnreachable):
    """The broker refuses the login, or the client does not trust the broker.

    An immediate retry cannot help, so the wait before each retry grows.
    """


class ConnectionLost(ClientError):
    """The connection ended before the answer came. It is unknown whether the request
    was executed.
    """


class RequestTimedOut(ConnectionLost):
    """No answer came within the time-out. Answers come in order, so the connection is closed."""


class UnsupportedVersion(ClientError):
    """Broker and client have no common version of a request. The text names both ranges."""


class ClientClosed(ClientError):
    """The owner closed the connection, cluster or producer while the caller waited."""


class RecordTooLarge(ClientError):
    """A record, batch or request exceeds a limit of this client. It was not sent."""


class DeliveryTimedOut(ClientError):
    """A batch was not acknowledged within the delivery time-out.

    If it was ever sent, it is unknown whether it was appended.
    """


class OffsetOutOfRange(ClientError):
    """The position is outside the log, and the reader must not move to an end of the log."""

    def __init__(self, tp: TopicPartition, offset: int, log_start_offset: int) -> None:
        super().__init__(
            f"offset {offset} of {tp} is outside the log, which starts at {log_start_offset}"
            if log_start_offset >= 0
            else f"offset {offset} of {tp} is outside the log"
        )
        self.tp = tp
        self.offset = offset
        self.log_start_offset = log_start_offset


class LogTruncated(OffsetOutOfRange):
    """A new leader has truncated records that this reader has already received (KIP-320).

    At `end_offset` the reader's log and the new leader's log diverge; -1 if unknown.
    """

    def __init__(self, tp: TopicPartition, offset: int, end_offset: int) -> None:
        ClientError.__init__(
            self, f"{tp} was truncated to offset {end_offset}, and is read up to {offset}"
        )
        self.tp = tp
        self.offset = offset
        self.log_start_offset = -1
        self.end_offset = end_offset


class NoCommittedOffset(ClientError):
    """The partition has no committed offset, and the setting `offset_reset` is none."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(
            f"{tp} has no committed offset, and offset_reset is none; seek to an offset first"
        )
        self.tp = tp


class TransactionFailed(ClientError):
    """A part of the transaction failed, so it can only be aborted. The exception has the cause."""


class ProducerFenced(ClientError):
    """A newer producer uses the same transactional id. Only `close` can still be called."""


class UnreadableBatch(CorruptBatch):
    """A batch of a partition cannot be read. A seek to `next_offset` skips it.

    `next_offset` is None if the checksum is wrong too, because then the header is unreliable.
    """

    def __init__(
        self, tp: TopicPartition, offset: int, next_offset: int | None, reason: str
    ) -> None:
        super().__init__(f"{tp} at offset {offset}: {reason}")
        self.tp = tp
        self.offset = offset
        self.next_offset = next_offset


def is_transient(error: BaseException) -> bool:
    """Return whether a request that failed with this error may succeed later."""
    if isinstance(error, ApiError):
        return error.code.retriable
    return isinstance(error, BrokerUnreachable | ConnectionLost)


def raise_for(code: int, detail: str | None = None) -> None:
    """Raise ApiError for any code except NONE."""
    if code:
        raise ApiError(ErrorCode.of(code), detail or (_unknown(code) if code not in _KNOWN else ""))


_KNOWN = frozenset(int(code) for code in ErrorCode)


def _unknown(code: int) -> str:
    return f"the broker answered code {code}, which this client does not know"
