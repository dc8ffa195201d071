"""The controller: it decides every change of the cluster's metadata.

This module is pure: `handle(input, image, now_ms) -> ControllerDecision`. The controller has no
state except its settings and its random source. The caller appends the decision's records to the
metadata log. It sends the reply once these records are durable and replayed.
"""

from __future__ import annotations

from random import Random
from typing import Any

from broker.config import BrokerConfig
from broker.controller.acls import create_acls, delete_acls
from broker.controller.alter_partition import alter_partition
from broker.controller.config_changes import alter_fully, alter_incrementally
from broker.controller.credentials import alter_credentials
from broker.controller.elections import ElectPreferred, elect_leaders, elect_preferred
from broker.controller.features import FeatureUpdate, update_features
from broker.controller.liveness import DeadBroker, Heartbeat, decide_heartbeat, fence_dead
from broker.controller.outcome import (
    AllocateProducerIds,
    CompleteReassignments,
    ControllerDecision,
    CreateOwnTopic,
)
from broker.controller.own_credentials import changes_own_credential, is_enrolling
from broker.controller.permits import decide_permitted
from broker.controller.producer_ids import allocate_block, allocate_producer_ids
from broker.controller.quotas import alter_quotas
from broker.controller.reassign import alter_reassignments, complete_reassignments
from broker.controller.registration import Registration, register, register_alone, unregister
from broker.controller.topic_changes import create_partitions, delete_topics
from broker.controller.topics import create_own_topic, create_topics
from broker.metadata.image import METADATA_TOPIC_ID, MetadataImage
from broker.security.denials import NotesDenials
from broker.security.rights import EnrolmentRights, Rights, UserRights
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest
from protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
)
from protocol.messages.membership import AlterPartitionRequest, UnregisterBrokerRequest
from protocol.messages.producer_ids import AllocateProducerIdsRequest
from protocol.messages.quotas import AlterClientQuotasRequest
from protocol.messages.scram import AlterUserScramCredentialsRequest
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from protocol.types import ZERO_UUID, Uuid, random_uuid

FromBrokers = (
    Registration
    | Heartbeat
    | DeadBroker
    | AlterPartitionRequest
    | AllocateProducerIdsRequest
    | ElectPreferred
    | CompleteReassignments
)
"""The requests that brokers send for themselves and need in order to work.

The limits of the queue do not apply to them, because each broker sends only a few.
"""

ControllerInput = (
    FromBrokers
    | CreateTopicsRequest
    | DeleteTopicsRequest
    | CreatePartitionsRequest
    | IncrementalAlterConfigsRequest
    | AlterConfigsRequest
    | CreateOwnTopic
    | ElectLeadersRequest
    | AlterPartitionReassignmentsRequest
    | UnregisterBrokerRequest
    | FeatureUpdate
    | AlterUserScramCredentialsRequest
    | AlterClientQuotasRequest
    | CreateAclsRequest
    | DeleteAclsRequest
    | AllocateProducerIds
)

RESERVED_IDS = frozenset({ZERO_UUID, METADATA_TOPIC_ID})
"""Ids that no topic may have: Kafka's null id, and the id of the metadata log."""


class Controller:
    """Decides controller requests.

    `random` gives the ids of new topics, so a test can repeat a run with the same seed. The caller
    replaces `config` when settings change.
    """

    def __init__(self, config: BrokerConfig, random: Random, denials: NotesDenials) -> None:
        self.config = config
        self._random = random
        self._denials = denials

    def handle(
        self,
        order: ControllerInput,
        image: MetadataImage,
        now_ms: int,
        host: str | None = None,
        user: str | None = None,
    ) -> ControllerDecision[Any]:
        """Decide one controller request against the image that includes all earlier decisions.

        `now_ms` is wall time, because credentials end at a wall time. The rights of `user` are read
        from this image, so a right that an earlier decision removed is not used any more. If `user`
        is None, everything is allowed. Raises ApiError if the whole request is refused.
        """
        if user is None:
            return self._decide(order, image, now_ms)
        if changes_own_credential(order, image, user, now_ms):
            return self._decide(order, image, now_ms)
        rights = self._rights_of(user, host or "", image)
        return decide_permitted(
            order, image, rights, lambda left: self._decide(left, image, now_ms)
        )

    def _rights_of(self, user: str, host: str, image: MetadataImage) -> Rights:
        if is_enrolling(user, image):
            return EnrolmentRights(user, host, self._denials)
        supers = self.config.super_user_names
        return UserRights(user, host, lambda: image.acls, supers, self._denials)

    def _decide(
        self, order: ControllerInput, image: MetadataImage, now_ms: int
    ) -> ControllerDecision[Any]:
        if isinstance(order, FromBrokers):
            return self._of_brokers(order, image)
        match order:
            case CreateTopicsRequest():
                return create_topics(order, image, self.config, self._new_topic_id)
            case CreateOwnTopic():
                return create_own_topic(order, image, self.config, self._new_topic_id)
            case DeleteTopicsRequest():
                return delete_topics(order, image, self.config)
            case CreatePartitionsRequest():
                return create_partitions(order, image, self.config)
            case IncrementalAlterConfigsRequest():
                return alter_incrementally(order, image, self.config)
            case AlterConfigsRequest():
                return alter_fully(order, image, self.config)
            case ElectLeadersRequest():
                return elect_leaders(order, image, self.config)
            case AlterPartitionReassignmentsRequest():
                return alter_reassignments(order, image, self.config)
            case UnregisterBrokerRequest():
                return unregister(order, image)
            case FeatureUpdate():
                return update_features(order, image)
            case AlterUserScramCredentialsRequest():
                return alter_credentials(order, image, now_ms)
            case AlterClientQuotasRequest():
                return alter_quotas(order, image)
            case CreateAclsRequest():
                return create_acls(order, image, self._new_acl_id)
            case DeleteAclsRequest():
                return delete_acls(order, image)
            case AllocateProducerIds():
                return allocate_producer_ids(order, image)

    def _of_brokers(self, order: FromBrokers, image: MetadataImage) -> ControllerDecision[Any]:
        match order:
            case Registration(request):
                if order.facts is None:
                    return register_alone(request, image)
                return register(request, image, self.config, order.facts)
            case Heartbeat():
                return decide_heartbeat(order, image, self.config)
            case DeadBroker():
                return fence_dead(order, image, self.config)
            case AlterPartitionRequest():
                return alter_partition(order, image, self.config)
            case AllocateProducerIdsRequest():
                return allocate_block(order, image)
            case ElectPreferred():
                return elect_preferred(order, image, self.config)
            case CompleteReassignments():
                return complete_reassignments(order, image, self.config)

    def _new_topic_id(self) -> Uuid:
        while True:
            topic_id = self._new_acl_id()
            if topic_id not in RESERVED_IDS:
                return topic_id

    def _new_acl_id(self) -> Uuid:
        return random_uuid(self._random.randbytes(16))
