"""Position records: decoding gives what was encoded, and an invalid record is rejected."""

import json

import pytest

from collector.identity.checkpoints import (
    Checkpoint,
    UnreadableCheckpoint,
    decode,
    decode_key,
    encode,
    encode_key,
)
from collector.identity.sightings import State
from collector.text.fingerprint import Evidence, FileId, Mark


def checkpoint(**changes: object) -> Checkpoint:
    print_ = Evidence().advance(b"a line\n" * 1000).fingerprint()
    values: dict[str, object] = {
        "generation": "g1",
        "path": "/w/a\udcff",
        "first_path": "/w/a",
        "record_key": "a",
        "topic": "logs.text",
        "file": FileId(7, 1 << 60),
        "birth_ns": 17 * 10**17,
        "fingerprint": print_,
        "lines": 1000,
        "trail": (Mark(10, b"\x01" * 16),),
        "size": 7003,
        "state": State.ROTATED,
        "archive": None,
        "at_ms": 5,
    }
    return Checkpoint(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"birth_ns": None, "ended_ms": 4, "state": State.DONE},
        {"archive": Evidence().advance(b"gz" * 40).fingerprint()},
        {"fingerprint": Evidence().fingerprint(), "trail": ()},
        {"lost_possible": True},
        {"lines_end": 7001},
        {"fingerprint": Evidence().fingerprint(), "counts_again": True},
    ],
)
def test_what_was_written_is_read_back(changes: dict[str, object]) -> None:
    written = checkpoint(**changes)
    assert decode("g1", encode(written)) == written


def test_the_value_is_json_with_the_documented_names() -> None:
    value = json.loads(encode(checkpoint()))
    assert value["position"] == 7000
    assert value["state"] == "rotated"
    assert value["heads"][0][0] == 64
    assert value["first_path"] == "/w/a"
    assert len(encode(checkpoint())) < 500


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"v":2}',
        b"\x00" * 80,
        b"[" * 100_000,
        encode(checkpoint())[:-30],
        encode(checkpoint()).replace(b'"rotated"', b'"lost"'),
    ],
)
def test_anything_else_is_unreadable(value: bytes) -> None:
    with pytest.raises(UnreadableCheckpoint):
        decode("g1", value)


def test_keys_of_other_instances_are_not_ours() -> None:
    assert decode_key(encode_key("mill-1", "g1"), "mill-1") == "g1"
    assert decode_key(encode_key("mill-1", "g1"), "mill") is None
    assert decode_key(b"mill-1", "mill-1") is None
    assert decode_key(b"\xff\xfe/x", "mill-1") is None


def test_ended_records_are_forgotten_in_time() -> None:
    ended = checkpoint(ended_ms=1000, state=State.DONE)
    assert not ended.is_forgotten(1999, 1000)
    assert ended.is_forgotten(2000, 1000)
    assert not checkpoint().is_forgotten(10**15, 1000)
