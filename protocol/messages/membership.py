"""Requests of brokers to the active controller: registration, heartbeats, in-sync replicas,
envelopes.

This module has only data classes. A broker epoch is the offset of the broker's registration in the
metadata log. Every request that depends on the registration has the broker epoch, so requests of an
earlier process of the broker are refused.
"""

from protocol.messages.api import ApiKey
from protocol.messages.consumer_protocol import NO_API_KEY
from protocol.types import Uuid
from protocol.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid_,
)

OUR_TAGS = 10_000
"""The first number of our own tagged fields in Kafka's messages (decision 0056)."""


class RegistrationListener(Struct):
    """One address of the broker. Kafka's name is Listener."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class RegistrationFeature(Struct):
    """The levels of a feature that the broker supports. Kafka's name is Feature."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class DamagedTopic(Struct):
    """The partitions of one topic whose logs are damaged or gone. Kafka has no such message."""

    name: str = string()
    partitions: list[int] = array(int32)


class BrokerRegistrationRequest(
    Message, api_key=ApiKey.BROKER_REGISTRATION, versions=(4, 4), flexible=0
):
    """The request of a started broker for its broker epoch.

    A request with the same `incarnation_id` gets the same epoch. `log_dirs` are the ids of the log
    directories. `previous_broker_epoch` is the epoch of a former process that lost no data, else
    -1. `damaged` names logs that are damaged although that process lost no data (decision 0068).
    `can_be_old_copy` means that the directories can be older than the process that last registered
    with them (decision 0220).
    """

    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: Uuid = uuid_()
    listeners: list[RegistrationListener] = array(RegistrationListener)
    features: list[RegistrationFeature] = array(RegistrationFeature)
    rack: str | None = string(nullable=0)
    is_migrating_zk_broker: bool = boolean()
    log_dirs: list[Uuid] = array(uuid_)
    previous_broker_epoch: int = int64(default=-1)
    damaged: list[DamagedTopic] = array(DamagedTopic, tag=OUR_TAGS)
    can_be_old_copy: bool = boolean(tag=OUR_TAGS + 1, default=False)


class BrokerRegistrationResponse(
    Message, api_key=ApiKey.BROKER_REGISTRATION, versions=(4, 4), flexible=0
):
    """The controller's answer to a broker registration.

    `broker_epoch` is -1 if the controller refuses. Then `error_message` gives the operator the
    reason.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
    error_message: str | None = string(nullable=0, tag=OUR_TAGS, default=None)


class BrokerHeartbeatRequest(Message, api_key=ApiKey.BROKER_HEARTBEAT, versions=(1, 1), flexible=0):
    """A sign that the broker is alive, and the state that it wants.

    `current_metadata_offset` is the highest offset of the metadata log that the broker has
    replayed. `damaged` names logs that were found damaged while they were in use (decision 0077).
    `sent_at_ms` is the broker's wall clock (decision 0235).
    """

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[Uuid] = array(uuid_, tag=0)
    damaged: list[DamagedTopic] = array(DamagedTopic, tag=OUR_TAGS)
    sent_at_ms: int = int64(tag=OUR_TAGS + 1, default=-1)


class BrokerClock(Struct):
    """By how many milliseconds a broker's clock is ahead of the controller's. Kafka has no such
    message."""

    broker_id: int = int32()
    ahead_ms: int = int64()


class BrokerHeartbeatResponse(
    Message, api_key=ApiKey.BROKER_HEARTBEAT, versions=(1, 1), flexible=0
):
    """The state of the broker as the controller sees it. A fenced broker serves no clients.

    All decisions that the controller had made when it got the heartbeat are committed below
    `metadata_end_offset`. A broker that has replayed up to this offset knows all decisions about
    itself. `clocks` has the brokers whose clocks the controller knows (decision 0235).
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
    metadata_end_offset: int = int64(tag=OUR_TAGS, default=-1)
    clocks: list[BrokerClock] = array(BrokerClock, tag=OUR_TAGS + 1)


class UnregisterBrokerRequest(
    Message, api_key=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0
):
    """Remove the registration of a broker that will not come back."""

    broker_id: int = int32()


class UnregisterBrokerResponse(
    Message, api_key=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0
):
    """The error code that tells whether the registration was removed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class BrokerState(Struct):
    """A replica proposed for the in-sync replicas, with the broker epoch with which it fetched
    (KIP-903)."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AlterPartitionRequestPartition(Struct):
    """The proposed in-sync replicas of one partition. Kafka's name is PartitionData.

    The proposal is based on `partition_epoch`. It is refused if the partition has changed since.
    """

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr_with_epochs: list[BrokerState] = array(BrokerState)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class AlterPartitionRequestTopic(Struct):
    """One topic of an AlterPartitionRequest. Kafka's name is TopicData."""

    topic_id: Uuid = uuid_()
    partitions: list[AlterPartitionRequestPartition] = array(AlterPartitionRequestPartition)


class AlterPartitionRequest(Message, api_key=ApiKey.ALTER_PARTITION, versions=(3, 3), flexible=0):
    """A leader's proposal of in-sync replicas."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionRequestTopic] = array(AlterPartitionRequestTopic)


class AlterPartitionResponsePartition(Struct):
    """One partition as the controller knows it. Kafka's name is PartitionData."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class AlterPartitionResponseTopic(Struct):
    """One topic of an AlterPartitionResponse. Kafka's name is TopicData."""

    topic_id: Uuid = uuid_()
    partitions: list[AlterPartitionResponsePartition] = array(AlterPartitionResponsePartition)


class AlterPartitionResponse(Message, api_key=ApiKey.ALTER_PARTITION, versions=(3, 3), flexible=0):
    """The result of an AlterPartition request by partition.

    The in-sync replicas themselves come from the replayed log.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionResponseTopic] = array(AlterPartitionResponseTopic)


class DefaultPrincipal(Message, api_key=NO_API_KEY, versions=(0, 0), flexible=0):
    """The user in an envelope. On the wire an int16 with the version precedes it.

    Kafka's name is DefaultPrincipalData. There are no delegation tokens here.
    """

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()


class EnvelopeRequest(Message, api_key=ApiKey.ENVELOPE, versions=(0, 0), flexible=0):
    """A client's request, header and body, forwarded to the active controller (KIP-590).

    `client_host_address` is the client's IP address in 4 or 16 bytes, because the controller
    applies the client's limits. `request_principal` is the user whose rights count; None for a
    client that may do everything.
    """

    request_data: bytes = bytes_()
    request_principal: bytes | None = bytes_(nullable=0)
    client_host_address: bytes = bytes_()


class EnvelopeResponse(Message, api_key=ApiKey.ENVELOPE, versions=(0, 0), flexible=0):
    """The answer to the client, header and body; None if the envelope itself was refused."""

    response_data: bytes | None = bytes_(nullable=0, default=None)
    error_code: int = int16()
