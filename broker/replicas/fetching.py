"""Builds a follower's Fetch request.

This module is pure. Between brokers, topics are named by id, and the sender names its incarnation
by its broker epoch. So brokers use only versions of Fetch that clients are not offered
(decision 0031).
"""

from __future__ import annotations

from broker.replication.follower_session import FollowerIdentity
from broker.replication.follower_steps import FetchPlan
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from protocol.types import Uuid

MAX_WAIT_MS = 500
"""`replica.fetch.wait.max.ms`: the longest time that a leader waits for new records."""

MAX_BYTES = 10 << 20
"""`replica.fetch.response.max.bytes`: the largest size of a response, unless its first batch is
larger."""

CATCH_UP_BYTES = 1 << 20
"""The largest size of a response on a CATCH_UP link. Small responses leave time for other reads of
the disk in between."""

PARTITION_BYTES_MAX = 1 << 20
"""`replica.fetch.max.bytes`: the largest size of the records of one partition in a response."""


def fetch_request(
    plan: FetchPlan, me: FollowerIdentity, directory_id: Uuid, max_bytes: int
) -> FetchRequest:
    """Return the request for a fetch plan."""
    topics: dict[Uuid, FetchTopic] = {}
    for asked in plan.partitions:
        key = asked.key
        topic = topics.setdefault(key.topic_id, FetchTopic(topic_id=key.topic_id))
        topic.partitions.append(
            FetchPartition(
                partition=key.partition_index,
                current_leader_epoch=key.leader_epoch,
                fetch_offset=asked.fetch_offset,
                last_fetched_epoch=asked.last_fetched_epoch,
                log_start_offset=asked.log_start_offset,
                partition_max_bytes=PARTITION_BYTES_MAX,
                replica_directory_id=directory_id,
            )
        )
    forgotten: dict[Uuid, ForgottenTopic] = {}
    for gone in plan.forgotten:
        one = forgotten.setdefault(gone.topic_id, ForgottenTopic(topic_id=gone.topic_id))
        one.partitions.append(gone.partition_index)
    return FetchRequest(
        replica_state=ReplicaState(replica_id=me.node_id, replica_epoch=me.broker_epoch),
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=plan.session_id,
        session_epoch=plan.session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
    )
