"""The messages between the quorum's cores survive the round trip through Kafka's messages."""

import random
from typing import Any

import pytest

from broker.cluster.quorum_wire import (
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from broker.metadata.image import METADATA_TOPIC
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
from protocol.messages.api import BETWEEN_BROKERS, ApiKey, request_class, response_class
from protocol.messages.fetch import FetchResponse
from protocol.messages.quorum import VoteRequest, VoteRequestPartition, VoteRequestTopic
from protocol.types import Uuid
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch
from protocol.wire.schema import Message
from tests.harness.seed import seeded

CLUSTER = "bWlsbHJhY2UtdGVzdHMtMQ"
EPOCHS = 2**31
OFFSETS = 2**62


def key(chance: random.Random) -> ReplicaKey:
    return ReplicaKey(chance.randint(0, 9), Uuid(int=chance.getrandbits(128)))


def snapshot_id(chance: random.Random) -> SnapshotId:
    return SnapshotId(chance.randrange(OFFSETS), chance.randrange(EPOCHS))


def requests(chance: random.Random) -> list[Request]:
    """Return one request of each kind."""
    epoch, offset = chance.randrange(EPOCHS), chance.randrange(OFFSETS)
    size = chance.randrange(EPOCHS)
    return [
        Vote(CLUSTER, key(chance), key(chance), epoch, epoch, offset, chance.random() < 0.5),
        BeginQuorumEpoch(CLUSTER, key(chance), 3, epoch),
        EndQuorumEpoch(CLUSTER, 3, epoch, tuple(key(chance) for _ in range(size % 4))),
        Fetch(CLUSTER, key(chance), epoch, offset, chance.randint(-1, 9), offset, size, size),
        FetchSnapshot(CLUSTER, key(chance), epoch, snapshot_id(chance), offset, size),
    ]


def batch(chance: random.Random) -> bytes:
    value = chance.randbytes(chance.randrange(50))
    return bytes(build_batch([NewRecord(None, value, 7)] * chance.randint(1, 3)))


def answers(chance: random.Random) -> list[Answer]:
    """Return one response of each kind. Fetch responses have all their optional fields."""
    error = chance.choice(list(ErrorCode))
    leader = (error, chance.randint(-1, 9), chance.randint(-1, EPOCHS - 1))
    offsets = (chance.randint(-1, OFFSETS), chance.randint(-1, OFFSETS))
    batches = tuple(batch(chance) for _ in range(chance.randrange(4)))
    return [
        VoteAnswer(*leader, chance.random() < 0.5),
        BeginQuorumEpochAnswer(*leader),
        EndQuorumEpochAnswer(*leader),
        FetchAnswer(*leader),
        FetchAnswer(*leader, *offsets, diverging=QuorumEpochEnd(2, 7)),
        FetchAnswer(*leader, *offsets, snapshot_id=snapshot_id(chance)),
        FetchAnswer(*leader, *offsets, batches=batches),
        FetchSnapshotAnswer(*leader, snapshot_id(chance), 9_000, 40, chance.randbytes(30)),
    ]


def versions_of(message: Message) -> range:
    return BETWEEN_BROKERS[ApiKey(message.api_key)]


def test_every_request_arrives_as_it_was_sent() -> None:
    chance = seeded("quorum requests")
    for _ in range(200):
        for request in requests(chance):
            message = encode_request(request)
            for version in versions_of(message):
                arrived, _ = request_class(message.api_key).decode(message.encode(version), version)
                assert decode_request(arrived) == request


def test_every_answer_arrives_as_it_was_given() -> None:
    chance = seeded("quorum answers")
    for _ in range(100):
        for request, given in zip(
            [*requests(chance)[:4], *[requests(chance)[3]] * 3, requests(chance)[4]],
            answers(chance),
            strict=True,
        ):
            message = encode_answer(given)
            answered = response_class(message.api_key)
            for version in versions_of(encode_request(request)):
                arrived, _ = answered.decode(message.encode(version), version)
                assert decode_answer(arrived) == given


@pytest.mark.parametrize("count", [0, 2])
def test_a_request_for_anything_but_the_metadata_log_is_refused(count: int) -> None:
    partition = VoteRequestPartition()
    topic = VoteRequestTopic(topic_name=METADATA_TOPIC, partitions=[partition] * count)
    other = VoteRequestTopic(topic_name="logs", partitions=[partition])
    second = VoteRequestTopic(
        topic_name=METADATA_TOPIC, partitions=[VoteRequestPartition(partition_index=1)]
    )
    for topics in ([topic], [other], [second], []):
        with pytest.raises(ApiError) as refused:
            decode_request(VoteRequest(topics=topics))
        assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_an_error_code_of_a_later_release_is_an_unknown_error() -> None:
    for answer in answers(seeded("later error codes")):
        whole: Any = encode_answer(answer)
        topic = (whole.responses if isinstance(whole, FetchResponse) else whole.topics)[0]
        topic.partitions[0].error_code = 999
        decoded: Any = decode_answer(whole)
        assert decoded.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_answer_that_cannot_be_understood_is_none() -> None:
    whole: Any = encode_answer(
        FetchAnswer(ErrorCode.NONE, 1, 2, batches=(batch(random.Random(1)),))
    )
    assert decode_answer(whole)
    broken = [
        FetchResponse(error_code=ErrorCode.INVALID_REQUEST),
        FetchResponse(responses=whole.responses * 2),
        FetchResponse(responses=whole.responses, error_code=ErrorCode.INCONSISTENT_CLUSTER_ID),
    ]
    for one in broken:
        with pytest.raises(WireError):
            decode_answer(one)
    data = whole.responses[0].partitions[0]
    # The magic byte says that this is a message of an old format, whose length must not be trusted.
    data.records = data.records[:16] + b"\x01" + data.records[17:]
    with pytest.raises(WireError):
        decode_answer(whole)
