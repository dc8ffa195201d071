"""Verifies that a transactional write belongs to an open transaction to which its partition was
added.

Kafka has done this since 3.6 (KIP-890) and refuses other writes with the same code,
INVALID_TXN_STATE. A client that gets this code aborts the transaction and continues. Without the
check, a late batch would open a transaction that never ends. Such a transaction would stop every
read_committed consumer of the partition.

If the coordinator is on this broker, the check costs two look-ups and is made for every batch.
While the coordinator cannot answer, transactions that are open in the log continue (decision 0076).
If the coordinator is on another broker, it is asked before the first batch of a transaction in a
partition, and `Proof` keeps the answer. Once the transaction is open in the log, the coordinator is
not asked again.
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
"""The codes that say that no coordinator can answer at the moment. Transactions that are open in a
log continue."""

NOT_YET = UNANSWERED | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""The codes of temporary errors of a coordinator.

Producers do not know these codes in a Produce answer. So the broker answers NOT_ENOUGH_REPLICAS, as
Kafka does: the client retries without new metadata.
"""


class Owner(NamedTuple):
    """The producer of a transactional write."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


Codes = Mapping[TopicPartition, ErrorCode]


class Verifier(Protocol):
    """The interface to the coordinators of transactions (`shards/verifier`)."""

    def is_elsewhere(self, transactional_id: str) -> bool:
        """Return True if the metadata names another broker as the coordinator of this transactional
        id."""

    def refuse_outsider(
        self, owner: Owner, partition: TopicPartition, coordinator_epoch: int
    ) -> None:
        """Raise ApiError if the coordinator on this broker knows no open transaction with this
        partition.

        `coordinator_epoch` is the epoch in the producer's last marker in the partition, or -1
        without a marker. A local coordinator with an earlier epoch has been replaced but does not
        know it yet.
        """

    def ask(
        self,
        owner: Owner,
        partitions: Iterable[TopicPartition],
        answered: Callable[[Codes], None],
    ) -> None:
        """Ask the coordinator on another broker about these partitions. `answered` is called once,
        later."""


class Proof:
    """The answer of a coordinator on another broker about one partition, while this answer is
    valid."""

    __slots__ = ("_code", "_guard", "_leader_epoch", "_replica", "owner")

    def __init__(self, replica: Replica, owner: Owner) -> None:
        """Begin the verification. Call this before the coordinator is asked."""
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
        """Raise ApiError unless the coordinator's answer was positive and is still valid."""
        if replica is not self._replica or not replica.leads_in(self._leader_epoch):
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "the partition got another leader epoch while the transaction was verified, so"
                " nothing was written",
            )
        if self._code is not ErrorCode.NONE:
            raise ApiError(self._code)
        if self._guard.is_broken:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "the transaction ended during verification")


Proofs = Mapping[TopicPartition, Proof]

NO_PROOFS: Proofs = {}


def needs_proof(verifier: Verifier, owner: Owner, replica: Replica) -> bool:
    """Return True if a coordinator on another broker must be asked before a write to this
    partition."""
    is_open = owner.producer_id in replica.log.producer_state.transactions.open
    return not is_open and verifier.is_elsewhere(owner.transactional_id)


def prove(
    verifier: Verifier,
    owner: Owner,
    replicas: Iterable[Replica],
    proven: Callable[[Proofs], None],
) -> None:
    """Ask the coordinator on another broker about these partitions.

    `proven` is called once, later, whether the coordinator has answered or not.
    """
    proofs = {one.topic_partition: Proof(one, owner) for one in replicas}

    def answered(codes: Codes) -> None:
        for partition, proof in proofs.items():
            proof.answered(codes.get(partition, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        proven(proofs)

    verifier.ask(owner, proofs, answered)


def refuse_outsider(verifier: Verifier, owner: Owner, replica: Replica, proofs: Proofs) -> None:
    """Raise ApiError with the coordinator's code if a write does not belong to an open
    transaction."""
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
            raise ApiError(
                ErrorCode.NOT_COORDINATOR, "the coordinator was not asked about this batch"
            )
        proof.check(replica)


def owner_of(transactional_id: str | None, header: BatchHeader) -> Owner:
    """Return the producer of a transactional batch.

    Raises ApiError if the request has no transactional id.
    """
    if transactional_id is None:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "the request has a transactional batch but no transactional id",
        )
    return Owner(transactional_id, header.producer_id, header.producer_epoch)


def refuse_batch(
    verifier: Verifier,
    transactional_id: str | None,
    header: BatchHeader,
    replica: Replica,
    proofs: Proofs,
) -> None:
    """Raise ApiError, with a code that producers know, if a batch does not belong to an open
    transaction."""
    owner = owner_of(transactional_id, header)
    try:
        refuse_outsider(verifier, owner, replica, proofs)
    except ApiError as error:
        if error.code is ErrorCode.PRODUCER_FENCED:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
        if error.code in NOT_YET:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, error.message) from error
        raise
