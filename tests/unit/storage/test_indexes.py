"""The two sparse indexes: their files byte by byte, and the results of lookups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.storage.indexes import OffsetIndex, TimeIndex


def offset_index(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex()
    for offset, position in entries:
        index.append(offset, position)
    return index


def time_index(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex()
    for timestamp_ms, offset in entries:
        index.append_if_newer(timestamp_ms, offset)
    return index


def test_offset_entries_stand_in_the_file_as_kafka_writes_them() -> None:
    index = offset_index((9, 4200), (258, 8500))
    assert index.encode() == bytes.fromhex("00000009 00001068 00000102 00002134")
    assert index.encode(1) == bytes.fromhex("00000102 00002134")


def test_time_entries_stand_in_the_file_as_kafka_writes_them() -> None:
    index = time_index((1_700_000_000_000, 9))
    assert index.encode() == bytes.fromhex("0000018bcfe56800 00000009")


def test_a_lookup_gives_a_batch_that_does_not_begin_behind_the_offset() -> None:
    index = offset_index((9, 4200), (19, 8500))
    assert [index.position_before(offset) for offset in (0, 8, 9, 18, 19, 500)] == [
        0, 0, 4200, 4200, 8500, 8500,
    ]  # fmt: skip


def test_a_boundary_is_the_last_one_not_beyond_the_position() -> None:
    index = offset_index((9, 4200), (19, 8500))
    assert [index.boundary_at_most(at) for at in (0, 4199, 4200, 9000)] == [0, 0, 4200, 8500]


def test_a_time_entry_is_added_only_when_it_is_newer() -> None:
    index = time_index((100, 5), (100, 9), (90, 12), (101, 15))
    assert list(zip(index.timestamps, index.offsets, strict=True)) == [(100, 5), (101, 15)]


def test_records_older_than_a_timestamp_end_before_its_first_record() -> None:
    index = time_index((100, 5), (200, 9))
    # A record with exactly timestamp 100 can be at any offset up to 5, so nothing can be skipped.
    assert [index.offset_before(at) for at in (50, 100, 101, 200, 201)] == [0, 0, 5, 5, 9]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("000000", "expected a multiple of"),
        ("00000009 00001068 00000009 00002134", "rise"),
        ("00000009 00001068 0000000a 00001068", "rise"),
        ("00000009 00001068 00000008 00002134", "rise"),
        ("00000009 7fffffff", "beyond the end"),
    ],
)
def test_a_file_that_cannot_be_an_offset_index_is_refused(data: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        OffsetIndex.decode(bytes.fromhex(data), 10_000)


@pytest.mark.parametrize(
    "data",
    [
        "0000018bcfe568",
        "0000018bcfe56800 00000009 0000018bcfe56800 0000000a",
        "0000018bcfe56801 00000009 0000018bcfe56802 00000009",
    ],
)
def test_a_file_that_cannot_be_a_time_index_is_refused(data: str) -> None:
    with pytest.raises(ValueError, match=r"rise|multiple"):
        TimeIndex.decode(bytes.fromhex(data))


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=50))
def test_what_is_encoded_is_read_back(steps: list[tuple[int, int]]) -> None:
    index, times = OffsetIndex(), TimeIndex()
    offset = position = 0
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        index.append(offset, position)
        times.append_if_newer(position, offset)
    again = OffsetIndex.decode(index.encode(), position + 1)
    assert (again.offsets, again.positions) == (index.offsets, index.positions)
    again_times = TimeIndex.decode(times.encode())
    assert (again_times.timestamps, again_times.offsets) == (times.timestamps, times.offsets)
