"""The formats of the small text files beside the logs: offsets, leader epochs, identities.

This module is pure: the callers read and replace the files. All formats are Kafka's. An offset
checkpoint has a version, a count and one `topic partition offset` per line, an epoch checkpoint one
`epoch start_offset` per line. The two identity files have `key=value` and `key: value`. Text that
does not parse raises ValueError, because half a checkpoint must not be used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from uuid import UUID

from protocol.types import NO_BROKER_EPOCH, TopicPartition, uuid_from_base64, uuid_to_base64

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RUNNING = ".running"
"""The file that names the last process that wrote to the folder, and the boot of the kernel under
which it ran. Kafka has no such file."""

_VERSION = "0"


def encode_clean_stop(broker_epoch: int) -> bytes:
    """Encode the marker of a clean stop, as Kafka writes it (KIP-966)."""
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


def decode_clean_stop(data: bytes) -> int:
    """Return the broker epoch in the marker; -1 if the broker was not registered."""
    said = json.loads(data)
    broker_epoch = said.get("brokerEpoch", NO_BROKER_EPOCH) if isinstance(said, dict) else None
    if not isinstance(broker_epoch, int):
        raise ValueError(f"found {data!r}, expected the marker of a clean stop")
    return broker_epoch


def encode_running(broker_epoch: int, boot_id: str) -> bytes:
    """Encode the mark of a running process. A broker writes the mark once it is registered."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch, "bootId": boot_id}).encode()


def decode_running(data: bytes) -> tuple[int, str]:
    """Return the broker epoch and the boot id in the mark.

    Raises ValueError for a file damaged by a power cut.
    """
    said = json.loads(data)
    match said:
        case {"version": 0, "brokerEpoch": int(broker_epoch), "bootId": str(boot_id)}:
            return broker_epoch, boot_id
    raise ValueError(f"found {data!r}, expected the marker of a running broker")


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return _encode(f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for line in _decode(data):
        topic, partition, offset = line.split(" ")
        offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _encode(f"{leader_epoch} {start_offset}" for leader_epoch, start_offset in entries)


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    latest, last_start = -1, 0
    for line in _decode(data):
        leader_epoch, start_offset = (int(word) for word in line.split(" "))
        if leader_epoch <= latest or start_offset < last_start:
            raise ValueError(
                "the leader epochs and their start offsets do not rise from line to line"
            )
        entries.append((leader_epoch, start_offset))
        latest, last_start = leader_epoch, start_offset
    return entries


def encode_partition_metadata(topic_id: UUID) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {uuid_to_base64(topic_id)}\n".encode()


def decode_partition_metadata(data: bytes) -> UUID:
    values = dict(line.split(": ", 1) for line in data.decode().splitlines() if line)
    if values.get("version") != _VERSION:
        raise ValueError(f"found version {values.get('version')!r}, expected {_VERSION}")
    return uuid_from_base64(values.get("topic_id", ""))


def encode_properties(values: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in sorted(values.items())).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    lines = [line.strip() for line in data.decode().splitlines()]
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def _encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([_VERSION, str(len(entries)), *entries, ""]).encode()


def _decode(data: bytes) -> list[str]:
    version, count, *lines = data.decode().splitlines()
    if version != _VERSION:
        raise ValueError(f"found version {version!r}, expected {_VERSION}")
    if int(count) != len(lines):
        raise ValueError(f"the file says that it has {count} entries, but it has {len(lines)}")
    return lines
