"""Where replicas are and who leads them: log folders, elections, reassignments.

Floor: handlers. A node has one folder, and replicas stay where they were placed, so all but
elections is answered from the image at once, with the codes that Kafka gives in the same place.
"""

from __future__ import annotations

import os
from pathlib import Path

from broker.cluster.metadata import Metadata
from broker.config import InForce
from broker.controller.elections import PREFERRED, UNCLEAN
from broker.controller.placement import check_assignment
from broker.metadata.image import MetadataImage, PartitionImage
from broker.replicas.replicas import Replicas
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
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

ERROR_IN_HEAD_SINCE = 1
"""Version 0 of ElectLeaders has its outcome by partition alone."""

UNKNOWN_BYTES = -1


class PlacementHandlers:
    """Where partitions lie, and who leads them."""

    def __init__(self, replicas: Replicas, settings: InForce, metadata: Metadata) -> None:
        self._replicas = replicas
        self._settings = settings
        self._metadata = metadata

    def describe_log_dirs(
        self, call: Call, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        """The one folder, the partitions in it and their sizes, and the room on its volume."""
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
        total_bytes, usable_bytes = _volume(folder)
        return DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    log_dir=folder,
                    topics=list(found.values()),
                    total_bytes=total_bytes,
                    usable_bytes=usable_bytes,
                )
            ]
        )

    def alter_replica_log_dirs(
        self, call: Call, request: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse:
        """A replica may stay in the only folder there is; to any other it cannot move."""
        own = str(Path(self._settings.config.log_dir).absolute())
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        for folder in request.dirs:
            for topic in folder.topics:
                result = results.setdefault(
                    topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name)
                )
                for index in topic.partitions:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                    if folder.path.rstrip("/") == own:
                        code = self._why_not_held(topic.name, index)
                    result.partitions.append(
                        AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    )
        return AlterReplicaLogDirsResponse(results=list(results.values()))

    def _why_not_held(self, topic: str, index: int) -> ErrorCode:
        """NONE for a replica in whichever role."""
        try:
            self._replicas.find_held(topic, index)
        except ApiError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # The leader is not asked for: Kafka keeps the older name of it here.
                return ErrorCode.REPLICA_NOT_AVAILABLE
            return error.code
        return ErrorCode.NONE

    def elect_leaders(self, call: Call, request: ElectLeadersRequest) -> None:
        """ElectLeaders: an order for the controller, answered when who is elected leads."""
        if request.election_type not in (PREFERRED, UNCLEAN):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"election type {request.election_type} is not known"
            )

        def refused(error: ApiError) -> None:
            call.answer(_nobody_elected(call.version, request, ErrorCode.REQUEST_TIMED_OUT))

        self._metadata.submit(request, call.answer, refused, call.session.peer_host)

    def alter_partition_reassignments(
        self, call: Call, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """A partition may be assigned to where it is; to move one is not built yet, and refused."""
        image = self._metadata.image
        response = AlterPartitionReassignmentsResponse()
        for topic in request.topics:
            answer = ReassignableTopicResponse(name=topic.name)
            for asked in topic.partitions:
                one = ReassignablePartitionResponse(partition_index=asked.partition_index)
                try:
                    _reassign(image, topic.name, asked)
                except ApiError as error:
                    one.error_code, one.error_message = error.code, error.message
                answer.partitions.append(one)
            response.responses.append(answer)
        return response

    def list_partition_reassignments(
        self, call: Call, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Nothing is ever on the move."""
        return ListPartitionReassignmentsResponse()


def _nobody_elected(
    version: int, request: ElectLeadersRequest, code: ErrorCode
) -> ElectLeadersResponse:
    """The refusal for each partition that was named, and in the head where there is one."""
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


def _volume(folder: str) -> tuple[int, int]:
    """Size of the volume and what is free there for us."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


def _partition(image: MetadataImage, topic: str, index: int) -> PartitionImage:
    known = image.topics.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{index}")
    return known.partitions[index]


def _reassign(image: MetadataImage, topic: str, asked: ReassignablePartition) -> None:
    partition = _partition(image, topic, asked.partition_index)
    if asked.replicas is None:
        raise ApiError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "there is no reassignment to be cancelled"
        )
    check_assignment(asked.replicas, image)
    if tuple(asked.replicas) != partition.replicas:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{topic}-{asked.partition_index} lies on {list(partition.replicas)}, and this version "
            "moves no replicas yet",
        )
