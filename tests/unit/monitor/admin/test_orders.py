"""Orders as form fields: how they are read and written, and which are rejected."""

import pytest

from monitor.admin.orders import (
    FIELD_CHARS_MAX,
    PARTITIONS_MAX,
    SETTINGS_MAX,
    AlterTopic,
    CreateTopic,
    DeleteRecords,
    ElectLeaders,
    Operation,
    Order,
    ResetOffsets,
    order_of,
    settings_of,
)
from protocol.client.admin_types import TopicSpec
from protocol.client.group_offset_reset import ResetTarget, To

NOW_MS = 1_795_557_508_000


@pytest.mark.parametrize(
    ("operation", "words", "order"),
    [
        (
            "create-topic",
            {"topic": " logs ", "partitions": "3", "settings": "retention.ms=5\n\n a = b=c "},
            CreateTopic(TopicSpec("logs", 3, None, {"retention.ms": "5", "a": "b=c"})),
        ),
        (
            "alter-topic",
            {"topic": "logs", "settings": "-retention.ms\ncleanup.policy="},
            AlterTopic("logs", {"retention.ms": None, "cleanup.policy": ""}),
        ),
        ("alter-topic", {"topic": "logs", "partitions": "6"}, AlterTopic("logs", {}, 6)),
        (
            "delete-records",
            {"topic": "logs", "partitions": "2, 0", "below": "end"},
            DeleteRecords("logs", (0, 2), ResetTarget(To.LATEST)),
        ),
        (
            "delete-records",
            {"topic": "logs", "below": "1h"},
            DeleteRecords("logs", None, ResetTarget(To.TIME, NOW_MS - 3_600_000)),
        ),
        (
            "reset-offsets",
            {"group": " g ", "topics": "logs:0\nother", "to": "-10"},
            ResetOffsets(" g ", ("logs:0", "other"), ResetTarget(To.SHIFT, -10)),
        ),
        ("elect-leaders", {"topic": " "}, ElectLeaders(None)),
        ("elect-leaders", {"topic": "logs"}, ElectLeaders("logs")),
    ],
)
def test_words_are_an_order(operation: str, words: dict[str, str], order: Order) -> None:
    assert order_of(Operation(operation), words, NOW_MS) == order


@pytest.mark.parametrize(
    ("operation", "words", "complaint"),
    [
        ("create-topic", {}, "topic: found nothing"),
        ("create-topic", {"topic": "t", "partitions": "0"}, "partitions: found '0'"),
        ("create-topic", {"topic": "t", "partitions": f"{PARTITIONS_MAX + 1}"}, "found '100001'"),
        ("create-topic", {"topic": "t", "replicas": "³"}, "replicas: found '³'"),
        ("create-topic", {"topic": "t", "settings": "-a"}, "found -key"),
        ("create-topic", {"topic": "t" * (FIELD_CHARS_MAX + 1)}, "topic: found 10001 characters"),
        ("alter-topic", {"topic": "t"}, "nothing to change"),
        ("alter-topic", {"topic": "t", "settings": "a"}, "settings: found 'a'"),
        ("alter-topic", {"topic": "t", "settings": "a=1\na=2"}, "a second time"),
        ("delete-records", {"topic": "t", "below": "", "partitions": ""}, "below: found ''"),
        ("delete-records", {"topic": "t", "below": "end", "partitions": "x"}, "partitions: found"),
        ("reset-offsets", {"group": " ", "to": "end"}, "group: found nothing"),
        ("reset-offsets", {"group": "g", "to": "soon"}, "to: found 'soon'"),
    ],
)  # fmt: skip
def test_words_that_mean_nothing_are_named(
    operation: str, words: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        order_of(Operation(operation), words, NOW_MS)


def test_settings_have_a_bound() -> None:
    lines = [f"k{number}=1" for number in range(SETTINGS_MAX)]
    assert len(settings_of("\n".join(lines))) == SETTINGS_MAX
    with pytest.raises(ValueError, match="expected at most"):
        settings_of("\n".join([*lines, "one=more"]))
