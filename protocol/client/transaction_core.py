"""A transactional producer without its network: what may be done when, and what each code means.

Floor: client. Pure. States and legal moves:

    NEW         nothing but `initialized` is possible
    READY       between transactions
    OPEN        records may be sent; each partition joins the transaction before its first batch
    COMMITTING  no more records; an unclear outcome is asked for again, never changed to an abort
    FAILED      something in it failed: it can only be aborted
    ABORTING    what waits is dropped, what is in flight is waited for
    DEAD        another producer took over, or the coordinator refuses for good

A batch that failed after it was sent leaves a gap in the sequences, so the abort asks for a raised
epoch, under which they start again (KIP-360). So does the end of a transaction of which a request
had no answer: it may lie in the network, and would be taken for one of the next (KIP-890).
"""

from collections.abc import Mapping
from enum import Enum

from protocol.client.errors import ClientError, ProducerFenced, TransactionFailed
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition


class TransactionState(Enum):
    """Where a transactional producer is."""

    NEW = "not initialized"
    READY = "between transactions"
    OPEN = "in a transaction"
    COMMITTING = "committing"
    FAILED = "in a transaction that failed"
    ABORTING = "aborting"
    DEAD = "of no more use"


class Verdict(Enum):
    """What a code means for the request that got it."""

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


def judge(code: ErrorCode) -> Verdict:
    """What an answer of the transaction's or the group's coordinator means."""
    if code == ErrorCode.NONE:
        return Verdict.DONE
    if code in _MOVED:
        return Verdict.FIND_COORDINATOR
    if code in _FENCED:
        return Verdict.FENCED
    if code in _ABORTS:
        return Verdict.ABORT
    return Verdict.AGAIN if code.retriable else Verdict.FATAL


class TransactionCore:
    """One transactional id."""

    def __init__(self) -> None:
        self.state = TransactionState.NEW
        self.number = 0
        """Of the transaction begun last; they count from 1."""
        self.failure: Exception | None = None
        self.needs_new_epoch = False
        self.is_known_to_coordinator = True
        """False once it says that our producer id is not this transactional id's."""
        self._added: set[TopicPartition] = set()
        self._joining: set[TopicPartition] = set()
        self.is_asked = False
        """The coordinator was asked to open a transaction; whether it did may be unclear."""
        self.is_open_there = False
        """It said that it did."""
        self.is_decided = False
        """It has answered how the transaction ends."""

    # --- moves --------------------------------------------------------------------------------

    def initialized(self) -> None:
        """The producer has its id and epoch."""
        self._expect(TransactionState.NEW, TransactionState.READY)
        self.state = TransactionState.READY
        self.needs_new_epoch = False

    def begin(self) -> None:
        """Open a transaction; the coordinator hears of it with the first partition."""
        self._expect(TransactionState.READY)
        self.number += 1
        self.state = TransactionState.OPEN

    def begin_commit(self) -> None:
        """No more records. May be repeated after an unclear outcome."""
        self._expect(TransactionState.OPEN, TransactionState.COMMITTING)
        self.state = TransactionState.COMMITTING

    def begin_abort(self) -> None:
        """Give the transaction up, whether or not it has failed. May be repeated."""
        self._expect(TransactionState.OPEN, TransactionState.FAILED, TransactionState.ABORTING)
        self.state = TransactionState.ABORTING

    def ended(self) -> None:
        """The transaction is over, either way."""
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
        """A request may have reached its coordinator or not, or may yet.

        The next transaction therefore takes another producer epoch. Under the same epoch the late
        request would end that transaction.
        """
        self.needs_new_epoch = True

    def fail(self, error: Exception, *, was_sent: bool = False) -> None:
        """A batch or a request of the transaction failed; `was_sent`: it had a sequence."""
        code = error.code if isinstance(error, ApiError) else ErrorCode.NONE
        self.needs_new_epoch |= was_sent or code in _UNKNOWN_ID
        self.is_known_to_coordinator &= code != ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if code == ErrorCode.PRODUCER_FENCED:
            self.die(ProducerFenced(str(error)))
        elif self.state in (TransactionState.OPEN, TransactionState.COMMITTING):
            self.state = TransactionState.FAILED
            self.failure = error

    def die(self, error: Exception) -> None:
        """Nothing more is possible under this id."""
        if self.state is not TransactionState.DEAD:
            self.state = TransactionState.DEAD
            self.failure = error

    # --- records and offsets ------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise unless records may be sent."""
        self._expect(TransactionState.OPEN)

    def join(self, tp: TopicPartition, number: int) -> None:
        """Let in a record for this partition, sent when `number` was that of the transaction."""
        self.check_open()
        if number != self.number:
            raise TransactionFailed("the transaction this was sent in is over")
        if tp not in self._added:
            self._joining.add(tp)

    def may_send(self, tp: TopicPartition) -> bool:
        """Whether the coordinator knows that the partition is part of the transaction."""
        is_going = self.state in (TransactionState.OPEN, TransactionState.COMMITTING)
        return is_going and tp in self._added

    @property
    def is_open(self) -> bool:
        """Whether an abort would have something to do."""
        return self.state in (
            TransactionState.OPEN,
            TransactionState.FAILED,
            TransactionState.ABORTING,
        )

    @property
    def drops_waiting(self) -> bool:
        """Whether batches that were not sent shall not be sent any more."""
        return self.state in (
            TransactionState.FAILED,
            TransactionState.ABORTING,
            TransactionState.DEAD,
        )

    @property
    def joining(self) -> frozenset[TopicPartition]:
        """The partitions the coordinator has to be told of."""
        is_going = self.state in (TransactionState.OPEN, TransactionState.COMMITTING)
        return frozenset(self._joining) if is_going else frozenset()

    def on_joined(self, codes: Mapping[TopicPartition, ErrorCode]) -> Verdict:
        """The answer to AddPartitionsToTxn: all are in, or none is."""
        verdicts = {tp: judge(code) for tp, code in codes.items()}
        worst = max(verdicts.values(), key=lambda verdict: verdict.value)
        if worst is Verdict.DONE:
            self.is_open_there = True
            self._added.update(codes)
            self._joining.difference_update(codes)
            return worst
        if worst is Verdict.ABORT and any(v is Verdict.AGAIN for v in verdicts.values()):
            # The others were not attempted because of those that may yet come right.
            only_echoes = all(
                code in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED) or code.retriable
                for code in codes.values()
            )
            if only_echoes:
                return Verdict.AGAIN
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
        raise ClientError(f"the producer is {self.state.value}, expected {wanted}")
