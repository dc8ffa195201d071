"""The user's requests to change the cluster, parsed from the fields of a form.

This module is pure. Such a request is called an *order*, because the word request is used for
Kafka's requests. An order does not depend on the state of the cluster. `operations` makes a plan of
it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from protocol.client.admin_types import TopicSpec
from protocol.client.group_offset_reset import ResetTarget, target_of

FIELD_CHARS_MAX = 10_000
SETTINGS_MAX = 100
PARTITIONS_MAX = 100_000


class Operation(StrEnum):
    """The kinds of orders. The values are parts of the pages' addresses."""

    CREATE_TOPIC = "create-topic"
    ALTER_TOPIC = "alter-topic"
    DELETE_RECORDS = "delete-records"
    RESET_OFFSETS = "reset-offsets"
    ELECT_LEADERS = "elect-leaders"


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A topic to create."""

    spec: TopicSpec


@dataclass(frozen=True, slots=True)
class AlterTopic:
    """Changes of a topic's settings, and its wanted number of partitions.

    A setting with the value None is removed.
    """

    topic: str
    changes: Mapping[str, str | None]
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Records to delete: all below an offset, before a time, or up to the log's end.

    If `partitions` is None, records of all partitions are deleted.
    """

    topic: str
    partitions: tuple[int, ...] | None
    below: ResetTarget


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """New offsets for a group.

    If no topics are named, all topics in which the group has committed offsets are reset.
    """

    group_id: str
    topics: tuple[str, ...]
    target: ResetTarget


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """An election of preferred replicas as leaders, in one topic or (None) in all topics."""

    topic: str | None


Order = CreateTopic | AlterTopic | DeleteRecords | ResetOffsets | ElectLeaders


def subject_of(order: Order) -> str:
    """Return the name of the topic or group that an order changes."""
    match order:
        case CreateTopic():
            return order.spec.name
        case ResetOffsets():
            return order.group_id
        case ElectLeaders():
            return order.topic or "all topics"
        case _:
            return order.topic


# --- words ----------------------------------------------------------------------------------------


def order_of(operation: Operation, words: Mapping[str, str], now_ms: int) -> Order:
    """Return the order in the fields of a form.

    Raise ValueError with the name of the wrong field.
    """
    for name, text in words.items():
        if len(text) > FIELD_CHARS_MAX:
            raise ValueError(
                f"{name}: found {len(text)} characters, expected at most {FIELD_CHARS_MAX}"
            )
    match operation:
        case Operation.CREATE_TOPIC:
            settings = settings_of(words.get("settings", ""))
            set_ones = {key: value for key, value in settings.items() if value is not None}
            if len(set_ones) != len(settings):
                raise ValueError(
                    "settings: found -key, expected key=value: a new topic has nothing to restore"
                )
            return CreateTopic(
                TopicSpec(
                    _required(words, "topic"),
                    _count(words, "partitions"),
                    _count(words, "replicas"),
                    set_ones,
                )
            )
        case Operation.ALTER_TOPIC:
            changes, count = settings_of(words.get("settings", "")), _count(words, "partitions")
            if not changes and count is None:
                raise ValueError("settings: found nothing to change, expected key=value, or -key")
            return AlterTopic(_required(words, "topic"), changes, count)
        case Operation.DELETE_RECORDS:
            return DeleteRecords(
                _required(words, "topic"),
                _numbers(words.get("partitions", "")),
                _target(words, "below", now_ms),
            )
        case Operation.RESET_OFFSETS:
            topics = tuple(words.get("topics", "").split())
            return ResetOffsets(_required(words, "group"), topics, _target(words, "to", now_ms))
        case Operation.ELECT_LEADERS:
            return ElectLeaders(words.get("topic", "").strip() or None)


def settings_of(text: str) -> dict[str, str | None]:
    """Parse lines of `key=value`. `-key` removes a setting (None). Raise ValueError."""
    found: dict[str, str | None] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, value = line.partition("=")
        is_taken_back = not separator and name.startswith("-")
        key = (name[1:] if is_taken_back else name).strip()
        if not key or not (separator or is_taken_back) or key in found:
            again = " a second time" if key in found else ""
            raise ValueError(f"settings: found {line!r}{again}, expected key=value, or -key")
        found[key] = None if is_taken_back else value.strip()
    if len(found) > SETTINGS_MAX:
        raise ValueError(f"settings: found {len(found)}, expected at most {SETTINGS_MAX}")
    return found


def _required(words: Mapping[str, str], name: str) -> str:
    # A group's name can begin and end with blanks, so do not strip it.
    text = words.get(name, "")
    if not text.strip():
        raise ValueError(f"{name}: found nothing, expected a name")
    return text if name == "group" else text.strip()


def _count(words: Mapping[str, str], name: str) -> int | None:
    text = words.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) <= PARTITIONS_MAX:
        raise ValueError(f"{name}: found {text!r}, expected a number from 1 to {PARTITIONS_MAX}")
    return int(text)


def _numbers(text: str) -> tuple[int, ...] | None:
    """Parse `0, 2` as partitions; None means all of them."""
    parts = text.replace(",", " ").split()
    if any(not (part.isascii() and part.isdecimal()) or len(part) > 9 for part in parts):
        raise ValueError(f"partitions: found {text!r}, expected numbers such as 0, 2")
    return tuple(sorted({int(part) for part in parts})) or None


def _target(words: Mapping[str, str], name: str, now_ms: int) -> ResetTarget:
    try:
        return target_of(words.get(name, "").strip(), now_ms)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
