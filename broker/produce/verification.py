"""Whether something may be written in a transaction: only into a partition that was added to the
open transaction of its producer.

Floor: produce. Kafka asks since 3.6 (KIP-890), and its refusal is the one given here:
INVALID_TXN_STATE, after which every client aborts the transaction and goes on. Without the question
a batch that arrives late would open a transaction that nobody ends, and hold back every
read_committed reader of the partition.

Where the coordinator is on this node the question costs two look-ups, and is asked for every batch;
while it cannot answer, what is open in the log goes on (decision 0076).
Where it is on another, it is asked before the first batch of a transaction in a partition, and
`Proof` keeps the answer; once the transaction is open in the log, that says enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from broker.replicas.replica import Replica
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition
from protocol.wire.records import BatchHeader

UNANSWERED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""There is no coordinator that could be asked, for now: what is open in a log goes on meanwhile."""

NOT_YET = UNANSWERED | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""What passes by itself. A producer does not know these codes in an answer to Produce, so it is
told NOT_ENOUGH_REPLICAS, as Kafka does: retry, without new metadata."""


class Owner(NamedTuple):
    """In whose name something is to be written."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


Codes = Mapping[TopicPartition, ErrorCode]


class Verifier(Protocol):
    """The way to the coordinators of transactions (`shards/verifier`)."""

    def is_elsewhere(self, transactional_id: str) -> bool:
        """Whether its coordinator is not this broker, as far as the metadata go."""

    def refuse_outsider(
        self, owner: Owner, partition: TopicPartition, coordinator_epoch: int
    ) -> None:
        """Refuse by ApiError, where the coordinator is here, what has no place in a partition.

        `coordinator_epoch` is that of the producer's last marker there, -1 if there is none: a
        coordinator of an earlier one has lost its place, and has only not heard of it.
        """

    def ask(
        self,
        owner: Owner,
        partitions: Iterable[TopicPartition],
        answered: Callable[[Codes], None],
    ) -> None:
        """Ask the coordinator elsewhere about these partitions; the answer comes once, later."""


class Proof:
    """What a coordinator elsewhere says of one partition, and whether that still holds."""

    __slots__ = ("_code", "_guard", "_leader_epoch", "_replica", "owner")

    def __init__(self, replica: Replica, owner: Owner) -> None:
        """Taken before it is asked."""
        self.owner = owner
        self._replica = replica
        self._leader_epoch = replica.leader_epoch
        self._guard = replica.log.producer_state.verifications.begin(owner.producer_id)
        self._code = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def answered(self, code: ErrorCode) -> None:
        """What the coordinator has said."""
        self._code = code
        if code is not ErrorCode.NONE:
            verifications = self._replica.log.producer_state.verifications
            verifications.forget(self.owner.producer_id, self._guard)

    def check(self, replica: Replica) -> None:
        """Refuse by ApiError unless the answer was good, and nothing has happened since."""
        if replica is not self._replica or not replica.leads_in(self._leader_epoch):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "led anew while it was verified")
        if self._code is not ErrorCode.NONE:
            raise ApiError(self._code)
        if self._guard.is_broken:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, "the transaction has ended while it was verified"
            )


Proofs = Mapping[TopicPartition, Proof]

NO_PROOFS: Proofs = {}


def needs_proof(verifier: Verifier, owner: Owner, replica: Replica) -> bool:
    """Whether the coordinator has to be asked, elsewhere, before this is written."""
    is_open = owner.producer_id in replica.log.producer_state.transactions.open
    return not is_open and verifier.is_elsewhere(owner.transactional_id)


def prove(
    verifier: Verifier,
    owner: Owner,
    replicas: Iterable[Replica],
    proven: Callable[[Proofs], None],
) -> None:
    """Ask the coordinator elsewhere; `proven` comes once, later, whatever it says."""
    proofs = {one.topic_partition: Proof(one, owner) for one in replicas}

    def answered(codes: Codes) -> None:
        for partition, proof in proofs.items():
            proof.answered(codes.get(partition, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        proven(proofs)

    verifier.ask(owner, proofs, answered)


def refuse_outsider(verifier: Verifier, owner: Owner, replica: Replica, proofs: Proofs) -> None:
    """Refuse by ApiError what has no place in a partition, in the coordinator's own words."""
    state = replica.log.producer_state
    is_open = owner.producer_id in state.transactions.open
    if not verifier.is_elsewhere(owner.transactional_id):
        try:
            coordinator_epoch = state.coordinator_epoch(owner.producer_id)
            verifier.refuse_outsider(owner, replica.topic_partition, coordinator_epoch)
        except ApiError as error:
            if not is_open or error.code not in UNANSWERED:
                raise
    elif not is_open:
        proof = proofs.get(replica.topic_partition)
        if proof is None or proof.owner != owner:
            raise ApiError(ErrorCode.NOT_COORDINATOR, "it has not been asked about this batch")
        proof.check(replica)


def owner_of(transactional_id: str | None, header: BatchHeader) -> Owner:
    """Whose a transactional batch is; refuses one that comes without a transactional id."""
    if transactional_id is None:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch in a request without a transactional id",
        )
    return Owner(transactional_id, header.producer_id, header.producer_epoch)


def refuse_batch(
    verifier: Verifier,
    transactional_id: str | None,
    header: BatchHeader,
    replica: Replica,
    proofs: Proofs,
) -> None:
    """Refuse a transactional batch that has no place in a partition, in words of a Produce."""
    owner = owner_of(transactional_id, header)
    try:
        refuse_outsider(verifier, owner, replica, proofs)
    except ApiError as error:
        if error.code is ErrorCode.PRODUCER_FENCED:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
        if error.code in NOT_YET:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, error.message) from error
        raise
