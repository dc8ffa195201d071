"""A scripted cluster for commands that move replicas: partitions, brokers and reassignments.

Each broker is a scripted server. Reassignments start and are cancelled as KIP-455 demands. They
complete when the test calls `complete`.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages import configs, elections, log_dirs, metadata
from protocol.messages.api import ApiKey
from protocol.messages.cluster import FinalizedFeatureKey, SupportedFeatureKey
from protocol.messages.features import UpdatableFeatureResult, UpdateFeaturesResponse
from protocol.types import TopicPartition
from protocol.wire.schema import Message
from tests.unit.client.scripted_server import (
    ALL_VERSIONS,
    Received,
    ScriptedServer,
    api_versions,
)

MIB = 1 << 20
TOPIC, BROKER = 2, 4
"""The resource types of topics and brokers in AlterConfigs and DescribeConfigs."""
DEFAULT_SOURCE = 5
NODE_IDS = range(1, 6)
"""The ids that a broker can have. Those missing in `FakeCluster.brokers` can be added to it
later."""


@dataclass
class FakePartition:
    replicas: list[int]
    in_sync: list[int]
    leader: int
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)


@dataclass
class FakeCluster:
    """Scripted brokers and their partitions.

    `brokers` maps the ids of running brokers to their racks. Every disk has `free` bytes left.
    `sizes` has the sizes of replicas. A replica that is missing there has 1 MiB, or 0 bytes if a
    reassignment adds it.
    """

    brokers: dict[int, str | None]
    partitions: dict[TopicPartition, FakePartition] = field(default_factory=dict)
    cordoned: set[int] = field(default_factory=set)
    free: int = 1 << 40
    min_isr: int = 1
    asked: list[Any] = field(default_factory=list)
    refuses: ErrorCode = ErrorCode.NONE
    sizes: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    settings: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """The settings that were altered at run time, by type and name of the resource."""
    supported: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The metadata levels that each broker supports. If this is empty, brokers name no features."""
    level: int | None = None
    address: str = ""
    ports: dict[int, int] = field(default_factory=dict)

    def topic(self, name: str, *replicas: list[int]) -> None:
        for number, members in enumerate(replicas):
            self.partitions[TopicPartition(name, number)] = FakePartition(
                list(members), list(members), members[0]
            )

    def replicas(self, name: str) -> list[list[int]]:
        return [one.replicas for tp, one in sorted(self.partitions.items()) if tp.topic == name]

    def complete(self) -> None:
        """Complete all reassignments: drop the removed replicas, and put all others in sync."""
        for one in self.partitions.values():
            one.replicas = [broker for broker in one.replicas if broker not in one.removing]
            one.in_sync = list(one.replicas)
            one.leader = one.replicas[0]
            one.adding, one.removing = [], []

    @contextmanager
    def serving(self) -> Iterator["FakeCluster"]:
        """Serve each broker on its own port, in a thread, while the block runs."""
        loop = asyncio.new_event_loop()
        versions = None if self.supported else ALL_VERSIONS
        servers = {
            one: ScriptedServer(partial(self._answer, one), versions=versions) for one in NODE_IDS
        }
        for node_id, server in servers.items():
            loop.run_until_complete(server.start())
            self.ports[node_id] = server.port
        self.address = servers[NODE_IDS[0]].address
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield self
        finally:
            for server in servers.values():
                asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _answer(self, node_id: int, request: Received) -> Message:
        if request.api_key == ApiKey.API_VERSIONS:
            return self._api_versions(node_id)
        self.asked.append(request.message)
        if request.api_key == ApiKey.DESCRIBE_LOG_DIRS:
            return self._log_dirs(node_id)
        answers = {
            ApiKey.METADATA: self._metadata,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self._describe,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self._list,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self._alter,
            ApiKey.DESCRIBE_CONFIGS: self._configs,
            ApiKey.ELECT_LEADERS: self._elect,
            ApiKey.UPDATE_FEATURES: self._update_features,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self._alter_configs,
        }
        return answers[ApiKey(request.api_key)](request.message)

    def _api_versions(self, node_id: int) -> Message:
        answer = api_versions(ALL_VERSIONS)
        oldest, newest = self.supported[node_id]
        answer.supported_features = [
            SupportedFeatureKey(name="metadata.version", min_version=oldest, max_version=newest)
        ]
        if self.level is not None:
            answer.finalized_features_epoch = 7
            answer.finalized_features = [
                FinalizedFeatureKey(
                    name="metadata.version",
                    max_version_level=self.level,
                    min_version_level=self.level,
                )
            ]
        return answer

    def _update_features(self, request: Any) -> Message:
        results = []
        for update in request.feature_updates:
            wanted = update.max_version_level
            behind = [one for one, levels in self.supported.items() if wanted > levels[1]]
            result = UpdatableFeatureResult(feature=update.feature)
            if behind:
                result.error_code = ErrorCode.INVALID_UPDATE_VERSION
                result.error_message = f"broker {behind[0]} cannot follow"
            elif not request.validate_only:
                self.level = wanted
            results.append(result)
        return UpdateFeaturesResponse(results=results)

    def _of(self, name: str) -> list[tuple[int, FakePartition]]:
        return [
            (tp.partition, one) for tp, one in sorted(self.partitions.items()) if tp.topic == name
        ]

    @property
    def _names(self) -> list[str]:
        return sorted({tp.topic for tp in self.partitions})

    def _metadata(self, request: Any) -> Message:
        names = self._names if request.topics is None else [one.name for one in request.topics]
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataResponseBroker(
                    node_id=one, host="127.0.0.1", port=self.ports[one], rack=rack
                )
                for one, rack in self.brokers.items()
            ],
            controller_id=min(self.brokers),
            topics=[
                metadata.MetadataResponseTopic(
                    name=name,
                    error_code=self._code(name),
                    partitions=[
                        metadata.MetadataResponsePartition(
                            partition_index=number,
                            leader_id=one.leader,
                            replica_nodes=one.replicas,
                            isr_nodes=one.in_sync,
                        )
                        for number, one in self._of(name)
                    ],
                )
                for name in names
            ],
        )

    def _code(self, name: str) -> ErrorCode:
        return ErrorCode.NONE if self._of(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _describe(self, request: Any) -> Message:
        return metadata.DescribeTopicPartitionsResponse(
            topics=[
                metadata.DescribeTopicPartitionsResponseTopic(
                    name=topic.name,
                    error_code=self._code(topic.name),
                    partitions=[
                        metadata.DescribeTopicPartitionsResponsePartition(
                            partition_index=number,
                            leader_id=one.leader,
                            replica_nodes=one.replicas,
                            isr_nodes=one.in_sync,
                            eligible_leader_replicas=[],
                            last_known_elr=[],
                        )
                        for number, one in self._of(topic.name)
                    ],
                )
                for topic in request.topics
            ]
        )

    def _list(self, request: Any) -> Message:
        topics: dict[str, elections.OngoingTopicReassignment] = {}
        for tp, one in sorted(self.partitions.items()):
            if one.adding or one.removing:
                topic = topics.setdefault(
                    tp.topic, elections.OngoingTopicReassignment(name=tp.topic)
                )
                topic.partitions.append(
                    elections.OngoingPartitionReassignment(
                        partition_index=tp.partition,
                        replicas=one.replicas,
                        adding_replicas=one.adding,
                        removing_replicas=one.removing,
                    )
                )
        return elections.ListPartitionReassignmentsResponse(topics=list(topics.values()))

    def _alter(self, request: Any) -> Message:
        response = elections.AlterPartitionReassignmentsResponse()
        for topic in request.topics:
            answer = elections.ReassignableTopicResponse(name=topic.name)
            for asked in topic.partitions:
                one = elections.ReassignablePartitionResponse(
                    partition_index=asked.partition_index, error_code=self.refuses
                )
                tp = TopicPartition(topic.name, asked.partition_index)
                size = len(self.partitions[tp].replicas)
                if not request.allow_replication_factor_change and len(asked.replicas) != size:
                    one.error_code = ErrorCode.INVALID_REPLICATION_FACTOR
                elif not self.refuses:
                    self._move(self.partitions[tp], asked.replicas)
                answer.partitions.append(one)
            response.responses.append(answer)
        return response

    @staticmethod
    def _move(one: FakePartition, target: list[int] | None) -> None:
        original = [broker for broker in one.replicas if broker not in one.adding]
        wanted = original if target is None else target
        one.adding = [broker for broker in wanted if broker not in original]
        one.removing = [broker for broker in original if broker not in wanted]
        one.replicas = [*wanted, *one.removing]

    def _configs(self, request: Any) -> Message:
        results = []
        for resource in request.resources:
            is_cordoned = resource.resource_name in {str(one) for one in self.cordoned}
            values = {
                "cordoned.log.dirs": "*" if is_cordoned else "",
                "min.insync.replicas": str(self.min_isr),
            }
            own = self.settings.get((resource.resource_type, resource.resource_name), {})
            # Kafka gives a value set on the resource itself the source 1 for a topic and 2 for a
            # broker.
            own_source = 1 if resource.resource_type == TOPIC else 2
            wanted = resource.configuration_keys or list(values)
            results.append(
                configs.DescribeConfigsResult(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[
                        configs.DescribeConfigsResourceResult(
                            name=key,
                            value=own.get(key, values.get(key, "")),
                            config_source=own_source if key in own else DEFAULT_SOURCE,
                        )
                        for key in wanted
                    ],
                )
            )
        return configs.DescribeConfigsResponse(results=results)

    def _alter_configs(self, request: Any) -> Message:
        for one in request.resources:
            own = self.settings.setdefault((one.resource_type, one.resource_name), {})
            for change in one.configs:
                if change.value is None:
                    own.pop(change.name, None)
                else:
                    own[change.name] = change.value
        return configs.IncrementalAlterConfigsResponse(
            responses=[
                configs.AlterConfigsResourceResponse(
                    resource_type=one.resource_type, resource_name=one.resource_name
                )
                for one in request.resources
            ]
        )

    def _log_dirs(self, node_id: int) -> Message:
        topics = [
            log_dirs.DescribeLogDirsTopic(
                name=name,
                partitions=[
                    log_dirs.DescribeLogDirsPartition(
                        partition_index=number,
                        partition_size=self.sizes.get(
                            (TopicPartition(name, number), node_id),
                            0 if node_id in one.adding else MIB,
                        ),
                    )
                    for number, one in self._of(name)
                    if node_id in one.replicas
                ],
            )
            for name in self._names
        ]
        result = log_dirs.DescribeLogDirsResult(
            log_dir="/data", topics=topics, total_bytes=self.free, usable_bytes=self.free
        )
        return log_dirs.DescribeLogDirsResponse(results=[result])

    def _elect(self, request: Any) -> Message:
        names = {one.topic: one.partitions for one in request.topic_partitions or ()}
        results = []
        for name in names or self._names:
            numbers = names.get(name, [number for number, _ in self._of(name)])
            results.append(
                elections.ReplicaElectionResult(
                    topic=name,
                    partition_result=[
                        elections.PartitionResult(
                            partition_id=number,
                            error_code=self._elected(TopicPartition(name, number)),
                        )
                        for number in numbers
                    ],
                )
            )
        return elections.ElectLeadersResponse(replica_election_results=results)

    def _elected(self, tp: TopicPartition) -> ErrorCode:
        one = self.partitions[tp]
        live = [broker for broker in one.replicas if broker in self.brokers]
        if one.leader == live[0]:
            return ErrorCode.ELECTION_NOT_NEEDED
        one.leader = live[0]
        return ErrorCode.NONE
