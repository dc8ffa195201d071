"""The partitions of this broker, by name, with the roles that the metadata gives them.

A commit of the metadata changes roles at once. Only folders are created and renamed in a thread
(`folders`). Requests of clients look up the partitions that this broker leads. If a partition is
not found there, all partitions are searched for the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from broker.config import InForce
from broker.metadata.image import MetadataDelta, MetadataImage, TopicImage
from broker.metadata.records import TOPIC_RESOURCE
from broker.replicas.flusher import Flusher
from broker.replicas.folders import CreatedLogs, Folders
from broker.replicas.place import BrokerPlace
from broker.replicas.replica import Replica, ReplicaListener, ReplicaPorts
from broker.replicas.replica_listener import LeadershipListener, NoLeaderships
from broker.replication.follower_steps import PartitionId
from broker.replication.partition import LeaderRole, OfflineRole, PartitionState, RoleChange
from broker.storage.dropped import DroppedFiles
from broker.storage.errors import is_damage
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.world import Clock
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.types import NO_LEADER_EPOCH, TopicPartition, Uuid

logger = logging.getLogger(__name__)

NOTHING_HELD: Mapping[int, Replica] = {}


class Replicas:
    """Finds partitions and assigns their roles.

    `listen` adds objects that are notified of partitions with several replicas.
    """

    def __init__(
        self,
        settings: InForce,
        broker_epoch: int,
        clock: Clock,
        logs: LogManager,
        flusher: Flusher,
        folders: Folders,
        place: BrokerPlace,
    ) -> None:
        """`broker_epoch` is the epoch under which this incarnation is registered."""
        self.logs = logs
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._flusher = flusher
        flusher.report_to(self)
        self._folders = folders
        self._leaderships: LeadershipListener = NoLeaderships()
        self.place = place
        self._listeners: list[ReplicaListener] = []
        self._image = MetadataImage()
        """The newest image that is in force or is being applied."""
        self._held: dict[str, dict[int, Replica]] = {}
        self._led: dict[str, dict[int, Replica]] = {}
        """The partitions that this broker leads."""
        self._by_log: dict[Log, Replica] = {}
        self._by_id: dict[PartitionId, Replica] = {}
        self._replica_ports = ReplicaPorts(clock, flusher, self._listeners)
        self._brokers: Mapping[int, int] = {}
        self.unmade: dict[TopicPartition, str] = {}
        """The partitions whose folder the disk could not create yet, with the reason."""
        self.damaged: dict[Replica, str] = {}
        """The replicas that were found damaged while in service, with the reason, until another
        broker leads them."""
        self._damaged_epochs: dict[Replica, int] = {}
        """The newest leader epoch in which each damaged replica can have fetched with its damaged
        log."""
        self._elsewhere: set[TopicPartition] = set()
        """The partitions of which this broker is no replica."""

    def report_to(self, leaderships: LeadershipListener) -> None:
        """Notify this object of leaderships."""
        self._leaderships = leaderships

    def listen(self, *listeners: ReplicaListener) -> None:
        """Notify these objects of partitions with several replicas, in this order."""
        self._listeners.extend(listeners)

    def __iter__(self) -> Iterator[Replica]:
        for replicas in self._held.values():
            yield from replicas.values()

    def find(self, topic: str, index: int, current_leader_epoch: int = NO_LEADER_EPOCH) -> Replica:
        """Return a partition that this broker leads. Raises ApiError with the reason if it does
        not.

        `current_leader_epoch` is the leader epoch that the client knows. -1 means no check.
        """
        led = self._led.get(topic)
        replica = led.get(index) if led is not None else None
        if replica is None:
            raise ApiError(self._why_not_led(topic, index, current_leader_epoch))
        if current_leader_epoch not in (NO_LEADER_EPOCH, replica.leader_epoch):
            raise ApiError(replica.state.refusal(current_leader_epoch))
        return replica

    def find_readable(
        self, topic: str, index: int, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> Replica:
        """Return a partition for reads, as `find` does.

        Raises NOT_LEADER_OR_FOLLOWER if another broker can have become leader.
        """
        replica = self.find(topic, index, current_leader_epoch)
        if not self.place.may_read:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def find_held(self, topic: str, index: int) -> Replica:
        """Return a partition in any role. Raises ApiError with the reason if this broker does not
        have it."""
        replica = self._held.get(topic, NOTHING_HELD).get(index)
        if replica is None:
            raise ApiError(self._why_not_led(topic, index, NO_LEADER_EPOCH))
        return replica

    def _why_not_led(self, topic: str, index: int, current_leader_epoch: int) -> ErrorCode:
        topic_partition = TopicPartition(topic, index)
        replica = self._held.get(topic, NOTHING_HELD).get(index)
        if replica is not None:
            return replica.state.refusal(current_leader_epoch)
        if topic_partition in self._elsewhere:
            # UNKNOWN_TOPIC_OR_PARTITION would tell the client that the partition does not exist.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if topic_partition in self.logs.offline or topic_partition in self.unmade:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def get(self, topic: str, index: int) -> Replica | None:
        """Return the partition if this broker leads it, else None."""
        led = self._led.get(topic)
        return led.get(index) if led is not None else None

    def by_id(self, partition: PartitionId) -> Replica | None:
        """Return the partition in any role, by its id between brokers; None if this broker does not
        have it."""
        return self._by_id.get(partition)

    def holds(self, replica: Replica) -> bool:
        """Return True if the replica is still in service. Work that continues later checks this."""
        return self._by_log.get(replica.log) is replica

    def led_of(self, topic: str) -> Collection[Replica]:
        """Return the partitions of a topic that this broker leads."""
        return self._led.get(topic, NOTHING_HELD).values()

    # Fsyncs.

    def flushed(self, log: Log) -> None:
        """Handle a changed recovery point of a log."""
        replica = self._by_log.get(log)
        if replica is not None:
            replica.on_durable()

    def flush_apart(self, replica: Replica, is_apart: bool) -> None:
        """Choose the worker that fsyncs a replica's log: the separate worker, or the other workers,
        which fsync it together with other logs."""
        self._flusher.keep_apart(replica.log, is_apart)

    def flush_all(self) -> None:
        """Fsync all logs, whatever the settings of their topics."""
        for log in self._by_log:
            if log.recovery_point < log.written_end_offset:
                self._flusher.mark(log)

    # Changes of the metadata.

    def open_all(self, image: MetadataImage, removed_ids: set[Uuid]) -> list[DroppedFiles]:
        """Take all partitions of the image into service at the start. Return the files to
        delete."""
        self._image = image
        dropped = self._folders.finish_removals(image, removed_ids)
        self._follow_brokers(image)
        for topic in image.topics.values():
            self._adopt(self._folders.make(topic, image), image)
        return dropped

    def apply(self, delta: MetadataDelta, image: MetadataImage, done: Callable[[], None]) -> None:
        """Apply a commit. Roles change at once. `done` is called when the folders exist too."""
        self._image = image
        retired = self._retire(delta.removed)
        self._follow_brokers(image)
        names = delta.touched
        if delta.base.end_offset <= self._broker_epoch < image.end_offset:
            # Earlier records were for another incarnation of this broker, so apply all topics.
            names = set(image.topics)
        touched = [image.topics[name] for name in sorted(names) if name in image.topics]
        others = [one for topic in touched for one in self._follow(topic, image)]
        departed = self._departed(others)
        retired += self._retire_replicas(departed)
        retired += self._give_up_damaged()
        wanted = [topic for topic in touched if self._is_missing_any(topic, image)]

        def made(all_made: Sequence[CreatedLogs]) -> None:
            for one in all_made:
                self._adopt(one, image)
            done()

        if not (delta.removed or wanted or departed):
            done()
            return
        # A running fsync uses the folder's path, which a new topic with the same name can get.
        self._flusher.drain(
            retired, lambda: self._folders.change(delta.removed, wanted, image, made, departed)
        )

    def reconfigure(self, image: MetadataImage) -> None:
        """Apply settings of the broker that were changed at run time to all topics."""
        for topic in image.topics.values():
            self._follow(topic, image)

    def retry(self, done: Callable[[], None]) -> None:
        """Retry to create folders that the disk rejected. Calls `done` when new partitions can be
        in service."""
        names = sorted({one.topic for one in self.unmade})
        topics = [self._image.topics[name] for name in names if name in self._image.topics]

        def finish(made: list[CreatedLogs]) -> None:
            for one in made:
                # The topic can have been deleted or replaced in the meantime.
                topic = self._image.topics.get(one.topic.name)
                if topic is not None and topic.topic_id == one.topic.topic_id:
                    self._adopt(CreatedLogs(topic, one.logs, one.refused), self._image)
                    self._remove_departed(one)
            done()

        self._folders.retry_forgetting()
        if topics:
            self._folders.change((), topics, self._image, finish)

    def _remove_departed(self, made: CreatedLogs) -> None:
        """Remove replicas from this broker whose partitions were assigned to other brokers while
        their folders were created."""
        departed = self._departed([TopicPartition(made.topic.name, one) for one in made.logs])
        if departed:
            retired = self._retire_replicas(departed)
            change = partial(self._folders.change, (), (), self._image, lambda made: None, departed)
            self._flusher.drain(retired, change)

    def _departed(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions whose replica was taken away and whose log is on this broker."""
        here = [one for one in partitions if one in self.logs.logs]
        return self._folders.rules.departed(here, self._image) if here else []

    def _retire_replicas(self, departed: Sequence[TopicPartition]) -> list[Log]:
        """Take replicas out of service whose partitions are no longer assigned to this broker.
        Return their logs, which must not be fsynced any more."""
        held = [self._held.get(one.topic, NOTHING_HELD).get(one.partition) for one in departed]
        return [
            self._take_out(replica, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            for replica in held
            if replica is not None
        ]

    def _retire(self, topics: Sequence[TopicImage]) -> list[Log]:
        """Take topics out of service. Return their logs, which must not be fsynced any more."""
        retired = []
        for topic in topics:
            for index in range(len(topic.partitions)):
                topic_partition = TopicPartition(topic.name, index)
                self.unmade.pop(topic_partition, None)
                self._elsewhere.discard(topic_partition)
            retired += [
                self._take_out(replica, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for replica in list(self._held.get(topic.name, NOTHING_HELD).values())
            ]
            self._held.pop(topic.name, None)
            self._led.pop(topic.name, None)
        return retired

    def _take_out(self, replica: Replica, code: ErrorCode) -> Log:
        """Take one partition out of service, and fail the requests that wait for it with this
        error.

        Return its log, which must not be fsynced any more.
        """
        self._held[replica.topic].pop(replica.index)
        self._led.get(replica.topic, {}).pop(replica.index, None)
        self._by_log.pop(replica.log, None)
        self._by_id.pop(replica.partition_id, None)
        self.damaged.pop(replica, None)
        self._damaged_epochs.pop(replica, None)
        replica.log.retire()
        replica.gone(code)
        self._leaderships.lost(replica)
        for listener in self._listeners:
            listener.gone(replica)
        return replica.log

    def supports(self, node_id: int, level: int) -> bool:
        """Return True if the version of a broker supports a level of the metadata log."""
        broker = self._image.brokers.get(node_id)
        return broker is not None and level <= broker.levels.newest

    def _follow_brokers(self, image: MetadataImage) -> None:
        """Give every partition the set of brokers that can be in sync, if the set has changed."""
        brokers = {one.node_id: one.broker_epoch for one in image.brokers.values() if one.is_active}
        if brokers == self._brokers:
            return
        self._brokers = brokers
        for replica in self:
            replica.state.eligible(brokers)
            replica.take_over()

    def _is_missing_any(self, topic: TopicImage, image: MetadataImage) -> bool:
        held = self._held.get(topic.name, NOTHING_HELD)
        if self.logs.offline and self._folders.to_put_aside(topic, image):
            return True
        return any(
            index not in held and self._folders.is_missing(topic, index)
            for index in self._folders.own_indexes(topic)
        )

    def _adopt(self, made: CreatedLogs, image: MetadataImage) -> None:
        """Take logs into service that exist on the disk."""
        topic = made.topic
        held = self._held.setdefault(topic.name, {})
        for topic_partition, reason in made.refused.items():
            if topic_partition not in self.unmade:
                logger.error(
                    "the log of a partition could not be created",
                    extra=fields(partition=topic_partition, reason=reason),
                )
            self.unmade[topic_partition] = reason
        for topic_partition in [one for one in self.unmade if one.topic == topic.name]:
            if topic_partition not in made.refused:
                del self.unmade[topic_partition]
        node_id = self._settings.config.node_id
        for index, log in made.logs.items():
            topic_partition = TopicPartition(topic.name, index)
            known = held.get(index)
            was_taken_offline = self.logs.get(topic_partition) is not log
            if was_taken_offline or (known is not None and known.log is log):
                continue
            state = PartitionState(node_id, self._broker_epoch)
            state.eligible(self._brokers)
            held[index] = Replica(
                topic_partition, log, state, self._replica_ports, is_internal=topic.is_internal
            )
            self._by_log[log] = self._by_id[held[index].partition_id] = held[index]
            if log in self.logs.marked:
                self.found_damaged(held[index], self.logs.marked.pop(log))
        self._follow(topic, image)

    def _follow(self, topic: TopicImage, image: MetadataImage) -> list[TopicPartition]:
        """Apply roles and settings to this broker's partitions of a topic. Return the partitions
        of which this broker is not a replica."""
        config = self._settings.config.log_config(image.settings(TOPIC_RESOURCE, topic.name))
        own = set(self._folders.own_indexes(topic))
        others = []
        for index in range(len(topic.partitions)):
            topic_partition = TopicPartition(topic.name, index)
            if index in own:
                self._elsewhere.discard(topic_partition)
            else:
                others.append(topic_partition)
                self.unmade.pop(topic_partition, None)
        self._elsewhere.update(others)
        for replica in self._held.get(topic.name, NOTHING_HELD).values():
            replica.log.use(config)
            if not replica.is_busy:
                self._assign(replica, topic, image.end_offset)
        return others

    def _assign(self, replica: Replica, topic: TopicImage, end_offset: int) -> None:
        partition = topic.partitions[replica.index]
        replica.is_in_sync = self._settings.config.node_id in partition.in_sync_replicas
        min_in_sync = replica.log.config.min_insync_replicas
        change = replica.assign(partition, end_offset, min_in_sync, self.place.lived_ms)
        if change is not None:
            self._changed(replica, change)
        replica.take_over()

    def _changed(self, replica: Replica, change: RoleChange) -> None:
        led = self._led.setdefault(replica.topic, {})
        if isinstance(change.before, LeaderRole):
            led.pop(replica.index, None)
            self._leaderships.lost(replica)
        if isinstance(change.after, LeaderRole):
            led[replica.index] = replica
        if not isinstance(change.after, OfflineRole) and not replica.is_all_durable:
            self._flusher.mark(replica.log)
        for listener in self._listeners:
            listener.changed(replica, change)

    # Damaged logs.

    def read_failed(self, replica: Replica, error: Exception) -> None:
        """Handle a failed read of a log. The log can be damaged."""
        if is_damage(error):
            self.found_damaged(replica, str(error))

    def found_damaged(self, replica: Replica, reason: str) -> None:
        """Mark a log as damaged. It stays in service until another broker leads the partition,
        because its readable part can be the only copy."""
        if replica in self.damaged or not self.holds(replica):
            return
        self.damaged[replica] = reason
        # Use the epoch in the image, because the replica's own epoch is older while its log is
        # truncated.
        partition = self._image.topics[replica.topic].partitions[replica.index]
        self._damaged_epochs[replica] = partition.leader_epoch
        logger.error(
            "a log is damaged; it stays in service until another broker leads the partition",
            extra=fields(
                partition=replica.topic_partition, reason=reason, is_leader=replica.is_led
            ),
        )
        for listener in self._listeners:
            listener.damaged(replica)

    def _give_up_damaged(self) -> list[Log]:
        """Take damaged replicas of partitions that another broker leads out of service. Return
        their logs.

        This happens only when a leader epoch of that broker begins. If this broker fetched from the
        end of its damaged log earlier in the epoch, the leader could propose it as in sync although
        its new log is empty.
        """
        given_up = []
        for replica, reason in list(self.damaged.items()):
            partition = self._image.topics[replica.topic].partitions[replica.index]
            before = self._damaged_epochs[replica]
            self._damaged_epochs[replica] = partition.leader_epoch
            is_new = partition.leader_epoch > before
            # Later in its epoch the leader knows the end of the damaged log, and would add the
            # empty log to the in-sync replicas (decision 0077). Until the next epoch begins, the
            # mark `found-damaged` keeps a restart from trusting the log (`storage/damage_mark`).
            if not is_new or not self._folders.rules.is_led_elsewhere(partition):
                continue
            given_up.append(self._take_out(replica, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            self.logs.take_offline(replica.log, reason)
        return given_up

    def begin_truncation(self, replica: Replica, ready: Callable[[], None]) -> None:
        """Call `ready` when no thread works on the log's files. `ready` decides again whether to
        truncate."""
        self._flusher.drain([replica.log], ready)

    def end_truncation(self, replica: Replica) -> None:
        """Put a truncated log back into service, in the role that the newest metadata gives it."""
        replica.is_busy = False
        replica.truncated()
        topic = self._image.topics.get(replica.topic)
        if topic is not None and topic.topic_id == replica.log.topic_id:
            self._assign(replica, topic, self._image.end_offset)
        if replica.is_led:
            self._leaderships.led_late()
