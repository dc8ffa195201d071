"""The cluster's metadata at one offset of its log, as an immutable object.

This module is pure. An image is the result of replaying the log up to `end_offset`, and contains
nothing else. `MetadataDelta` collects the records of one commit. It returns the next image. It also
says which topics were added, removed or changed, for code that keeps state per topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from broker.metadata.acl_changes import AclChanges
from broker.metadata.broker_image import BrokerImage, registered_broker
from broker.metadata.credential_records import CredentialKey, credential_in
from broker.metadata.features import check_level
from broker.metadata.names import normalised
from broker.metadata.partition_image import PartitionImage
from broker.metadata.quota_changes import QuotaChanges, QuotaValues
from broker.metadata.records import (
    BROKER_RESOURCE,
    FENCED,
    IN_CONTROLLED_SHUTDOWN,
    TOPIC_RESOURCE,
    UNFENCED,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from broker.metadata.records import ImpossibleRecord as ImpossibleRecord
from broker.security.acl_table import NO_ACLS, AclTable
from protocol.security.scram import Mechanism, ScramCredential
from protocol.types import TopicPartition, Uuid

T = TypeVar("T")

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = Uuid(int=1)
"""Kafka's id of the metadata log. No other topic gets this id."""
METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
"""The only partition of the metadata log."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, METADATA_TOPIC})


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic. `partitions` are ordered by index."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionImage, ...]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The content of the metadata log below `end_offset`."""

    end_offset: int = 0
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[Uuid, str] = field(default_factory=dict)
    normalised_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The topics of each normalised name. Each name has one topic, except in a log of an older
    version."""
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    """The level of each feature. A missing feature has level 0."""
    credentials: Mapping[CredentialKey, ScramCredential] = field(default_factory=dict)
    """The credentials of users, by name and mechanism."""
    acls: AclTable = NO_ACLS
    quotas: QuotaValues = field(default_factory=dict)
    moving: Mapping[Uuid, tuple[int, ...]] = field(default_factory=dict)
    """The partitions that are being reassigned, by topic id."""

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def colliding(self, name: str) -> tuple[str, ...]:
        """Return the topics with the same normalised name. Their names differ from this name only
        in dots and underscores, or not at all."""
        return self.normalised_names.get(normalised(name), ())

    def settings(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return a resource's own settings, by Kafka's key."""
        return self.configs.get((resource_type, name), NO_SETTINGS)

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())


