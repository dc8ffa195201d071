"""What can go wrong between a client and a cluster, besides the codes a broker answers with.

Floor: client. A broker's refusal is `protocol.errors.ApiError`; these are the cases without one:

    ClientError
        BrokerUnreachable       no connection could be made: nothing was sent
        ConnectionLost          the connection ended before the answer: executed or not, who knows
            RequestTimedOut         the answer did not come in time (the connection is given up)
        UnsupportedVersion      broker and client share no version of this request
        ClientClosed            this client was closed meanwhile
        RecordTooLarge          a record or batch cannot be sent under the limits set
        DeliveryTimedOut        a batch was not acknowledged within delivery_timeout_ms
        OffsetOutOfRange        a reader's position does not exist in the log (any more)
            LogTruncated            what stood below the position was truncated by a new leader
        NoCommittedOffset       a consumer has no position to begin at, and no policy to find one
        TransactionFailed       the transaction can only be aborted
        ProducerFenced          another producer has taken over the transactional id: close this one

UnreadableBatch is a CorruptBatch: it also says which batch of a log a reader cannot open.
"""

from protocol.errors import ApiError, CorruptBatch, ErrorCode
from protocol.types import TopicPartition


class ClientError(Exception):
    """Root of this tree."""


class BrokerUnreachable(ClientError):
    """No connection could be made; the request was never sent, so trying again is always safe."""


class ConnectionLost(ClientError):
    """The connection ended before the answer came; the request may have been executed or not."""


class RequestTimedOut(ConnectionLost):
    """No answer within the request's time. Answers come in order, so the connection is useless."""


class UnsupportedVersion(ClientError):
    """Broker and client have no version of a request in common; the text names both ranges."""


class ClientClosed(ClientError):
    """The connection, cluster or producer was closed by its owner while this was waiting."""


class RecordTooLarge(ClientError):
    """A record, batch or request above a limit of this client; it was not sent."""


class DeliveryTimedOut(ClientError):
    """A batch was not acknowledged within the delivery timeout.

    Whether it was written is unknown if it was ever sent.
    """


class OffsetOutOfRange(ClientError):
    """The position asked for lies outside the log, and no policy says where to go on."""

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
    """A new leader has truncated records that this reader was given (KIP-320).

    `end_offset` is where the log that was read and the log of the new leader part; -1: unknown.
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
    """Nothing is committed for the partition, and no policy says where to begin."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(f"nothing is committed for {tp}")
        self.tp = tp


class TransactionFailed(ClientError):
    """Something in the transaction failed; it can only be aborted. The cause says what it was."""


class ProducerFenced(ClientError):
    """A newer producer uses the same transactional id; nothing but `close` is left to this one."""


class UnreadableBatch(CorruptBatch):
    """A batch of a partition cannot be opened; a seek to `next_offset` passes over it.

    `next_offset` is None where the checksum is wrong too, because the header says nothing then.
    """

    def __init__(
        self, tp: TopicPartition, offset: int, next_offset: int | None, reason: str
    ) -> None:
        super().__init__(f"{tp} at offset {offset}: {reason}")
        self.tp = tp
        self.offset = offset
        self.next_offset = next_offset


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed when it is sent again later."""
    if isinstance(error, ApiError):
        return error.code.retriable
    return isinstance(error, BrokerUnreachable | ConnectionLost)


def raise_for(code: int, detail: str | None = None) -> None:
    """Raise ApiError for any code other than NONE."""
    if code:
        raise ApiError(ErrorCode.of(code), detail or (_unknown(code) if code not in _KNOWN else ""))


_KNOWN = frozenset(int(code) for code in ErrorCode)


def _unknown(code: int) -> str:
    return f"the broker answered code {code}, which this client does not know"
