"""Converts the quorum's requests and answers to Kafka's messages and back.

This module is pure. Kafka's messages are nested by topic and partition, but the quorum has only one
partition. A message with any other topic or partition is refused. Every answer, even an error,
names the leader and the epoch that its sender knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.metadata.image import METADATA_TOPIC, METADATA_TOPIC_ID
from broker.quorum.events import (
    Answer,
    BeginQuorumEpoch,
    BeginQuorumEpochAnswer,
    EndQuorumEpoch,
    EndQuorumEpochAnswer,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    QuorumEpochEnd,
    Request,
    Vote,
    VoteAnswer,
)
from broker.quorum.snapshot import SnapshotId
from broker.quorum.voters import ReplicaKey
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages import fetch as fetches
from protocol.messages import quorum as messages
from protocol.types import NO_NODE
from protocol.wire.records import iterate_batches
from protocol.wire.schema import Message


class MalformedAnswer(WireError):
    """An answer that does not consist of one partition of the metadata log."""


def encode_request(request: Request) -> Message:
    """Return the message for a request."""
    match request:
        case Vote():
            return _vote(request)
        case BeginQuorumEpoch():
            return _begin(request)
        case EndQuorumEpoch():
            return _end(request)
        case Fetch():
            return _fetch(request)
        case FetchSnapshot():
            return _fetch_snapshot(request)


def _vote(vote: Vote) -> messages.VoteRequest:
    partition = messages.VoteRequestPartition(
        replica_epoch=vote.epoch,
        replica_id=vote.candidate.node_id,
        replica_directory_id=vote.candidate.directory_id,
        voter_directory_id=vote.voter.directory_id,
        last_offset_epoch=vote.last_epoch,
        last_offset=vote.last_epoch_end_offset,
        pre_vote=vote.is_pre_vote,
    )
    topic = messages.VoteRequestTopic(topic_name=METADATA_TOPIC, partitions=[partition])
    return messages.VoteRequest(
        cluster_id=vote.cluster_id, voter_id=vote.voter.node_id, topics=[topic]
    )


def _begin(begin: BeginQuorumEpoch) -> messages.BeginQuorumEpochRequest:
    partition = messages.BeginQuorumEpochPartition(
        voter_directory_id=begin.voter.directory_id,
        leader_id=begin.leader_id,
        leader_epoch=begin.leader_epoch,
    )
    topic = messages.BeginQuorumEpochTopic(topic_name=METADATA_TOPIC, partitions=[partition])
    return messages.BeginQuorumEpochRequest(
        cluster_id=begin.cluster_id, voter_id=begin.voter.node_id, topics=[topic]
    )


def _end(end: EndQuorumEpoch) -> messages.EndQuorumEpochRequest:
    partition = messages.EndQuorumEpochPartition(
        leader_id=end.leader_id,
        leader_epoch=end.leader_epoch,
        preferred_candidates=[
            messages.ReplicaInfo(candidate_id=node_id, candidate_directory_id=directory_id)
            for node_id, directory_id in end.preferred
        ],
    )
    topic = messages.EndQuorumEpochTopic(topic_name=METADATA_TOPIC, partitions=[partition])
    return messages.EndQuorumEpochRequest(cluster_id=end.cluster_id, topics=[topic])


def _fetch(fetch: Fetch) -> fetches.FetchRequest:
    partition = fetches.FetchPartition(
        partition=0,
        current_leader_epoch=fetch.current_leader_epoch,
        fetch_offset=fetch.fetch_offset,
        last_fetched_epoch=fetch.last_fetched_epoch,
        partition_max_bytes=fetch.max_bytes,
        replica_directory_id=fetch.replica.directory_id,
        high_watermark=fetch.high_watermark,
    )
    return fetches.FetchRequest(
        cluster_id=fetch.cluster_id,
        replica_state=fetches.ReplicaState(replica_id=fetch.replica.node_id),
        max_wait_ms=fetch.max_wait_ms,
        max_bytes=fetch.max_bytes,
        topics=[fetches.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def _fetch_snapshot(fetch: FetchSnapshot) -> messages.FetchSnapshotRequest:
    partition = messages.FetchSnapshotPartition(
        partition=0,
        current_leader_epoch=fetch.current_leader_epoch,
        snapshot_id=messages.SnapshotOfPartition(
            end_offset=fetch.snapshot_id.end_offset, epoch=fetch.snapshot_id.epoch
        ),
        position=fetch.position,
        replica_directory_id=fetch.replica.directory_id,
    )
    topic = messages.FetchSnapshotTopic(name=METADATA_TOPIC, partitions=[partition])
    return messages.FetchSnapshotRequest(
        cluster_id=fetch.cluster_id,
        replica_id=fetch.replica.node_id,
        max_bytes=fetch.max_bytes,
        topics=[topic],
    )


def decode_request(message: Message) -> Request:
    """Return the request in a message.

    Raises ApiError INVALID_REQUEST if the message does not concern the quorum.
    """
    match message:
        case messages.VoteRequest():
            return _read_vote(message)
        case messages.BeginQuorumEpochRequest():
            return _read_begin(message)
        case messages.EndQuorumEpochRequest():
            return _read_end(message)
        case fetches.FetchRequest():
            return _read_fetch(message)
        case messages.FetchSnapshotRequest():
            return _read_fetch_snapshot(message)
    raise AssertionError(f"{type(message).__name__} is not a request of the quorum protocol")


def _requested_partition(topics: Sequence[Any], name_field: str, index_field: str) -> Any:
    """Return the only partition of a request. Raises ApiError if it is not the metadata log's."""
    partition = _only(topics, name_field, index_field)
    if partition is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "the quorum serves only partition 0 of the metadata log"
        )
    return partition


