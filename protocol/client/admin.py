"""Administration of a cluster: topics, settings, offsets, groups.

Changes go to the controller, and are repeated only after transient errors. If an earlier attempt
ended without an answer, "already exists" (or "does not exist") counts as success. A method that
changes several items raises the first error after all items have their answer. A query about
several items returns each error in place of its item.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from protocol.client.admin_types import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    GroupDescription,
    ListedGroups,
    OffsetAt,
    TopicSpec,
)
from protocol.client.cluster import Cluster
from protocol.client.config_admin import alter_configs, describe_configs
from protocol.client.connection import ByVersion
from protocol.client.errors import ConnectionLost, UnsupportedVersion, raise_for
from protocol.client.group_admin import describe_groups, list_groups
from protocol.client.metadata import BrokerInfo
from protocol.client.offsets_by_time import list_offsets
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.types import TopicPartition
from protocol.wire.schema import Message

BROKER_DEFAULT = -1

Outcome: TypeAlias = tuple[str, int, str | None]
"""The result for one item of a request: name, error code, message."""


class Admin:
    """Administration over the connections of one cluster; it has no state of its own.

    In every method, `timeout_ms` covers all attempts together (by default the cluster's request
    time-out). Every method can raise BrokerUnreachable, ConnectionLost and UnsupportedVersion.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    # --- topics -------------------------------------------------------------------------------

    async def create_topics(
        self,
        specs: Sequence[TopicSpec],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Create topics. Raises ApiError for the first topic that could not be created."""
        await self._create(specs, validate_only, frozenset(), timeout_ms)

    async def ensure_topics(
        self, specs: Sequence[TopicSpec], *, timeout_ms: int | None = None
    ) -> tuple[str, ...]:
        """Create the missing topics, wait until all topics have leaders, and return the created
        names.

        Existing topics are not changed, even if their partitions and settings differ.
        """
        names = [spec.name for spec in specs]
        current = await self.cluster.metadata(names, refresh=True, timeout_ms=timeout_ms)
        missing = [
            spec
            for spec in specs
            if current.topics[spec.name].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        if missing:
            allowed = frozenset({ErrorCode.TOPIC_ALREADY_EXISTS})
            await self._create(missing, False, allowed, timeout_ms)
        for name in names:
            topic = await self.cluster.topic(name, timeout_ms=timeout_ms)
            for partition in topic.partitions:
                await self.cluster.leader(TopicPartition(name, partition), timeout_ms=timeout_ms)
        return tuple(spec.name for spec in missing)

    async def _create(
        self,
        specs: Sequence[TopicSpec],
        validate_only: bool,
        allowed: frozenset[ErrorCode],
        timeout_ms: int | None,
    ) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=spec.name,
                    num_partitions=spec.partitions or BROKER_DEFAULT,
                    replication_factor=spec.replication or BROKER_DEFAULT,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=place, broker_ids=list(nodes))
                        for place, nodes in enumerate(spec.assignments)
                    ],
                    configs=[
                        CreatableTopicConfig(name=key, value=value)
                        for key, value in spec.settings.items()
                    ],
                )
                for spec in specs
            ],
            timeout_ms=self.cluster.request_timeout_ms,
            validate_only=validate_only,
        )

        def outcomes(response: CreateTopicsResponse) -> list[Outcome]:
            return [(t.name, t.error_code, t.error_message) for t in response.topics]

        await self._change(request, outcomes, allowed, ErrorCode.TOPIC_ALREADY_EXISTS, timeout_ms)

    async def delete_topics(self, names: Collection[str], *, timeout_ms: int | None = None) -> None:
        """Delete topics. Raises ApiError for the first topic that could not be deleted."""
        request = ByVersion(
            ApiKey.DELETE_TOPICS,
            lambda version: DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name) for name in names] if version >= 6 else [],
                topic_names=list(names),
                timeout_ms=self.cluster.request_timeout_ms,
            ),
        )

        def outcomes(response: DeleteTopicsResponse) -> list[Outcome]:
            return [(t.name or "", t.error_code, t.error_message) for t in response.responses]

        await self._change(
            request, outcomes, frozenset(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, timeout_ms
        )

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Raise the partition counts of topics. Raises ApiError for the first topic that is
        refused.

        `assignments` are the replica ids of each added partition.
        """
        chosen = assignments or {}
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(
                    name=name,
                    count=count,
                    assignments=[
                        CreatePartitionsAssignment(broker_ids=list(nodes)) for nodes in chosen[name]
                    ]
                    if name in chosen
                    else None,
                )
                for name, count in counts.items()
            ],
            timeout_ms=self.cluster.request_timeout_ms,
        )

        def outcomes(response: CreatePartitionsResponse) -> list[Outcome]:
            return [(t.name, t.error_code, t.error_message) for t in response.results]

        await self._change(request, outcomes, frozenset(), ErrorCode.INVALID_PARTITIONS, timeout_ms)

    async def _change(
        self,
        request: Message | ByVersion,
        outcomes: Callable[[Any], list[Outcome]],
        allowed: frozenset[ErrorCode],
        done_already: ErrorCode,
        timeout_ms: int | None,
    ) -> None:
        """Send a change to the controller until every item is done.

        `outcomes` returns the result of each item in a response.
        """
        done: set[str] = set()
        uncertain = False

        async def attempt(left_ms: int) -> None:
            nonlocal uncertain
            try:
                response = await self._ask_controller(request, left_ms)
            except ConnectionLost:
                uncertain = True
                raise
            refusals: list[ApiError] = []
            for name, number, message in outcomes(response):
                code = ErrorCode.of(number)
                if code == ErrorCode.REQUEST_TIMED_OUT:
                    uncertain = True
                if not code or code in allowed or (uncertain and code == done_already):
                    done.add(name)
                elif name not in done:
                    refusals.append(ApiError(code, f"{name}: {message or code.description}"))
            # Permanent errors come first, because the caller must see them before transient errors.
            refusals.sort(key=lambda error: error.code.retriable)
            if refusals:
                raise refusals[0]

        await self.cluster.repeat(attempt, timeout_ms)

    async def _ask_controller(self, request: Message | ByVersion, timeout_ms: int) -> Any:
        current = self.cluster.current
        known = current.controller_id in current.brokers
        response = await self.cluster.request(
            current.controller_id if known else None, request, timeout_ms=timeout_ms
        )
        if _says_not_controller(response):
            await self.cluster.metadata((), refresh=True)
        return response

    # --- settings -----------------------------------------------------------------------------

    async def describe_configs(
        self,
        resources: Collection[ConfigResource],
        names: Collection[str] | None = None,
        *,
        with_synonyms: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the settings in effect (`names` None: all).

        Raises ApiError for the first resource that the broker refuses.
        """
        return await describe_configs(
            self.cluster, resources, names, with_synonyms=with_synonyms, timeout_ms=timeout_ms
        )

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Change settings; None restores the default. Settings that are not named do not change.

        Raises ApiError for the first resource that the broker refuses.
        """
        await alter_configs(
            self.cluster, changes, validate_only=validate_only, timeout_ms=timeout_ms
        )

    # --- queries ------------------------------------------------------------------------------

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: int = 0,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """Return the offset for each timestamp, EARLIEST_TIMESTAMP or LATEST_TIMESTAMP, or its
        error."""
        return await list_offsets(
            self.cluster, timestamps, isolation_level=isolation_level, timeout_ms=timeout_ms
        )

    async def list_groups(self, *, timeout_ms: int | None = None) -> ListedGroups:
        """Return all groups of all coordinators. `failures` has the brokers that do not answer."""
        return await list_groups(self.cluster, timeout_ms=timeout_ms)

    async def describe_groups(
        self, group_ids: Collection[str], *, timeout_ms: int | None = None
    ) -> dict[str, GroupDescription]:
        """Return the state and members of groups.

        A group that cannot be described has its error.
        """
        return await describe_groups(self.cluster, group_ids, timeout_ms=timeout_ms)

    async def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """Return the brokers of the cluster.

        Brokers older than Kafka 2.8 get a Metadata request.
        """

        async def attempt(left_ms: int) -> ClusterDescription:
            try:
                response: DescribeClusterResponse = await self.cluster.request(
                    None, DescribeClusterRequest(), timeout_ms=left_ms
                )
            except UnsupportedVersion:
                current = await self.cluster.metadata((), refresh=True, timeout_ms=left_ms)
                return ClusterDescription(
                    current.cluster_id, current.controller_id, current.brokers
                )
            raise_for(response.error_code, response.error_message)
            return ClusterDescription(
                response.cluster_id,
                response.controller_id,
                {
                    broker.broker_id: BrokerInfo(
                        broker.broker_id, broker.host, broker.port, broker.rack
                    )
                    for broker in response.brokers
                },
            )

        return await self.cluster.repeat(attempt, timeout_ms)


def _says_not_controller(response: Any) -> bool:
    if isinstance(response, CreateTopicsResponse):
        codes = [topic.error_code for topic in response.topics]
    elif isinstance(response, DeleteTopicsResponse):
        codes = [topic.error_code for topic in response.responses]
    else:
        codes = [topic.error_code for topic in response.results]
    return ErrorCode.NOT_CONTROLLER in codes
