"""Runs the transaction coordinator: it commits decisions, then writes markers, then completes
transactions.

A decided transaction is an `Ending` until its last marker is committed and its completion is in the
log. If a marker cannot be written now, because of a full disk or a missing partition, `retry`
writes it later. A decision is never dropped.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from broker.config import InForce
from broker.coordinators.ages import Ages
from broker.coordinators.outcome import ShardOutcome, fitting
from broker.coordinators.txn import TxnShard, refuse_timeout
from broker.coordinators.txn_state import Transaction, TxnState
from broker.metadata.image import TRANSACTIONS_TOPIC, MetadataImage
from broker.replicas.replica import Replica
from broker.shards.loaded_shard import LoadedShard, Refused, ShardPorts
from broker.shards.marker_sender import MarkerSender, WantedMarker
from broker.shards.markers import FENCED, Markers, TxnMarker
from broker.shards.outages import Outages
from broker.shards.shard_driver import CoordinatorDriver
from broker.storage.errors import DiskError
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.types import NO_NODE, TopicPartition

logger = logging.getLogger(__name__)


class MarkerWait:
    """The wait for the commit of one marker, on this or on another broker."""

    __slots__ = ("_coordinator", "_ending", "_topic_partition")

    def __init__(
        self, coordinator: TxnCoordinator, ending: Ending, topic_partition: TopicPartition
    ) -> None:
        self._coordinator = coordinator
        self._ending = ending
        self._topic_partition = topic_partition

    def reached(self) -> None:
        self._coordinator.marker_settled(self._ending, self._topic_partition)

    def lost(self, code: ErrorCode) -> None:
        self._coordinator.marker_lost(self._ending, self._topic_partition, code)

    def refused(self, code: ErrorCode) -> None:
        """Record that another broker could not write the marker, which will be sent again."""
        self._coordinator.marker_refused(self._topic_partition, code)

    def serves(self) -> bool:
        """Return True if this broker still leads the shard that decided the transaction."""
        return self._coordinator.serves(self._ending.loaded)


class Ending:
    """A decided transaction whose markers are being written."""

    __slots__ = ("is_completing", "loaded", "shard", "transaction", "unwritten", "waiting_count")

    def __init__(
        self, loaded: LoadedShard[TxnShard], shard: TxnShard, transaction: Transaction
    ) -> None:
        self.loaded = loaded
        self.shard = shard
        self.transaction = transaction
        self.unwritten = set(transaction.partitions)
        self.waiting_count = 0
        """The number of markers that are written and not committed."""
        self.is_completing = False


class TxnCoordinator(CoordinatorDriver[TxnShard]):
    """The transactional ids whose coordinator is this broker."""

    def __init__(
        self,
        ports: ShardPorts,
        settings: InForce,
        markers: Markers,
        sender: MarkerSender | None = None,
    ) -> None:
        """Create a coordinator without shards.

        `sender` sends markers to other brokers; None for a broker without a cluster.
        """
        self._markers = markers
        self._sender = sender
        self._ages = Ages(ports.clock.now_ms(), ports.clock.monotonic_ms())
        config = settings.config
        self._node_id = config.node_id
        self._timeout_ms_max = config.transaction_max_timeout_ms
        super().__init__(
            ports,
            TRANSACTIONS_TOPIC,
            lambda: TxnShard(
                self._timeout_ms_max,
                config.transactional_id_expiration_ms,
                config.max_shard_transactional_ids,
                self._ages,
            ),
            "transactions cannot be loaded",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
        self._endings: dict[Ending, None] = {}
        self._outages = Outages()

    def on_loaded(self, loaded: LoadedShard[TxnShard], shard: TxnShard) -> None:
        """Finish the transactions of a loaded shard that were decided but not completed."""
        shard.begin(self.ports.clock.monotonic_ms())
        for transaction in shard.preparing():
            self._end(Ending(loaded, shard, transaction))

    def on_dropped(self, loaded: LoadedShard[TxnShard]) -> None:
        """Forget the transactions of a dropped shard. The shard's next leader completes them."""
        for ending in [one for one in self._endings if one.loaded is loaded]:
            del self._endings[ending]

    def write_failed(self, replica: Replica, error: DiskError, now_ms: int) -> ApiError:
        """Return Kafka's error for a failed write, after which the client looks for its coordinator
        and tries again."""
        super().write_failed(replica, error, now_ms)
        return ApiError(ErrorCode.NOT_COORDINATOR, str(error))

    def refuse_timeout(self, timeout_ms: int) -> None:
        """Raise INVALID_TRANSACTION_TIMEOUT for a timeout above the limit.

        Every coordinator has this limit.
        """
        refuse_timeout(timeout_ms, self._timeout_ms_max)

    def decide(
        self,
        transactional_id: str,
        judge: Callable[[TxnShard], ShardOutcome[Sequence[Transaction]]],
        reply: Callable[[Sequence[Transaction]], None],
        refused: Refused,
    ) -> None:
        """Let the shard of a transactional id decide a request.

        `judge` decides with the shard's state. `reply` is called with the changed transactions once
        the decision is durable. The markers of a decided transaction are written after the reply.
        An error is sent at once, so the rules for reads apply to it. Otherwise a deposed
        coordinator could stop a producer that only its successor knows.
        """
        try:
            loaded = self.find(transactional_id)
            shard = loaded.state
            outcome = judge(shard)
        except ApiError as error:
            refused(ApiError(self.told(error.code), error.message))
            return
        self._submit(loaded, shard, outcome, reply, refused)

    def _submit(
        self,
        loaded: LoadedShard[TxnShard],
        shard: TxnShard,
        outcome: ShardOutcome[Sequence[Transaction]],
        reply: Callable[[Sequence[Transaction]], None],
        refused: Refused,
    ) -> None:
        """Write a decision.

        Its markers are written after the reply, even if the reply came too late for the client.
        """
        then = partial(self._end_decided, loaded, shard, outcome)
        try:
            self.submit(loaded, outcome, reply, refused, then=then)
        except ApiError as error:
            shard.withdraw(one.transactional_id for one in outcome.reply)
            refused(error)

    def _submit_own(
        self,
        loaded: LoadedShard[TxnShard],
        shard: TxnShard,
        outcome: ShardOutcome[Sequence[Transaction]],
        then: Callable[[], None],
    ) -> ApiError | None:
        """Write a decision that no client waits for.

        Return the error if it cannot be written now.
        """

        def committed() -> None:
            self._end_decided(loaded, shard, outcome)
            then()

        try:
            self.submit_own(loaded, outcome, committed)
        except ApiError as error:
            shard.withdraw(one.transactional_id for one in outcome.reply)
            return error
        return None

    def _end_decided(
        self,
        loaded: LoadedShard[TxnShard],
        shard: TxnShard,
        outcome: ShardOutcome[Sequence[Transaction]],
    ) -> None:
        for one in outcome.reply:
            if one.state.is_preparing:
                self._end(Ending(loaded, shard, one))

    # Write markers and complete transactions.

    def _end(self, ending: Ending) -> None:
        self._endings[ending] = None
        self._write_markers(ending)

    def _write_markers(self, ending: Ending) -> None:
        now_ms = self.ports.clock.monotonic_ms()
        for topic_partition in sorted(ending.unwritten):
            ending.unwritten.discard(topic_partition)
            # Increment first, because the marker can be committed before `write` returns.
            ending.waiting_count += 1
            try:
                is_written = self._write_marker(ending, topic_partition)
            except ApiError as error:
                ending.waiting_count -= 1
                is_written = self._is_settled_by(topic_partition, error, now_ms)
                if not is_written:
                    ending.unwritten.add(topic_partition)
            if is_written:
                self._outages.over(topic_partition, now_ms)
        self._complete_if_written(ending)

    def _write_marker(self, ending: Ending, topic_partition: TopicPartition) -> bool:
        """Write a marker or send it to another broker. Return False if it was sent."""
        transaction = ending.transaction
        marker = TxnMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is TxnState.PREPARE_COMMIT,
            ending.loaded.leader_epoch,
        )
        wait = MarkerWait(self, ending, topic_partition)
        replicas, sender = self.ports.replicas, self._sender
        replica = replicas.get(*topic_partition)
        if replica is None and sender is not None:
            leader_id = leader_of(self.ports.metadata.image, topic_partition)
            if leader_id is not None and leader_id not in (NO_NODE, self._node_id):
                wanted = WantedMarker(topic_partition, marker, wait, wait.serves, wait.refused)
                sender.send(leader_id, wanted)
                return False
        self._markers.write(replica or replicas.find(*topic_partition), marker, wait)
        return True

    def _is_settled_by(self, topic_partition: TopicPartition, error: ApiError, now_ms: int) -> bool:
        """Return True if a rejected marker need not be written any more.

        The marker of a decided transaction is written again after every refusal, unless the
        metadata shows that the marker's partition is deleted. The answer of another broker never
        proves that a partition is deleted.
        """
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return leader_of(self.ports.metadata.image, topic_partition) is None
        self._outages.refused(topic_partition, error, now_ms)
        return False

    def marker_settled(self, ending: Ending, topic_partition: TopicPartition) -> None:
        """Handle a marker that is committed on some broker or is no longer needed."""
        self._outages.over(topic_partition, self.ports.clock.monotonic_ms())
        self._marker_ended(ending)

    def _marker_ended(self, ending: Ending) -> None:
        ending.waiting_count -= 1
        self._complete_if_written(ending)

    def marker_lost(self, ending: Ending, topic_partition: TopicPartition, code: ErrorCode) -> None:
        """Handle a marker that was not committed by the broker that wrote it or to which it was
        sent."""
        if code in FENCED:
            _tell_fenced(topic_partition, code)
        elif code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # Another broker leads the partition now, and only that broker knows whether its log has
            # the marker.
            ending.unwritten.add(topic_partition)
            self.ports.soon(self._write_again, ending)
            self._marker_ended(ending)
            return
        self.marker_settled(ending, topic_partition)

    def marker_refused(self, topic_partition: TopicPartition, code: ErrorCode) -> None:
        """Handle a marker that another broker has not written and that will be sent again."""
        now_ms = self.ports.clock.monotonic_ms()
        self._outages.refused(topic_partition, ApiError(code), now_ms)

    def _write_again(self, ending: Ending) -> None:
        if ending in self._endings:
            self._write_markers(ending)

    def _complete_if_written(self, ending: Ending) -> None:
        if ending.unwritten or ending.waiting_count or ending.is_completing:
            return
        if not self.serves(ending.loaded):
            # The shard's new leader finds the decision in its log and finishes the transaction.
            return
        ending.is_completing = True

        def completed() -> None:
            self._endings.pop(ending, None)

        now_ms = self.ports.clock.now_ms()
        outcome = ending.shard.complete(ending.transaction.transactional_id, now_ms)
        error = self._submit_own(ending.loaded, ending.shard, outcome, completed)
        ending.is_completing = error is None

    def moved(self) -> None:
        """Send the unwritten markers to the present leaders, because the metadata changed."""
        if self._sender is not None:
            self._sender.moved()
            self.retry()

    def retry(self) -> None:
        """Write the decisions and markers that could not be written before."""
        for ending in list(self._endings):
            self._write_markers(ending)

    # Periodic work.

    def abort_overdue(self) -> None:
        """Abort the transactions that have exceeded their producers' timeouts."""
        clock = self.ports.clock
        for loaded, shard in self.loaded():
            for outcome in shard.abort_overdue(clock.now_ms(), clock.monotonic_ms()):
                (one,) = outcome.reply
                logger.info(
                    "a transaction has exceeded its timeout and is aborted",
                    extra=fields(
                        transactional_id=one.transactional_id,
                        producer_id=one.producer_id,
                        timeout_ms=one.timeout_ms,
                    ),
                )
                _note(self._submit_own(loaded, shard, outcome, lambda: None))

    def expire(self) -> None:
        """Delete the transactional ids that have not been used for long."""
        now_ms = self.ports.clock.now_ms()
        self._ages.look(now_ms, self.ports.clock.monotonic_ms())
        for loaded, shard in self.loaded():
            self._expire_some(loaded, shard, deque(shard.expired(now_ms)))

    def _expire_some(self, loaded: LoadedShard[TxnShard], shard: TxnShard, ids: deque[str]) -> None:
        """Delete transactional ids, one batch at a time.

        The next batch is written when the last one is committed.
        """
        if not ids or not self.serves(loaded):
            return
        count = fitting((len(one.encode()) for one in ids), loaded.batch_bytes_max)
        some = [ids.popleft() for _ in range(count)]
        outcome = shard.expire(some, self.ports.clock.now_ms())

        def committed() -> None:
            self.ports.soon(self._expire_some, loaded, shard, ids)

        _note(self._submit_own(loaded, shard, outcome, committed))


def leader_of(image: MetadataImage, topic_partition: TopicPartition) -> int | None:
    """Return the leader of a partition in the metadata: NO_NODE if it has none, None if the
    partition is deleted.

    A partition can also be deleted because its topic was created again with fewer partitions.
    """
    topic = image.topics.get(topic_partition.topic)
    if topic is None or topic_partition.partition >= len(topic.partitions):
        return None
    return topic.partitions[topic_partition.partition].leader


def _tell_fenced(topic_partition: TopicPartition, code: ErrorCode) -> None:
    """Log that a newer coordinator or producer has already ended a transaction in a partition."""
    logger.warning(
        "a marker was not written, because a newer epoch has already ended the transaction in "
        "the partition",
        extra=fields(partition=topic_partition, code=code),
    )


def _note(error: ApiError | None) -> None:
    if error is not None:
        logger.warning("cannot write the new state of transactions", extra=fields(error=error))
