"""Handles requests for log folders and leader elections.

A node has one log folder, so requests for folders are answered at once, with Kafka's error codes.
"""

from __future__ import annotations

from pathlib import Path

from broker.cluster.metadata import Metadata
from broker.config import InForce
from broker.controller.elections import PREFERRED, UNCLEAN
from broker.handlers.rights import order_code
from broker.replicas.replicas import Replicas
from broker.sessions.call import Call
from broker.storage.disk import DiskSpace
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elections import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.security.acl import AclOperation

ERROR_IN_HEAD_SINCE = 1
"""The first version of ElectLeaders with an error code at the top level.

Version 0 has error codes only per partition.
"""

UNKNOWN_SPACE = DiskSpace(-1, -1)


class PlacementHandlers:
    """Handles requests for the log folders of replicas, and for their leaders."""

    def __init__(self, replicas: Replicas, settings: InForce, metadata: Metadata) -> None:
        self._replicas = replicas
        self._settings = settings
        self._metadata = metadata

    def describe_log_dirs(
        self, call: Call, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        """Return the log folder, its partitions with their sizes, and the free space on its
        volume."""
        if not call.may_with_cluster(AclOperation.DESCRIBE):
            return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        wanted = (
            None
            if request.topics is None
            else {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        )
        found: dict[str, DescribeLogDirsTopic] = {}
        for partition in self._replicas:
            if wanted is not None and (partition.topic, partition.index) not in wanted:
                continue
            topic = found.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=partition.index,
                    partition_size=partition.log.size_bytes,
                    offset_lag=0,
                    is_future_key=False,
                )
            )
        folder = str(Path(self._settings.config.log_dir).absolute())
        space = self._replicas.logs.space() or UNKNOWN_SPACE
        return DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    log_dir=folder,
                    topics=list(found.values()),
                    total_bytes=space.total_bytes,
                    usable_bytes=space.usable_bytes,
                )
            ]
        )

    def alter_replica_log_dirs(
        self, call: Call, request: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse:
        """Handle AlterReplicaLogDirs: accept the node's only log folder, and refuse any other
        folder."""
        is_allowed = call.may_with_cluster(AclOperation.ALTER)
        own = str(Path(self._settings.config.log_dir).absolute())
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        for folder in request.dirs:
            for topic in folder.topics:
                result = results.setdefault(
                    topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name)
                )
                for index in topic.partitions:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                    if not is_allowed:
                        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                    elif folder.path.rstrip("/") == own:
                        code = self._why_not_held(topic.name, index)
                    result.partitions.append(
                        AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    )
        return AlterReplicaLogDirsResponse(results=list(results.values()))

    def _why_not_held(self, topic: str, index: int) -> ErrorCode:
        """Return NONE if this broker has a replica of the partition, else the error code for a
        partition that it does not have."""
        try:
            self._replicas.find_held(topic, index)
        except ApiError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # The request is not only for the leader, and Kafka keeps the older error code for
                # this request.
                return ErrorCode.REPLICA_NOT_AVAILABLE
            return error.code
        return ErrorCode.NONE

    def elect_leaders(self, call: Call, request: ElectLeadersRequest) -> None:
        """Handle ElectLeaders.

        The request goes to the controller. The answer is sent when the elected replicas lead.
        """
        if request.election_type not in (PREFERRED, UNCLEAN):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"found election type {request.election_type}, expected {PREFERRED} (preferred) or "
                f"{UNCLEAN} (unclean)",
            )

        def refused(error: ApiError) -> None:
            call.answer(_nobody_elected(call.version, request, order_code(error)))

        def decided(response: ElectLeadersResponse) -> None:
            code = ErrorCode.of(response.error_code)
            if code is ErrorCode.NONE:
                call.answer(response)
            else:
                # Another node refused the whole request.
                refused(ApiError(code))

        self._metadata.submit(request, decided, refused, *call.asker)


def _nobody_elected(
    version: int, request: ElectLeadersRequest, code: ErrorCode
) -> ElectLeadersResponse:
    """Return the error for each named partition, and at the top level if the version has it."""
    partitions_by_topic: dict[str, dict[int, None]] = {}
    for asked in request.topic_partitions or ():
        partitions_by_topic.setdefault(asked.topic, {}).update(dict.fromkeys(asked.partitions))
    results = [
        ReplicaElectionResult(
            topic=topic,
            partition_result=[
                PartitionResult(partition_id=number, error_code=code) for number in partitions
            ],
        )
        for topic, partitions in partitions_by_topic.items()
    ]
    return ElectLeadersResponse(
        error_code=code if version >= ERROR_IN_HEAD_SINCE else ErrorCode.NONE,
        replica_election_results=results,
    )
