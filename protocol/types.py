"""Small types that all rooms share: names of partitions, ids, and the values that mean "none".

This module has only data types and imports no other module of Millrace.
"""

import base64
import binascii
import uuid
from typing import NamedTuple, NewType, TypeAlias

NodeId = NewType("NodeId", int)
Uuid: TypeAlias = uuid.UUID

ZERO_UUID = uuid.UUID(int=0)
"""Kafka's null id, which stands for an unknown topic id."""

NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
NO_NODE = -1
NO_BROKER_EPOCH = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

CONSUMER_REPLICA_ID = -1

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3

METADATA_VERSION = "metadata.version"
"""The feature whose level sets the format of the records in the metadata log."""

INT64_MAX = 2**63 - 1
"""The largest number that Kafka's int64 can hold, and so the largest offset and timestamp."""


class TopicPartition(NamedTuple):
    """One partition of one topic, the key of nearly every table."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_base64(value: uuid.UUID) -> str:
    """Return the 22 URL-safe characters with which Kafka prints ids, without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_base64(text: str) -> uuid.UUID:
    """Return the id in a text of `uuid_to_base64` or of Kafka's tools. Raises ValueError."""
    value: uuid.UUID | None
    try:
        value = uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (binascii.Error, ValueError):
        value = None
    # The decoder skips unknown characters, so the result is encoded again and compared.
    if value is None or uuid_to_base64(value) != text:
        raise ValueError(f"found {text!r}, expected an id of 22 URL-safe base64 characters")
    return value


def random_uuid(raw: bytes) -> uuid.UUID:
    """Return a version 4 id from 16 random bytes whose text does not start with a dash.

    Kafka avoids such texts because command lines would read them as options. The caller passes
    `os.urandom(16)` or bytes of a seeded generator.
    """
    value = uuid.UUID(bytes=raw, version=4)
    if uuid_to_base64(value).startswith("-"):
        value = uuid.UUID(bytes=bytes([raw[0] ^ 0x80]) + raw[1:], version=4)
    return value
