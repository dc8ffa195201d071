"""List and alter reassignments with a scripted broker."""

from appliance.kafka.topics import with_reassignments
from protocol.client.cluster import Cluster
from protocol.client.reassignment_admin import (
    Reassignment,
    alter_reassignments,
    list_reassignments,
)
from protocol.client.topic_details import PartitionDetails, TopicDetails
from protocol.errors import ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.elections import (
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.types import ZERO_UUID, TopicPartition
from tests.unit.client.test_admin import Broker, administrating

LIST = ApiKey.LIST_PARTITION_REASSIGNMENTS


def moving() -> ListPartitionReassignmentsResponse:
    one = OngoingPartitionReassignment(
        partition_index=0, replicas=[3, 1, 2], adding_replicas=[3], removing_replicas=[2]
    )
    return ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name="t", partitions=[one])]
    )


def test_reassignments_are_listed_by_partition() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        broker.answers[LIST] = [moving()]
        found = await list_reassignments(cluster)
        assert found == {TopicPartition("t", 0): Reassignment((3, 1, 2), (3,), (2,))}

    administrating(test)


def test_a_client_that_may_not_ask_sees_no_reassignments() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        broker.answers[LIST] = [ListPartitionReassignmentsResponse(error_code=code)]
        assert await list_reassignments(cluster) == {}

    administrating(test)


def test_topics_get_the_replicas_that_move() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        broker.answers[LIST] = [moving(), moving()]
        one = PartitionDetails(0, 1, 5, (3, 1, 2), (1, 2), (), (), ())
        # `later` was described after the reassignment had ended. The listed reassignment must be
        # ignored, because it does not fit the replicas any more.
        later = PartitionDetails(0, 1, 6, (3, 1), (1, 3), (), (), ())
        for details, adding, removing in ((one, (3,), (2,)), (later, (), ())):
            topic = TopicDetails("t", ZERO_UUID, False, (details,))
            found = (await with_reassignments(cluster, {"t": topic}))["t"].partitions[0]
            assert (found.adding_replicas, found.removing_replicas) == (adding, removing)

    administrating(test)


def test_each_partition_has_its_own_answer_and_a_new_controller_is_asked_again() -> None:
    async def test(cluster: Cluster, broker: Broker) -> None:
        refused = ReassignablePartitionResponse(
            partition_index=1,
            error_code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            error_message="nothing moves",
        )
        topic = ReassignableTopicResponse(
            name="t", partitions=[ReassignablePartitionResponse(partition_index=0), refused]
        )
        broker.answers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = [
            AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER),
            AlterPartitionReassignmentsResponse(responses=[topic]),
        ]
        found = await alter_reassignments(
            cluster, {TopicPartition("t", 0): (3, 1), TopicPartition("t", 1): None}
        )
        assert found.pop(TopicPartition("t", 0)) is None
        (error,) = found.values()
        assert error is not None
        assert error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert "nothing moves" in error.message

    administrating(test)
