"""The bytes of subscriptions and assignments are the same as those of other clients."""

import struct
import warnings

import pytest

from protocol.client.assignment import (
    decode_assignment,
    decode_sticky_data,
    decode_subscription,
    encode_assignment,
    encode_generation,
    encode_sticky_data,
    encode_subscription,
)
from protocol.errors import WireError
from protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from protocol.types import TopicPartition
from protocol.wire.schema import Message
from tests.harness.seed import seeded
from tests.unit.protocol.definitions import assert_fields_alike
from tests.unit.protocol.examples import SEED, Examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from aiokafka.coordinator.protocol import (
        ConsumerProtocolMemberAssignment,
        ConsumerProtocolMemberMetadata,
    )
    from kafka.protocol.consumer import metadata as theirs
    from kafka.protocol.schemas import load_json

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

OWNED = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))


@pytest.mark.parametrize("cls", [ConsumerProtocolSubscription, ConsumerProtocolAssignment])
def test_declarations_equal_kafkas_own(cls: type[Message]) -> None:
    assert_fields_alike(cls, load_json(cls.__name__))


@pytest.mark.parametrize("cls", [ConsumerProtocolSubscription, ConsumerProtocolAssignment])
def test_kafka_python_reads_the_same_in_every_version(cls: type[Message]) -> None:
    examples = Examples(SEED)
    target = getattr(theirs, cls.__name__)
    for version in cls.valid_versions:
        for _ in range(20):
            ours = examples.message(cls, version)
            encoded = struct.pack(">h", version) + ours.encode(version)
            decoded = target.decode(encoded)
            assert bytes(decoded.encode()) == encoded
            assert decoded.user_data == ours.user_data


def test_aiokafka_reads_a_subscription_and_an_assignment() -> None:
    metadata = ConsumerProtocolMemberMetadata.decode(encode_subscription({"b", "a"}, OWNED, 7))
    assert metadata.subscription == ["a", "b"]
    assignment = ConsumerProtocolMemberAssignment.decode(encode_assignment(OWNED))
    assert assignment.assignment == [("a", [0, 2]), ("b", [1])]


def test_a_subscription_comes_back() -> None:
    found = decode_subscription("me", encode_subscription({"b", "a"}, OWNED, 7), "static")
    assert (found.member_id, found.group_instance_id) == ("me", "static")
    assert (found.topics, found.owned, found.generation_id) == (("a", "b"), OWNED, 7)
    assert decode_assignment(encode_assignment(OWNED)) == frozenset(OWNED)
    assert decode_assignment(b"") == frozenset()


def test_older_members_say_what_they_own_in_their_user_data() -> None:
    for version in (0, 1):
        message = ConsumerProtocolSubscription(topics=["a"], user_data=encode_sticky_data(OWNED, 5))
        encoded = struct.pack(">h", version) + message.encode(version)
        found = decode_subscription("old", encoded)
        assert (found.owned, found.generation_id) == (OWNED, 5)
    # The field `owned_partitions` takes precedence over user data. User data can hold only a
    # generation.
    message = ConsumerProtocolSubscription(topics=["a"], user_data=encode_generation(9))
    message.owned_partitions = decode_message(encode_subscription((), OWNED, 1)).owned_partitions
    found = decode_subscription("old", struct.pack(">h", 1) + message.encode(1))
    assert (found.owned, found.generation_id) == (OWNED, 9)


def decode_message(encoded: bytes) -> ConsumerProtocolSubscription:
    return ConsumerProtocolSubscription.decode(encoded, 3, 2)[0]


def test_an_eager_assignor_trusts_the_user_data_alone() -> None:
    encoded = encode_subscription({"a"}, (), 6, encode_sticky_data(OWNED, 5))
    found = decode_subscription("eager", encoded, trusts_user_data=True)
    assert (found.owned, found.generation_id) == (OWNED, 5)
    assert decode_subscription("eager", encoded).owned == ()


def test_a_newer_subscription_is_read_as_far_as_it_is_known() -> None:
    encoded = bytearray(encode_subscription({"a"}, OWNED, 7) + b"more to come")
    encoded[:2] = struct.pack(">h", 12)
    assert decode_subscription("new", bytes(encoded)).owned == OWNED


def test_sticky_data_is_java_s() -> None:
    # The expected bytes are the topic count, topic "a", its partitions, and the generation. Java's
    # sticky data has no version.
    by_hand = struct.pack(">ih1sii", 1, 1, b"a", 1, 4) + struct.pack(">i", 3)
    assert encode_sticky_data([TopicPartition("a", 4)], 3) == by_hand
    assert decode_sticky_data(by_hand) == ([TopicPartition("a", 4)], 3)
    assert decode_sticky_data(by_hand[:-4]) == ([TopicPartition("a", 4)], -1)
    assert decode_sticky_data(encode_generation(8)) == ([], 8)


def test_no_bytes_of_a_peer_break_the_leader() -> None:
    rng = seeded("subscriptions")
    good = encode_subscription({"a"}, OWNED, 7, encode_sticky_data(OWNED, 5))
    for _ in range(2000):
        mutated = bytearray(good)
        for _ in range(rng.choice((1, 2, 5))):
            mutated[rng.randrange(len(mutated))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        data = bytes(mutated[: rng.randrange(len(mutated) + 1)])
        decode_sticky_data(data)
        for decode in (decode_assignment, lambda data: decode_subscription("x", data)):
            try:
                decode(data)
            except WireError:
                continue
    # Negative sizes and counts are ignored too, no matter how many entries the data announces.
    going_back = struct.pack(">ihih", 2**31 - 1, 0, 0, -6)
    for data in (
        going_back,
        struct.pack(">i", -1) + bytes(4),
        struct.pack(">ih1sii", 1, 1, b"a", -1, 3),
        struct.pack(">ihii", 1, -1, 0, 3),
    ):
        assert decode_sticky_data(data) == ([], -1)
    with pytest.raises(WireError):
        decode_subscription("x", b"")
