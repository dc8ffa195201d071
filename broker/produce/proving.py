"""Lets Produce requests wait until the coordinators of their transactions have answered.

The first batch of a transaction in a partition must be verified by the transaction's coordinator.
If this is another broker, the whole request waits for the answer, with a copy of its batches. No
batch of the request is appended before the answer. No later request of the connection starts in the
meantime, so the batches of a producer stay in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.produce.opening import copy_batches
from broker.produce.pending import PendingProduce
from broker.produce.verification import (
    Owner,
    Proofs,
    Verifier,
    needs_proof,
    owner_of,
    prove,
)
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from protocol.errors import WireError
from protocol.messages.produce import ProduceRequest
from protocol.wire.batch_header import TRANSACTIONAL
from protocol.wire.records import BatchHeader, read_header


class Proving:
    """Asks coordinators on other brokers about the transactional batches of Produce requests."""

    def __init__(self, verifier: Verifier, replicas: Replicas) -> None:
        self._verifier = verifier
        self._replicas = replicas

    def start(
        self, pending: PendingProduce, request: ProduceRequest, go_on: Callable[[], None]
    ) -> bool:
        """Ask the coordinator about a request's batches if necessary. Return True if it was asked.

        In this case `go_on` is called when the answer has come, unless the session has been closed.
        """
        transactional_id = request.transactional_id
        if transactional_id is None or pending.has_two_producers:
            return False
        if not self._verifier.is_elsewhere(transactional_id):
            return False
        owner: Owner | None = None
        unproven: dict[Replica, None] = {}
        for replica, header in self._transactional(request):
            owner = owner or owner_of(transactional_id, header)
            if needs_proof(self._verifier, owner, replica):
                unproven[replica] = None
        if owner is None or not unproven:
            return False
        copy_batches(request)
        session, slot = pending.call.session, pending.call.slot
        session.hold(slot)

        def proven(proofs: Proofs) -> None:
            if session.is_closed:
                return
            pending.proofs = proofs
            session.let_go(slot)
            go_on()

        prove(self._verifier, owner, unproven, proven)
        return True

    def _transactional(self, request: ProduceRequest) -> Iterator[tuple[Replica, BatchHeader]]:
        """Yield the transactional batches for partitions of this broker, with their partitions."""
        for topic in request.topic_data:
            for data in topic.partition_data:
                replica = self._replicas.get(topic.name, data.index)
                if replica is None:
                    continue
                try:
                    header = read_header(data.records or b"")
                except WireError:
                    continue
                if header.attributes & TRANSACTIONAL:
                    yield replica, header
