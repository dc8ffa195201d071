"""The first requests of a client: versions, coordinators, the brokers of the cluster.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import Message, Struct, array, boolean, int8, int16, int32, int64, string


class ApiVersionsRequest(Message, api_key=ApiKey.API_VERSIONS, versions=(0, 4), flexible=3):
    """Ask for the supported versions. Version 3 adds the client's name."""

    client_software_name: str = string(since=3, ignorable=True)
    client_software_version: str = string(since=3, ignorable=True)


class ApiVersion(Struct):
    """One API and its supported range of versions."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    """A feature that this broker supports."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    """A feature that the cluster has enabled."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Message, api_key=ApiKey.API_VERSIONS, versions=(0, 4), flexible=3):
    """The supported versions by API key.

    Its header is never flexible. A request in an unknown version is answered in version 0 with
    error 35.
    """

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, since=3, tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64(since=3, tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, since=3, tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean(since=3, tag=3, ignorable=True)


class FindCoordinatorRequest(Message, api_key=ApiKey.FIND_COORDINATOR, versions=(0, 4), flexible=3):
    """Ask for coordinators: of `key` up to version 3, of several `coordinator_keys` from version 4
    on.

    `key_type` is 0 for a group and 1 for a transactional id.
    """

    key: str = string(until=3)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(string, since=4)


class Coordinator(Struct):
    """The coordinator of one key."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class FindCoordinatorResponse(
    Message, api_key=ApiKey.FIND_COORDINATOR, versions=(0, 4), flexible=3
):
    """The coordinator up to version 3, `coordinators` from version 4 on."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(until=3)
    error_message: str | None = string(since=1, until=3, nullable=1, default=None, ignorable=True)
    node_id: int = int32(until=3)
    host: str = string(until=3)
    port: int = int32(until=3)
    coordinators: list[Coordinator] = array(Coordinator, since=4)


class DescribeClusterRequest(Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible=0):
    """Ask for the brokers of the cluster.

    Version 1 adds the endpoint type: 1 brokers, 2 controllers. Version 2 asks for fenced brokers
    too (KIP-1073).
    """

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2)


class DescribeClusterBroker(Struct):
    """One broker, with the address of the listener on which the request came."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=0, default=None)
    is_fenced: bool = boolean(since=2)


class DescribeClusterResponse(
    Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible=0
):
    """The brokers and the controller of the cluster."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