class MetadataDelta:
    """The records between two images, and the differences that they make. `removed`: topics of the
    old image that do not exist any more, by id. `touched`: names of topics whose partitions or
    settings differ in the new image. `changes_nodes`: True if settings of brokers differ.
    `credentials`: the credentials that were written or removed. `changes_acls`: True if the ACLs
    differ. `changes_quotas`: True if the client quotas differ."""

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.removed: list[TopicImage] = []
        self.touched: set[str] = set()
        self.changes_nodes = False
        self.credentials: set[CredentialKey] = set()
        self.changes_acls = self.changes_quotas = False
        self._brokers = dict(base.brokers)
        self._topics = dict(base.topics)
        self._topic_names = dict(base.topic_names)
        self._normalised_names = dict(base.normalised_names)
        self._configs = dict(base.configs)
        self._next_producer_id = base.next_producer_id
        self._features = dict(base.features)
        self._credentials = dict(base.credentials)
        self._acls = AclChanges(base.acls)
        self._quotas = QuotaChanges(base.quotas)
        self._moving: dict[Uuid, set[int]] = {}
        """The partitions that are being reassigned, of each topic with a changed partition."""
        self._partitions: dict[Uuid, list[PartitionImage]] = {}

    def replay_all(self, records: Iterable[MetadataRecord]) -> MetadataDelta:
        """Replay records in log order. Raises ImpossibleRecord at the first contradiction."""
        for record in records:
            self.replay(record)
        return self

    def replay(self, record: MetadataRecord) -> None:
        """Replay the next record of the log, or raise ImpossibleRecord without any change.

        Raises UnknownMetadataRecord if the log is of a later version and cannot be read.
        """
        match record:
            case PartitionRecord():
                self._add_partition(record)
            case PartitionChangeRecord():
                self._change_partition(record)
            case TopicRecord():
                self._add_topic(record)
            case RemoveTopicRecord():
                self._remove_topic(record)
            case ConfigRecord():
                self._set_config(record)
            case RegisterBrokerRecord():
                self._brokers[record.broker_id] = registered_broker(record)
            case UnregisterBrokerRecord():
                self._registered_as(record.broker_id, record.broker_epoch)
                del self._brokers[record.broker_id]
            case FenceBrokerRecord():
                self._set_fence(record.broker_id, record.broker_epoch, is_fenced=True)
            case UnfenceBrokerRecord():
                self._set_fence(record.broker_id, record.broker_epoch, is_fenced=False)
            case BrokerRegistrationChangeRecord():
                self._change_registration(record)
            case FeatureLevelRecord():
                self._set_feature(record)
            case NoOpRecord():
                pass
            case ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case UserScramCredentialRecord():
                self._set_credential(record, credential_in(record))
            case RemoveUserScramCredentialRecord():
                self._set_credential(record, None)
            case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
                self._acls.replay(record)
                self.changes_acls = True
            case ClientQuotaRecord():
                self._quotas.replay(record)
                self.changes_quotas = True

    def image(self, end_offset: int) -> MetadataImage:
        """Return the image after all replayed records. `end_offset` is the end offset of their
        batch in the log. The offset does not follow from the number of records, because the log
        also has batches of the quorum itself."""
        topics = dict(self._topics)
        for topic_id, partitions in self._partitions.items():
            name = self._topic_names[topic_id]
            topics[name] = replace(topics[name], partitions=tuple(partitions))
        moving = dict(self.base.moving)
        for topic_id, numbers in self._moving.items():
            moving.pop(topic_id, None)
            if numbers:
                moving[topic_id] = tuple(sorted(numbers))
        return MetadataImage(
            end_offset=end_offset,
            brokers=self._brokers,
            topics=topics,
            topic_names=self._topic_names,
            normalised_names=self._normalised_names,
            configs=self._configs,
            next_producer_id=self._next_producer_id,
            features=self._features,
            credentials=self._credentials,
            acls=self._acls.table(),
            quotas=self._quotas.values(),
            moving=moving,
        )

    def _registered_as(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        broker = self._brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            known = "none" if broker is None else f"epoch {broker.broker_epoch}"
            raise ImpossibleRecord(
                f"broker {broker_id} is registered under {known}, but the record is for epoch "
                f"{broker_epoch}"
            )
        return broker

    def _set_fence(self, broker_id: int, broker_epoch: int, is_fenced: bool) -> None:
        broker = self._registered_as(broker_id, broker_epoch)
        self._brokers[broker_id] = replace(broker, is_fenced=is_fenced)

    def _change_registration(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._registered_as(record.broker_id, record.broker_epoch)
        fences = {FENCED: True, UNFENCED: False}
        self._brokers[record.broker_id] = replace(
            broker,
            is_fenced=fences.get(record.fenced, broker.is_fenced),
            is_stopping=broker.is_stopping
            or record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN,
            directory_ids=tuple(record.log_dirs) or broker.directory_ids,
        )

    def _set_feature(self, record: FeatureLevelRecord) -> None:
        check_level(record)
        self._features.pop(record.name, None)
        if record.feature_level:
            self._features[record.name] = record.feature_level

    def _add_topic(self, record: TopicRecord) -> None:
        name, topic_id = record.name, record.topic_id
        if name in self._topics or topic_id in self._topic_names:
            raise ImpossibleRecord(f"topic '{name}' with id {topic_id} already exists")
        self._topics[name] = TopicImage(name, topic_id, ())
        self._topic_names[topic_id] = name
        key = normalised(name)
        self._normalised_names[key] = (*self._normalised_names.get(key, ()), name)
        self.touched.add(name)

    def _name_of(self, topic_id: Uuid) -> str:
        name = self._topic_names.get(topic_id)
        if name is None:
            raise ImpossibleRecord(f"there is no topic with id {topic_id}")
        return name

    def _partition_count(self, topic_id: Uuid) -> int:
        name = self._name_of(topic_id)
        return len(self._partitions.get(topic_id, self._topics[name].partitions))

    def _partitions_of(self, topic_id: Uuid) -> list[PartitionImage]:
        """Return the topic's partitions as a list that can be changed."""
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            name = self._topic_names[topic_id]
            self.touched.add(name)
            partitions = self._partitions[topic_id] = list(self._topics[name].partitions)
        return partitions

    def _add_partition(self, record: PartitionRecord) -> None:
        count = self._partition_count(record.topic_id)
        if record.partition_id != count:
            name = self._topic_names[record.topic_id]
            raise ImpossibleRecord(
                f"found a new partition {record.partition_id} of topic '{name}', expected "
                f"partition {count}"
            )
        partitions = self._partitions_of(record.topic_id)
        partitions.append(
            PartitionImage(
                replicas=tuple(record.replicas),
                in_sync_replicas=tuple(record.isr),
                leader=record.leader,
                leader_epoch=record.leader_epoch,
                partition_epoch=record.partition_epoch,
                eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
                last_known_elr=tuple(record.last_known_elr or ()),
                leader_recovery_state=record.leader_recovery_state,
                removing_replicas=tuple(record.removing_replicas),
                adding_replicas=tuple(record.adding_replicas),
                directories=tuple(record.directories),
            )
        )
        self._note_move(record.topic_id, record.partition_id, partitions[-1])

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        if not 0 <= record.partition_id < self._partition_count(record.topic_id):
            name = self._topic_names[record.topic_id]
            raise ImpossibleRecord(f"topic '{name}' has no partition {record.partition_id}")
        partitions = self._partitions_of(record.topic_id)
        changed = partitions[record.partition_id].changed(record)
        partitions[record.partition_id] = changed
        self._note_move(record.topic_id, record.partition_id, changed)

    def _note_move(self, topic_id: Uuid, number: int, partition: PartitionImage) -> None:
        """Keep the index of reassignments up to date."""
        numbers = self._moving.get(topic_id)
        if numbers is None:
            numbers = self._moving[topic_id] = set(self.base.moving.get(topic_id, ()))
        if partition.is_moving:
            numbers.add(number)
        else:
            numbers.discard(number)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self._name_of(record.topic_id)
        del self._topic_names[record.topic_id]
        del self._topics[name]
        key = normalised(name)
        others = tuple(one for one in self._normalised_names.pop(key) if one != name)
        if others:
            self._normalised_names[key] = others
        self._partitions.pop(record.topic_id, None)
        self._configs.pop((TOPIC_RESOURCE, name), None)
        self._moving[record.topic_id] = set()
        self.touched.discard(name)
        known = self.base.topic_by_id(record.topic_id)
        if known is not None:
            self.removed.append(known)

    def _set_config(self, record: ConfigRecord) -> None:
        if record.resource_type == TOPIC_RESOURCE and record.resource_name not in self._topics:
            # A later topic with this name would inherit the setting.
            raise ImpossibleRecord(
                f"the setting {record.name} is for topic '{record.resource_name}', which does "
                "not exist"
            )
        key = (record.resource_type, record.resource_name)
        settings = dict(self._configs.get(key, NO_SETTINGS))
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            self._configs[key] = settings
        else:
            self._configs.pop(key, None)
        if record.resource_type == TOPIC_RESOURCE:
            self.touched.add(record.resource_name)
        elif record.resource_type == BROKER_RESOURCE:
            self.changes_nodes = True

    def _set_credential(
        self,
        record: UserScramCredentialRecord | RemoveUserScramCredentialRecord,
        credential: ScramCredential | None,
    ) -> None:
        try:
            key = record.name, Mechanism(record.mechanism)
        except ValueError as error:
            raise ImpossibleRecord(
                f"the credential of user '{record.name}' has mechanism {record.mechanism}, "
                "which is not known"
            ) from error
        if credential is not None:
            self._credentials[key] = credential
        elif self._credentials.pop(key, None) is None:
            raise ImpossibleRecord(f"user '{record.name}' has no credential for {key[1].sasl_name}")
        self.credentials.add(key)
