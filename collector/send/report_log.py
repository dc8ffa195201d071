"""Sends the collector's reports about itself, outside of its transactions."""

from collector.send.rights import NotAllowed, denial_of, topic_denied
from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError, raise_for
from protocol.client.partitioner import partition_for_key
from protocol.collector_report import COLLECTORS_TOPIC
from protocol.errors import ApiError
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.types import TopicPartition
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch

SEND_TIMEOUT_MS = 5_000
ALL_IN_SYNC = -1


class ReportLog:
    """The topic of the reports. `user` is the collector's user, for messages about rights."""

    def __init__(self, cluster: Cluster, user: str | None):
        self._cluster = cluster
        self._user = user

    async def send(self, instance: str, value: bytes, now_ms: int) -> int | None:
        """Append a report once, and return the broker's time of the append.

        A report that arrives twice does no harm, so this needs no producer id. Return None if the
        topic keeps the collectors' own time stamps. Raises ClientError or ApiError.
        """
        try:
            return await self._send(instance, value, now_ms)
        except ApiError as error:
            if denial_of(error) is None:
                raise
            raise NotAllowed(topic_denied(self._user, COLLECTORS_TOPIC, "write")) from error

    async def _send(self, instance: str, value: bytes, now_ms: int) -> int | None:
        key = instance.encode()
        topic = await self._cluster.topic(COLLECTORS_TOPIC, timeout_ms=SEND_TIMEOUT_MS)
        partition = partition_for_key(key, len(topic.partitions))
        place = TopicPartition(COLLECTORS_TOPIC, partition)
        leader = await self._cluster.leader(place, timeout_ms=SEND_TIMEOUT_MS)
        batch = build_batch([NewRecord(key, value, now_ms)])
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=ALL_IN_SYNC,
            timeout_ms=SEND_TIMEOUT_MS // 2,
            topic_data=[TopicProduceData(name=COLLECTORS_TOPIC, partition_data=[data])],
        )
        try:
            response: ProduceResponse = await self._cluster.request(
                leader, request, timeout_ms=SEND_TIMEOUT_MS
            )
            (answer,) = response.responses[0].partition_responses
            raise_for(answer.error_code, answer.error_message)
        except (ClientError, ApiError):
            # The leader can have changed, so the next report must ask for it again.
            self._cluster.forget_leader(place)
            raise
        return answer.log_append_time_ms if answer.log_append_time_ms >= 0 else None