def _only(topics: Sequence[Any], name_field: str, index_field: str) -> Any:
    """Return the only partition if it is partition 0 of the metadata log, else None."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    is_ours = getattr(topics[0], name_field) in (METADATA_TOPIC, METADATA_TOPIC_ID)
    return partition if is_ours and getattr(partition, index_field) == 0 else None


def _read_vote(message: messages.VoteRequest) -> Vote:
    one = _requested_partition(message.topics, "topic_name", "partition_index")
    return Vote(
        message.cluster_id or "",
        ReplicaKey(message.voter_id, one.voter_directory_id),
        ReplicaKey(one.replica_id, one.replica_directory_id),
        one.replica_epoch,
        one.last_offset_epoch,
        one.last_offset,
        one.pre_vote,
    )


def _read_begin(message: messages.BeginQuorumEpochRequest) -> BeginQuorumEpoch:
    one = _requested_partition(message.topics, "topic_name", "partition_index")
    voter = ReplicaKey(message.voter_id, one.voter_directory_id)
    return BeginQuorumEpoch(message.cluster_id or "", voter, one.leader_id, one.leader_epoch)


def _read_end(message: messages.EndQuorumEpochRequest) -> EndQuorumEpoch:
    one = _requested_partition(message.topics, "topic_name", "partition_index")
    preferred = tuple(
        ReplicaKey(each.candidate_id, each.candidate_directory_id)
        for each in one.preferred_candidates
    )
    return EndQuorumEpoch(message.cluster_id or "", one.leader_id, one.leader_epoch, preferred)


def _read_fetch(message: fetches.FetchRequest) -> Fetch:
    one = _requested_partition(message.topics, "topic_id", "partition")
    node_id = NO_NODE if message.replica_state is None else message.replica_state.replica_id
    return Fetch(
        message.cluster_id or "",
        ReplicaKey(node_id, one.replica_directory_id),
        one.current_leader_epoch,
        one.fetch_offset,
        one.last_fetched_epoch,
        one.high_watermark,
        message.max_wait_ms,
        one.partition_max_bytes,
    )


def _read_fetch_snapshot(message: messages.FetchSnapshotRequest) -> FetchSnapshot:
    one = _requested_partition(message.topics, "name", "partition")
    return FetchSnapshot(
        message.cluster_id or "",
        ReplicaKey(message.replica_id, one.replica_directory_id),
        one.current_leader_epoch,
        SnapshotId(one.snapshot_id.end_offset, one.snapshot_id.epoch),
        one.position,
        message.max_bytes,
    )


def encode_answer(answer: Answer) -> Message:
    """Return the message for an answer."""
    match answer:
        case VoteAnswer():
            voted = messages.VoteResponsePartition(
                **_common_fields(answer), vote_granted=answer.vote_granted
            )
            topic = messages.VoteResponseTopic(topic_name=METADATA_TOPIC, partitions=[voted])
            return messages.VoteResponse(topics=[topic])
        case BeginQuorumEpochAnswer():
            return messages.BeginQuorumEpochResponse(topics=[_epoch_topic(answer)])
        case EndQuorumEpochAnswer():
            return messages.EndQuorumEpochResponse(topics=[_epoch_topic(answer)])
        case FetchAnswer():
            return _fetched(answer)
        case FetchSnapshotAnswer():
            return _piece(answer)


def _common_fields(answer: Any) -> dict[str, int]:
    return {
        "error_code": answer.error,
        "leader_id": answer.leader_id,
        "leader_epoch": answer.leader_epoch,
    }


def _epoch_topic(
    answer: BeginQuorumEpochAnswer | EndQuorumEpochAnswer,
) -> messages.QuorumEpochTopic:
    partition = messages.QuorumEpochPartition(**_common_fields(answer))
    return messages.QuorumEpochTopic(topic_name=METADATA_TOPIC, partitions=[partition])


def _fetched(answer: FetchAnswer) -> fetches.FetchResponse:
    diverging, snapshot_id = answer.diverging, answer.snapshot_id
    partition = fetches.PartitionData(
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        diverging_epoch=(
            None
            if diverging is None
            else fetches.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
        ),
        current_leader=fetches.LeaderIdAndEpoch(
            leader_id=answer.leader_id, leader_epoch=answer.leader_epoch
        ),
        snapshot_id=(
            None
            if snapshot_id is None
            else fetches.SnapshotToFetch(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch)
        ),
        aborted_transactions=[],
        records=b"".join(answer.batches),
    )
    topic = fetches.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return fetches.FetchResponse(responses=[topic])


def _piece(answer: FetchSnapshotAnswer) -> messages.FetchSnapshotResponse:
    partition = messages.SnapshotPartition(
        error_code=answer.error,
        snapshot_id=messages.SnapshotOfPartition(
            end_offset=answer.snapshot_id.end_offset, epoch=answer.snapshot_id.epoch
        ),
        current_leader=messages.SnapshotLeader(
            leader_id=answer.leader_id, leader_epoch=answer.leader_epoch
        ),
        size=answer.size_bytes,
        position=answer.position,
        unaligned_records=answer.data,
    )
    topic = messages.SnapshotTopic(name=METADATA_TOPIC, partitions=[partition])
    return messages.FetchSnapshotResponse(topics=[topic])


def decode_answer(message: Message) -> Answer:
    """Return the answer in a message. Its bytes are copies.

    Raises WireError if the message concerns another partition, has a truncated batch, or refuses
    the whole request (such a message names no leader).
    """
    match message:
        case messages.VoteResponse():
            one = _answered_partition(message, message.topics, "topic_name", "partition_index")
            return VoteAnswer(*_leader_of(one), one.vote_granted)
        case messages.BeginQuorumEpochResponse():
            one = _answered_partition(message, message.topics, "topic_name", "partition_index")
            return BeginQuorumEpochAnswer(*_leader_of(one))
        case messages.EndQuorumEpochResponse():
            one = _answered_partition(message, message.topics, "topic_name", "partition_index")
            return EndQuorumEpochAnswer(*_leader_of(one))
        case fetches.FetchResponse():
            return _read_fetched(message)
        case messages.FetchSnapshotResponse():
            return _read_piece(message)
    raise AssertionError(f"{type(message).__name__} is not a response type of the quorum protocol")


def _answered_partition(
    message: Any, topics: Sequence[Any], name_field: str, index_field: str
) -> Any:
    """Return the only partition of an answer.

    Raises MalformedAnswer if it is not the metadata log's or the whole request was refused.
    """
    partition = _only(topics, name_field, index_field)
    if partition is None or message.error_code:
        raise MalformedAnswer(
            f"{type(message).__name__} has error {message.error_code} and topics {topics}, "
            "expected partition 0 of the metadata log"
        )
    return partition


def _leader_of(partition: Any) -> tuple[ErrorCode, int, int]:
    return ErrorCode.of(partition.error_code), partition.leader_id, partition.leader_epoch


def _read_fetched(message: fetches.FetchResponse) -> FetchAnswer:
    one = _answered_partition(message, message.responses, "topic_id", "partition_index")
    leader = one.current_leader or fetches.LeaderIdAndEpoch()
    diverging, snapshot_id = one.diverging_epoch, one.snapshot_id
    return FetchAnswer(
        ErrorCode.of(one.error_code),
        leader.leader_id,
        leader.leader_epoch,
        one.high_watermark,
        one.log_start_offset,
        None if diverging is None else QuorumEpochEnd(diverging.epoch, diverging.end_offset),
        None if snapshot_id is None else SnapshotId(snapshot_id.end_offset, snapshot_id.epoch),
        tuple(bytes(batch) for _, batch in iterate_batches(one.records or b"")),
    )


def _read_piece(message: messages.FetchSnapshotResponse) -> FetchSnapshotAnswer:
    one = _answered_partition(message, message.topics, "name", "index")
    leader = one.current_leader or messages.SnapshotLeader(leader_id=NO_NODE, leader_epoch=-1)
    return FetchSnapshotAnswer(
        ErrorCode.of(one.error_code),
        leader.leader_id,
        leader.leader_epoch,
        SnapshotId(one.snapshot_id.end_offset, one.snapshot_id.epoch),
        one.size,
        one.position,
        bytes(one.unaligned_records or b""),
    )
