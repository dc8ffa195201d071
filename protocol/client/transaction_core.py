"""A transactional producer without its network: legal moves, and the meaning of each code.

This module is pure. States and legal moves:

    NEW         only `initialized` is possible
    READY       between transactions
    OPEN        records can be sent; each partition joins the transaction before its first batch
    COMMITTING  no more records; after an unknown outcome the commit is repeated, never aborted
    FAILED      a part of it failed: it can only be aborted
    ABORTING    unsent records are dropped, those in flight are waited for
    DEAD        another producer took over, or the coordinator refused permanently

A batch that failed after it was sent leaves a gap in the sequences. So the abort asks for a raised
epoch, with which the sequences restart (KIP-360). A transaction that ended with an unanswered
request needs a raised epoch too. That request can still be in the network, and could be executed in
a later transaction (KIP-890).
"""

from collections.abc import Mapping
from enum import Enum

from protocol.client.errors import ClientError, ProducerFenced, TransactionFailed
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition


class TransactionState(Enum):
    """The state of a transactional producer."""

    NEW = "not initialized"
    READY = "between transactions"
    OPEN = "in a transaction"
    COMMITTING = "committing"
    FAILED = "in a transaction that failed"
    ABORTING = "aborting"
    DEAD = "permanently failed"


class CodeMeaning(Enum):
    """The meaning of an error code for its request."""

    DONE = 1
    AGAIN = 2
    FIND_COORDINATOR = 3
    ABORT = 4
    FENCED = 5
    FATAL = 6


