"""Which topics need a higher `max.message.bytes`, because their inputs allow longer lines."""

from collector.config.input_section import DEAD_LETTERS_TOPIC
from collector.config.limits import (
    DEFAULT_MESSAGE_BYTES,
    RECORD_ROOM_BYTES,
    REQUEST_BYTES_MAX,
    to_raise,
    wanted_limits,
)
from collector.config.settings import CollectorSection

MIB = 1 << 20


def section(**lengths: str) -> CollectorSection:
    inputs = [
        {"paths": [topic], "topic": topic, "max_line_bytes": length}
        for topic, length in lengths.items()
    ]
    return CollectorSection.model_validate({"inputs": inputs})


def test_each_topic_wants_room_for_its_longest_line_and_the_dead_letters_for_all() -> None:
    wanted = wanted_limits(section(small="64KiB", even="1MiB", vast="1GiB"))
    assert wanted == {
        "small": DEFAULT_MESSAGE_BYTES,
        "even": MIB + RECORD_ROOM_BYTES,
        "vast": REQUEST_BYTES_MAX,
        DEAD_LETTERS_TOPIC: REQUEST_BYTES_MAX,
    }


def test_topics_that_templates_have_made_want_what_their_input_needs() -> None:
    inputs = [
        {"paths": ["w/*/*"], "topic": "logs.{1}", "max_line_bytes": "2MiB"},
        {"paths": ["a"], "topic": "other", "max_line_bytes": "64KiB"},
    ]
    wanted = wanted_limits(CollectorSection.model_validate({"inputs": inputs}), ["logs.web"])
    assert wanted == {
        "logs.web": 2 * MIB + RECORD_ROOM_BYTES,
        "other": DEFAULT_MESSAGE_BYTES,
        DEAD_LETTERS_TOPIC: 2 * MIB + RECORD_ROOM_BYTES,
    }


def test_only_a_limit_that_is_too_small_and_not_set_is_raised() -> None:
    wanted = {"a": 2 * MIB, "b": MIB, "c": 2 * MIB}
    assert to_raise(wanted, {"a": MIB, "b": MIB, "other": 1}) == {"a": 2 * MIB}
