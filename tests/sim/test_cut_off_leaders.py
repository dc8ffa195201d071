"""A leader that is cut off from all other brokers, and not from its clients (decision 0242)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.sim.clients import Client, batch_of, producer_of, topic_made
from tests.sim.test_whole_brokers import Writing, is_in_service
from tests.sim.whole_brokers import WholeBroker, WholeCluster

TIMEOUT_MS = 30_000
"""The default of Kafka's clients, `request.timeout.ms`."""
FETCH = FetchRequest(
    max_wait_ms=0,
    min_bytes=1,
    topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0)])],
)


@pytest.fixture
def cluster() -> WholeCluster:
    cluster = WholeCluster("cut off", settings={"min.insync.replicas": 2})
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 5_000, "all in service")
    made = Writing(cluster, "made").client(2, topic_made("t", 1, replication_factor=3))
    cluster.run_until(lambda: made.is_done, 5_000, "the topic is made")
    cluster.run_for(500)
    return cluster


def leader_at(node: WholeBroker) -> int:
    leader: int = node.metadata.image.topics["t"].partitions[0].leader
    return leader


class Timed:
    """A client that sends one request to a broker once it may."""

    def __init__(
        self, cluster: WholeCluster, writing: Writing, node: WholeBroker, *, is_writer: bool
    ) -> None:
        self.code: ErrorCode | None = None
        self.took_ms = 0
        self.may_ask = False
        self._now_ms = cluster.network.timeline.clock.monotonic_ms
        script = self._write() if is_writer else self._read()
        self.client: Client = writing.client(node.node_id, script)

    def _write(self) -> Any:
        producer = yield from producer_of(None)
        data = [PartitionProduceData(index=0, records=batch_of(b"x", (*producer, 0)))]
        topic = TopicProduceData(name="t", partition_data=data)
        request = ProduceRequest(
            transactional_id=None, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic]
        )
        yield from self._ask(
            request, lambda answer: answer.responses[0].partition_responses[0].error_code
        )

    def _read(self) -> Any:
        yield from self._ask(FETCH, lambda answer: answer.responses[0].partitions[0].error_code)

    def _ask(self, request: Any, code_in: Any) -> Any:
        while not self.may_ask:
            yield 10
        began_ms = self._now_ms()
        answer = None
        while answer is None:
            answer = yield request
        self.took_ms = self._now_ms() - began_ms
        self.code = ErrorCode.of(code_in(answer))


def test_its_clients_wait_for_their_own_timeout_and_not_longer(
    cluster: WholeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.sim.clients.ANSWER_MS_MAX", 2 * TIMEOUT_MS)
    leader = next(node for node in cluster.nodes if node.node_id == leader_at(node))
    others = [node for node in cluster.nodes if node is not leader]
    writing = Writing(cluster, "t")
    writer, reader = (Timed(cluster, writing, leader, is_writer=one) for one in (True, False))
    cluster.run_for(500)
    for other in others:
        cluster.network.cut(leader.host, other.host)
        cluster.network.cut(other.host, leader.host)
    writer.may_ask = True
    cluster.run_until(
        lambda: all(leader_at(one) in (others[0].node_id, others[1].node_id) for one in others),
        12_000,
        "the others have another leader, within the session of 9 s and a moment",
    )
    assert leader_at(leader) == leader.node_id, "it cannot know"
    cluster.run_for(5_000)
    reader.may_ask = True
    cluster.run_until(lambda: reader.client.is_done, 1_000, "the reader is answered at once")
    assert reader.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not writer.client.is_done
    cluster.run_until(lambda: writer.client.is_done, TIMEOUT_MS, "the writer is answered")
    assert writer.code is ErrorCode.REQUEST_TIMED_OUT
    assert TIMEOUT_MS <= writer.took_ms < TIMEOUT_MS + 1_000
    leads = next(one for one in others if one.node_id == leader_at(one))
    again = Timed(cluster, writing, leads, is_writer=True)
    again.may_ask = True
    cluster.run_until(lambda: again.client.is_done, 5_000, "the new leader takes the record")
    assert again.code is ErrorCode.NONE
    cluster.network.heal()
    cluster.run_until(lambda: is_in_service(cluster), 60_000, "all in service")
    cluster.run_until(
        lambda: len({leader_at(one) for one in cluster.nodes}) == 1, 10_000, "all agree"
    )
