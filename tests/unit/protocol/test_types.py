"""The text form of ids, and partitions as dictionary keys."""

import uuid

import pytest

from protocol.types import (
    ZERO_UUID,
    TopicPartition,
    random_uuid,
    uuid_from_base64,
    uuid_to_base64,
)


def test_ids_are_written_as_kafka_writes_them() -> None:
    assert uuid_to_base64(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    value = uuid.UUID("fbfbfbfb-fbfb-fbfb-fbfb-fbfbfbfbfbfb")
    assert uuid_to_base64(value) == "-_v7-_v7-_v7-_v7-_v7-w"
    assert uuid_from_base64("-_v7-_v7-_v7-_v7-_v7-w") == value


@pytest.mark.parametrize(
    "text",
    ["", "short", "A" * 21, "A" * 23, "AAAAAAAAAAAAAAAAAAAA A", "ü" * 22, "AAAAAAAAAA/AAAAAAAAAAA"],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="22 URL-safe"):
        uuid_from_base64(text)


def test_random_ids_never_look_like_options() -> None:
    for first in range(256):
        value = random_uuid(bytes([first]) + bytes(range(1, 16)))
        assert value.version == 4
        assert not uuid_to_base64(value).startswith("-")
        assert uuid_from_base64(uuid_to_base64(value)) == value


def test_partitions_are_keys_and_print_as_directories() -> None:
    assert str(TopicPartition("logs.access", 2)) == "logs.access-2"
    assert TopicPartition("a", 1) == ("a", 1)
