"""Decode the records of Kafka's internal topics into the JSON that Kafka's tool prints.

This module is pure. Fields have Kafka's names and are in the order in which they are encoded. A
tagged field appears only if it differs from its default. Bytes are base64.
"""

import base64
import json
import re
from collections.abc import Callable
from struct import Struct as Packed
from struct import error as StructError
from typing import Any
from uuid import UUID

from broker.coordinators.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from broker.coordinators.txn_records import TransactionLogKey, TransactionLogValue
from broker.metadata.records import (
    UnknownMetadataRecord,
    UserScramCredentialRecord,
    decode_record,
)
from broker.quorum.control_records import (
    KRaftVersion,
    LeaderChange,
    UnknownControlRecord,
    Voters,
    decode_control,
)
from protocol.errors import WireError
from protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from protocol.types import uuid_to_base64
from protocol.wire.primitives import read_uvarint
from protocol.wire.record import Record
from protocol.wire.schema import Message, Struct

DELETED = "<DELETE>"
CONSUMER = "consumer"

HIDDEN = "[hidden]"

_VERSION = Packed(">h")
_SUPPORTED = ("minSupportedVersion", "maxSupportedVersion")
_WORDS = re.compile(r"(?<!^)(?=[A-Z])")

Decoded = tuple[str | None, str | None]
"""The key and the payload of a record as they are printed. None means that nothing is printed."""

Decoder = Callable[[Record], Decoded]


def json_of(value: Any, version: int) -> Any:
    """Return a message, or a part of one, as plain values under Kafka's names."""
    if isinstance(value, Struct):
        return {
            camel(field.name): json_of(getattr(value, field.name), version)
            for field in value.fields
            if field.in_version(version)
            and (field.tag is None or getattr(value, field.name) != field.new_default())
        }
    if isinstance(value, list):
        return [json_of(one, version) for one in value]
    if isinstance(value, UUID):
        return uuid_to_base64(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return value


def camel(name: str) -> str:
    """Return a name in Kafka's spelling: `leaderEpoch` for `leader_epoch`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _versioned(cls: type[Message], data: bytes) -> tuple[int, Message]:
    (version,) = _VERSION.unpack_from(data)
    return version, cls.decode(data, version, _VERSION.size)[0]


def _of_kinds(
    record: Record,
    kinds: dict[int, tuple[type[Message], type[Message]]],
    finish: Callable[[dict[str, Any], Message], None] = lambda shown, message: None,
) -> Decoded:
    """Decode a record whose key begins with the number of the record's type.

    If the type is unknown, return plain text.
    """
    if record.key is None:
        return None, None
    try:
        (kind,) = _VERSION.unpack_from(record.key)
        if kind not in kinds:
            return plain(record)
        key_class, value_class = kinds[kind]
        _, key = _versioned(key_class, record.key)
        shown = _text({"type": str(kind), "data": json_of(key, kind)})
        if record.value is None:
            return shown, DELETED
        version, value = _versioned(value_class, record.value)
        data = json_of(value, version)
        finish(data, value)
        return shown, _text({"version": str(version), "data": data})
    except (StructError, WireError):
        return plain(record)


def offsets(record: Record) -> Decoded:
    """Decode a record of `__consumer_offsets`."""
    kinds: dict[int, tuple[type[Message], type[Message]]] = {
        0: (OffsetCommitKey, OffsetCommitValue),
        1: (OffsetCommitKey, OffsetCommitValue),
        2: (GroupMetadataKey, GroupMetadataValue),
    }
    return _of_kinds(record, kinds, _open_members)


def _open_members(shown: dict[str, Any], value: Message) -> None:
    """Decode the subscriptions and assignments of a group's members instead of showing their
    bytes."""
    if not isinstance(value, GroupMetadataValue) or value.protocol_type != CONSUMER:
        return
    for one, member in zip(shown["members"], value.members, strict=True):
        for key, cls, data in (
            ("subscription", ConsumerProtocolSubscription, member.subscription),
            ("assignment", ConsumerProtocolAssignment, member.assignment),
        ):
            try:
                if data:
                    newest = min(_VERSION.unpack_from(data)[0], cls.valid_versions[-1])
                    message = cls.decode(data, newest, _VERSION.size)[0]
                    one[key] = json_of(message, newest)
            except (StructError, WireError):
                continue


def transactions(record: Record) -> Decoded:
    """Decode a record of `__transaction_state`."""
    return _of_kinds(record, {0: (TransactionLogKey, TransactionLogValue)})


def metadata(record: Record) -> Decoded:
    """Decode a record of the cluster's metadata; it has no key."""
    try:
        found = decode_record(record.value)
    except UnknownMetadataRecord as error:
        return None, f"{error}"
    assert record.value is not None, "decoded above"
    _, position = read_uvarint(record.value, 0)
    _, position = read_uvarint(record.value, position)
    version, _ = read_uvarint(record.value, position)
    name = _WORDS.sub("_", type(found).__name__).upper()
    shown = json_of(found, version)
    if isinstance(found, UserScramCredentialRecord):
        # People send dumps to each other, so hide the keys. The log itself contains them.
        shown.update(dict.fromkeys(("salt", "storedKey", "serverKey"), HIDDEN))
    return None, _text({"type": name, "version": version, "data": shown})


def control(record: Record) -> str:
    """Return a control record of the quorum as text that begins with its name."""
    try:
        found = decode_control(record.key, record.value)
    except UnknownControlRecord:
        return f"controlType: UNKNOWN({int.from_bytes((record.key or b'')[2:4], 'big')})"
    shown = json_of(found, found.version)
    name = type(found).__name__
    if isinstance(found, LeaderChange):
        return f"{name}: {_text(shown)}"
    if isinstance(found, KRaftVersion):
        shown["kRaftVersion"] = shown.pop("kraftVersion")
    if isinstance(found, Voters):
        name = "KRaftVoters"
        for voter in shown["voters"]:
            del voter["featureTags"]
            supported = {key: voter.pop(key) for key in _SUPPORTED}
            voter["kRaftVersionFeature"] = supported
    return f"{name} {_text(shown)}"


def plain(record: Record) -> Decoded:
    """Return key and payload as text, even if they are binary."""
    return _as_text(record.key), _as_text(record.value)


def _as_text(part: bytes | None) -> str | None:
    return None if part is None else bytes(part).decode(errors="replace")
