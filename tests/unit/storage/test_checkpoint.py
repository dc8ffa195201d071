"""The checkpoint files of the logs, in Kafka's format."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.storage import checkpoint
from protocol.types import TopicPartition


def test_offsets_are_one_sorted_line_each() -> None:
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 10): 0, TopicPartition("a", 2): 5}
    data = checkpoint.encode_offsets(offsets)
    assert data == b"0\n3\na 2 5\na 10 0\nb 1 7\n"
    assert checkpoint.decode_offsets(data) == offsets
    assert checkpoint.decode_offsets(b"0\n0\n") == {}


def test_epochs_are_one_line_each() -> None:
    entries = [(0, 0), (3, 120)]
    assert checkpoint.encode_epochs(entries) == b"0\n2\n0 0\n3 120\n"
    assert checkpoint.decode_epochs(b"0\n2\n0 0\n3 120\n") == entries


@pytest.mark.parametrize(
    "data",
    [b"", b"1\n0\n", b"0\n2\na 0 5\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"0\n", b"\xff\n0\n"],
)
def test_a_damaged_offset_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        checkpoint.decode_offsets(data)


@pytest.mark.parametrize("data", [b"0\n2\n3 0\n2 9\n", b"0\n2\n1 9\n2 5\n", b"0\n1\n1\n", b""])
def test_a_damaged_epoch_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        checkpoint.decode_epochs(data)


def test_the_topic_id_stands_in_partition_metadata() -> None:
    topic_id = UUID("00010203-0405-4607-8809-0a0b0c0d0e0f")
    data = checkpoint.encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAECAwQFRgeICQoLDA0ODw\n"
    assert checkpoint.decode_partition_metadata(data) == topic_id
    for damaged in (b"version: 0\n", b"version: 1\ntopic_id: AAECAwQFRgeICQoLDA0ODw\n", b"junk"):
        with pytest.raises(ValueError):
            checkpoint.decode_partition_metadata(damaged)


def test_properties_are_read_as_java_writes_them() -> None:
    assert checkpoint.encode_properties({"b": "2", "a": "1"}) == b"a=1\nb=2\n"
    data = b"#\n#Sat Nov 21 04:00:00 UTC 2026\ncluster.id=abc\nversion=1\n"
    assert checkpoint.decode_properties(data) == {"cluster.id": "abc", "version": "1"}


@pytest.mark.parametrize("data", [b"", b"\0\0", b"[]", b'{"version":0,"brokerEpoch":7}'])
def test_what_a_power_cut_leaves_of_the_running_marker_is_none(data: bytes) -> None:
    assert checkpoint.decode_running(checkpoint.encode_running(7, "b")) == (7, "b")
    with pytest.raises(ValueError):
        checkpoint.decode_running(data)
