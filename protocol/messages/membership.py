"""A broker and the active controller: registration, heartbeats, in-sync replicas, orders.

Floor: messages. Data only. A broker epoch is the offset of the broker's registration in the
metadata log: every request that depends on it carries it, so that what an earlier incarnation sent
is refused.
"""

from protocol.messages.api import ApiKey
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
"""Tagged fields from here on are ours, in messages that are Kafka's (decision 0056)."""


class RegistrationListener(Struct):
    """An address at which the broker can be reached; officially Listener."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class RegistrationFeature(Struct):
    """The levels of a feature that the broker has; officially Feature."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class DamagedTopic(Struct):
    """Partitions of one topic whose logs are damaged or gone; ours."""

    name: str = string()
    partitions: list[int] = array(int32)


class BrokerRegistrationRequest(
    Message, api_key=ApiKey.BROKER_REGISTRATION, versions=(4, 4), flexible=0
):
    """A broker that has started asks for its broker epoch.

    The same `incarnation_id` again gets the same epoch. `log_dirs` are the ids of its directories;
    `previous_broker_epoch` is that of a process after which nothing written is lost, else -1;
    `damaged` names what is lost all the same (decision 0068).
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


class BrokerRegistrationResponse(
    Message, api_key=ApiKey.BROKER_REGISTRATION, versions=(4, 4), flexible=0
):
    """The broker epoch; -1 if refused, and `error_message` says why, for whoever starts it."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
    error_message: str | None = string(nullable=0, tag=OUR_TAGS, default=None)


class BrokerHeartbeatRequest(Message, api_key=ApiKey.BROKER_HEARTBEAT, versions=(1, 1), flexible=0):
    """A sign of life, and what the broker wants next.

    `current_metadata_offset` is the highest offset of the metadata log that it has replayed;
    `damaged` names logs that were found damaged while it served (decision 0077).
    """

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[Uuid] = array(uuid_, tag=0)
    damaged: list[DamagedTopic] = array(DamagedTopic, tag=OUR_TAGS)


class BrokerHeartbeatResponse(
    Message, api_key=ApiKey.BROKER_HEARTBEAT, versions=(1, 1), flexible=0
):
    """What the broker may do; it serves nobody while it is fenced.

    `metadata_end_offset`: all that the controller had decided when it heard the broker stands below
    it, and is committed. A broker that has replayed so far knows all that it is judged by.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
    metadata_end_offset: int = int64(tag=OUR_TAGS, default=-1)


class UnregisterBrokerRequest(
    Message, api_key=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0
):
    """Forget a broker that will not come back."""

    broker_id: int = int32()


class UnregisterBrokerResponse(
    Message, api_key=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0
):
    """Whether it is forgotten."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class BrokerState(Struct):
    """A replica proposed for the in-sync set, with the broker epoch it fetched under (KIP-903)."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AlterPartitionRequestPartition(Struct):
    """One partition's proposed in-sync replicas; officially PartitionData.

    `partition_epoch` is the one the proposal starts from: a change in between refuses it.
    """

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr_with_epochs: list[BrokerState] = array(BrokerState)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class AlterPartitionRequestTopic(Struct):
    """One topic of an AlterPartitionRequest; officially TopicData."""

    topic_id: Uuid = uuid_()
    partitions: list[AlterPartitionRequestPartition] = array(AlterPartitionRequestPartition)


class AlterPartitionRequest(Message, api_key=ApiKey.ALTER_PARTITION, versions=(3, 3), flexible=0):
    """A leader proposes who is in sync."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionRequestTopic] = array(AlterPartitionRequestTopic)


class AlterPartitionResponsePartition(Struct):
    """One partition as the controller has it; officially PartitionData."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class AlterPartitionResponseTopic(Struct):
    """One topic of an AlterPartitionResponse; officially TopicData."""

    topic_id: Uuid = uuid_()
    partitions: list[AlterPartitionResponsePartition] = array(AlterPartitionResponsePartition)


class AlterPartitionResponse(Message, api_key=ApiKey.ALTER_PARTITION, versions=(3, 3), flexible=0):
    """The outcome by partition; the in-sync replicas that count come from the replayed log."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionResponseTopic] = array(AlterPartitionResponseTopic)


class EnvelopeRequest(Message, api_key=ApiKey.ENVELOPE, versions=(0, 0), flexible=0):
    """A client's request, header and body, passed on to the active controller (KIP-590).

    `client_host_address` is the client's, 4 or 16 bytes: limits count there.
    """

    request_data: bytes = bytes_()
    request_principal: bytes | None = bytes_(nullable=0)
    client_host_address: bytes = bytes_()


class EnvelopeResponse(Message, api_key=ApiKey.ENVELOPE, versions=(0, 0), flexible=0):
    """The client's answer, header and body; None when the envelope itself was refused."""

    response_data: bytes | None = bytes_(nullable=0, default=None)
    error_code: int = int16()