_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_UNKNOWN_ID = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID})
_ABORTS = frozenset(
    {
        *_UNKNOWN_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


def judge(code: ErrorCode) -> CodeMeaning:
    """Return the meaning of an error code of the transaction's or the group's coordinator."""
    if code == ErrorCode.NONE:
        return CodeMeaning.DONE
    if code in _MOVED:
        return CodeMeaning.FIND_COORDINATOR
    if code in _FENCED:
        return CodeMeaning.FENCED
    if code in _ABORTS:
        return CodeMeaning.ABORT
    return CodeMeaning.AGAIN if code.retriable else CodeMeaning.FATAL


class TransactionCore:
    """The state of one transactional id."""

    def __init__(self) -> None:
        self.state = TransactionState.NEW
        self.number = 0
        """The number of the last started transaction; numbers start at 1."""
        self.failure: Exception | None = None
        self.needs_new_epoch = False
        self.is_known_to_coordinator = True
        """False once the coordinator says that our producer id does not belong to this
        transactional id."""
        self._added: set[TopicPartition] = set()
        self._joining: set[TopicPartition] = set()
        self.is_asked = False
        """True once the coordinator was asked to open a transaction, even if its answer is
        unknown.
        """
        self.is_open_there = False
        """True once the coordinator has confirmed that the transaction is open."""
        self.is_decided = False
        """True once the coordinator has confirmed the outcome."""

    # --- moves --------------------------------------------------------------------------------

    def initialized(self) -> None:
        """Handle the answer with the producer id and epoch."""
        self._expect(TransactionState.NEW, TransactionState.READY)
        self.state = TransactionState.READY
        self.needs_new_epoch = False

    def begin(self) -> None:
        """Start a transaction. The coordinator gets to know it with the first partition."""
        self._expect(TransactionState.READY)
        self.number += 1
        self.state = TransactionState.OPEN

    def begin_commit(self) -> None:
        """Accept no more records. The call can be repeated after an unknown outcome."""
        self._expect(TransactionState.OPEN, TransactionState.COMMITTING)
        self.state = TransactionState.COMMITTING

    def begin_abort(self) -> None:
        """Abort the transaction, failed or not. The call can be repeated."""
        self._expect(TransactionState.OPEN, TransactionState.FAILED, TransactionState.ABORTING)
        self.state = TransactionState.ABORTING

    def ended(self) -> None:
        """Handle the commit or abort of the transaction."""
        self.state = TransactionState.READY
        self.failure = None
        self.needs_new_epoch = False
        self.is_known_to_coordinator = True
        self._added.clear()
        self._joining.clear()
        self.is_asked = False
        self.is_open_there = False
        self.is_decided = False

    def unanswered(self) -> None:
        """Handle a request without an answer. The broker may have executed it, or may do so later.

        So the next transaction uses another producer epoch. With the same epoch the late request
        would end that transaction.
        """
        self.needs_new_epoch = True

    def fail(self, error: Exception, *, was_sent: bool = False) -> None:
        """Handle a failed batch or request of the transaction.

        `was_sent`: the batch had a sequence.
        """
        code = error.code if isinstance(error, ApiError) else ErrorCode.NONE
        self.needs_new_epoch |= was_sent or code in _UNKNOWN_ID
        self.is_known_to_coordinator &= code != ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if code == ErrorCode.PRODUCER_FENCED:
            self.die(ProducerFenced(str(error)))
        elif self.state in (TransactionState.OPEN, TransactionState.COMMITTING):
            self.state = TransactionState.FAILED
            self.failure = error

    def die(self, error: Exception) -> None:
        """End this producer. It can send nothing more with its transactional id."""
        if self.state is not TransactionState.DEAD:
            self.state = TransactionState.DEAD
            self.failure = error

    # --- records and offsets ------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise an error unless records can be sent."""
        self._expect(TransactionState.OPEN)

    def join(self, tp: TopicPartition, number: int) -> None:
        """Add a partition to the transaction.

        `number` is the transaction in which the record was sent.
        """
        self.check_open()
        if number != self.number:
            raise TransactionFailed("the transaction in which this record was sent has ended")
        if tp not in self._added:
            self._joining.add(tp)

    def may_send(self, tp: TopicPartition) -> bool:
        """Return whether the coordinator has added the partition to the transaction."""
        is_going = self.state in (TransactionState.OPEN, TransactionState.COMMITTING)
        return is_going and tp in self._added

    @property
    def is_open(self) -> bool:
        """True if there is a transaction that can be aborted."""
        return self.state in (
            TransactionState.OPEN,
            TransactionState.FAILED,
            TransactionState.ABORTING,
        )

    @property
    def drops_waiting(self) -> bool:
        """True if unsent batches must not be sent any more."""
        return self.state in (
            TransactionState.FAILED,
            TransactionState.ABORTING,
            TransactionState.DEAD,
        )

    @property
    def joining(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinator must add to the transaction."""
        is_going = self.state in (TransactionState.OPEN, TransactionState.COMMITTING)
        return frozenset(self._joining) if is_going else frozenset()

    def on_joined(self, codes: Mapping[TopicPartition, ErrorCode]) -> CodeMeaning:
        """Handle the answer to AddPartitionsToTxn: all partitions are added, or none."""
        verdicts = {tp: judge(code) for tp, code in codes.items()}
        worst = max(verdicts.values(), key=lambda verdict: verdict.value)
        if worst is CodeMeaning.DONE:
            self.is_open_there = True
            self._added.update(codes)
            self._joining.difference_update(codes)
            return worst
        if worst is CodeMeaning.ABORT and any(v is CodeMeaning.AGAIN for v in verdicts.values()):
            # The other partitions were not attempted, because some partitions have a transient
            # error.
            only_echoes = all(
                code in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED) or code.retriable
                for code in codes.values()
            )
            if only_echoes:
                return CodeMeaning.AGAIN
        return worst

    def _expect(self, *states: TransactionState) -> None:
        if self.state in states:
            return
        cause = self.failure
        if self.state is TransactionState.DEAD and cause is not None:
            raise type(cause)(*cause.args) from cause
        if self.state is TransactionState.FAILED:
            raise TransactionFailed(f"the transaction can only be aborted: {cause}") from cause
        wanted = " or ".join(state.value for state in states)
        raise ClientError(f"the producer is {self.state.value}, but must be {wanted} for this call")
