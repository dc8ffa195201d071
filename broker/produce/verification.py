"""Verify that a partition was added to the producer's open transaction before a write into it.

Room: produce. Kafka does this since 3.6 (KIP-890) and refuses with the same code:
INVALID_TXN_STATE, after which every client aborts the transaction and continues. Without the check,
a late batch would open a transaction that never ends and would hold back every read_committed
consumer of the partition.

If the coordinator is on this node, the check costs two look-ups and is made for every batch. While
the coordinator cannot answer, transactions that are open in the log continue (decision 0076). If
the coordinator is on another broker, it is asked before the first batch of a transaction in a
partition, and `Proof` keeps the answer. Once the transaction is open in the log, no further
question is needed.
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
"""No coordinator can answer for now. Transactions that are open in a log continue."""

NOT_YET = UNANSWERED | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""Temporary errors. Producers do not know these codes in a Produce answer. So, like Kafka, the
broker answers NOT_ENOUGH_REPLICAS: retry, without new metadata.
"""


class Owner(NamedTuple):
    """The producer for which something will be written."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


Codes = Mapping[TopicPartition, ErrorCode]


class Verifier(Protocol):
    """Asks the coordinators of transactions (`shards/verifier`)."""

    def is_elsewhere(self, transactional_id: str) -> bool:
        """Return True if, by the metadata, its coordinator is not this broker."""

    def refuse_outsider(
        self, owner: Owner, partition: TopicPartition, coordinator_epoch: int
    ) -> None:
        """Raise ApiError if the coordinator is here and the write does not belong to a transaction.

        `coordinator_epoch` is that of the producer's last marker in the partition, or -1. A local
        coordinator of an earlier epoch has been replaced and does not know it yet.
        """

    def ask(
        self,
        owner: Owner,
        partitions: Iterable[TopicPartition],
        answered: Callable[[Codes], None],
    ) -> None:
        """Ask the coordinator on another broker about these partitions. It answers once, later."""


class Proof:
    """The answer of a remote coordinator about one partition, and whether it is still valid."""

    __slots__ = ("_code", "_guard", "_leader_epoch", "_replica", "owner")

    def __init__(self, replica: Replica, owner: Owner) -> None:
        """Create it before the coordinator is asked."""
        self.owner = owner
        self._replica = replica
        self._leader_epoch = replica.leader_epoch
        self._guard = replica.log.producer_state.verifications.begin(owner.producer_id)
        self._code = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def answered(self, code: ErrorCode) -> None:
        """Record the coordinator's answer."""
        self._code = code
        if code is not ErrorCode.NONE:
            verifications = self._replica.log.producer_state.verifications
            verifications.forget(self.owner.producer_id, self._guard)

    def check(self, replica: Replica) -> None:
        """Raise ApiError unless the answer was positive and is still valid."""
        if replica is not self._replica or not replica.leads_in(self._leader_epoch):
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader epoch changed during verification"
            )
        if self._code is not ErrorCode.NONE:
            raise ApiError(self._code)
        if self._guard.is_broken:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "the transaction ended during verification")


Proofs = Mapping[TopicPartition, Proof]

NO_PROOFS: Proofs = {}


def needs_proof(verifier: Verifier, owner: Owner, replica: Replica) -> bool:
    """Return True if a coordinator on another broker must be asked before this write."""
    is_open = owner.producer_id in replica.log.producer_state.transactions.open
    return not is_open and verifier.is_elsewhere(owner.transactional_id)


def prove(
    verifier: Verifier,
    owner: Owner,
    replicas: Iterable[Replica],
    proven: Callable[[Proofs], None],
) -> None:
    """Ask the coordinator on another broker. `proven` is called once, later, with any outcome."""
    proofs = {one.topic_partition: Proof(one, owner) for one in replicas}

    def answered(codes: Codes) -> None:
        for partition, proof in proofs.items():
            proof.answered(codes.get(partition, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        proven(proofs)

    verifier.ask(owner, proofs, answered)


def refuse_outsider(verifier: Verifier, owner: Owner, replica: Replica, proofs: Proofs) -> None:
    """Raise the coordinator's ApiError if the write does not belong to an open transaction."""
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
            raise ApiError(ErrorCode.NOT_COORDINATOR, "this batch has not been verified")
        proof.check(replica)


def owner_of(transactional_id: str | None, header: BatchHeader) -> Owner:
    """Return the owner of a transactional batch. Refuses one without a transactional id."""
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
    """Refuse a transactional batch outside its transaction, with error codes for Produce."""
    owner = owner_of(transactional_id, header)
    try:
        refuse_outsider(verifier, owner, replica, proofs)
    except ApiError as error:
        if error.code is ErrorCode.PRODUCER_FENCED:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
        if error.code in NOT_YET:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, error.message) from error
        raise
