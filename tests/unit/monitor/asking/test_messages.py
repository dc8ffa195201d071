"""Reading a topic's records: the request, and a display that neither alters text nor runs a
script."""

import json

import pytest

from monitor.asking.messages import (
    CONTAINS_CHARACTERS_MAX,
    COUNTS,
    HEADERS_MAX,
    KEY_BYTES_MAX,
    PAGE_BYTES_MAX,
    PARTITIONS_MAX,
    PREVIEW_CHARACTERS_MAX,
    SEARCH_BACK_MAX,
    VALUE_BYTES_MAX,
    Asked,
    Begin,
    Wanted,
    beginnings,
    chosen,
    holds,
    laid_out_json,
    record_rows,
    record_views,
    wanted_of,
)
from protocol.types import TopicPartition
from protocol.wire.record import Record

NOW_MS = 1_800_000_000_000
ROW = TopicPartition("t", 0)


def record(value: bytes | None, **keys: object) -> Record:
    made = {"offset": 7, "timestamp_ms": NOW_MS, "key": None, "headers": (), "sequence": -1} | keys
    return Record(value=value, **made)  # type: ignore[arg-type]


def view(value: bytes | None, **keys: object):  # type: ignore[no-untyped-def]
    return record_views([(ROW, record(value, **keys))])[0]


def test_the_words_of_a_request_become_what_is_read() -> None:
    assert wanted_of("t", Asked(), 3, NOW_MS) == Wanted("t")
    assert wanted_of("t", Asked("2", "offset", "42", "50", "x", "1"), 3, NOW_MS) == (
        Wanted("t", 2, Begin.OFFSET, 42, 50, "x", is_committed_only=False)
    )
    assert wanted_of("t", Asked(begin="time", at=" 10m"), 3, NOW_MS).at == NOW_MS - 600_000
    at = wanted_of("t", Asked(begin="time", at="2026-08-01T10:00Z"), 3, NOW_MS).at
    assert at == 1_785_578_400_000


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Asked("3"), "partition: found 3, expected 0 to 2"),
        (Asked("-1"), "partition: found '-1', expected a number from 0"),
        (Asked("٣"), "expected a number from 0"),
        (Asked("0", "offset", ""), "at: found '', expected a number from 0"),
        (Asked("0", "offset", "9" * 19), "expected a number from 0"),
        (Asked("0", "offset", "9" * 9_999), "expected a number from 0"),
        (Asked(begin="offset", at="5"), "partition: found none, expected one"),
        (Asked(begin="middle"), "from: found 'middle', expected one of latest, earliest"),
        (Asked(begin="time", at="noon"), "at: found 'noon', expected a duration ago"),
        (Asked(count="7"), "n: found 7, expected one of 10, 20, 50, 100"),
        (Asked(contains="x" * (CONTAINS_CHARACTERS_MAX + 1)), "expected at most 200"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(asked: Asked, words: str) -> None:
    with pytest.raises(ValueError, match="found") as found:
        wanted_of("t", asked, 3, NOW_MS)
    assert words in str(found.value)
    assert len(str(found.value)) < 300


def test_of_a_wide_topic_one_partition_has_to_be_chosen() -> None:
    assert wanted_of("t", Asked(), PARTITIONS_MAX, NOW_MS).partition is None
    with pytest.raises(ValueError, match="at most 64 are read together"):
        wanted_of("t", Asked(), PARTITIONS_MAX + 1, NOW_MS)
    assert wanted_of("t", Asked("64"), PARTITIONS_MAX + 1, NOW_MS).partition == 64


OTHER = TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted("t", count=10), {ROW: 90, OTHER: 5}),
        (Wanted("t", begin=Begin.EARLIEST), {ROW: 20, OTHER: 5}),
        (Wanted("t", begin=Begin.OFFSET, at=1), {ROW: 20, OTHER: 5}),
        (Wanted("t", begin=Begin.OFFSET, at=50), {ROW: 50}),
        (Wanted("t", begin=Begin.OFFSET, at=100), {}),
        (Wanted("t", begin=Begin.TIME, at=9), {ROW: 60}),
        (Wanted("t", contains="x"), {ROW: 20, OTHER: 5}),
    ],
)
def test_where_reading_begins(wanted: Wanted, found: dict[TopicPartition, int]) -> None:
    # The second partition has no record from that time on, so nothing is read from it.
    assert beginnings(wanted, {ROW: 20, OTHER: 5}, {ROW: 100, OTHER: 8}, {ROW: 60}) == found


def test_a_search_of_the_latest_looks_back_so_far_and_not_further() -> None:
    found = beginnings(Wanted("t", contains="x"), {ROW: 0}, {ROW: 50_000}, {})
    assert found == {ROW: 50_000 - SEARCH_BACK_MAX}


def test_an_empty_partition_is_not_read() -> None:
    assert beginnings(Wanted("t"), {ROW: 8}, {ROW: 8}, {}) == {}


def test_the_latest_come_newest_first_and_others_in_the_order_of_time() -> None:
    rows = [
        (place, record(b"", offset=offset, timestamp_ms=at))
        for place, offset, at in ((ROW, 1, 10), (ROW, 2, 30), (OTHER, 9, 20), (OTHER, 10, 30))
    ]
    latest = chosen(rows, Wanted("t", count=3))
    assert [one.offset for _, one in latest] == [10, 2, 9]
    first = chosen(rows, Wanted("t", begin=Begin.EARLIEST, count=3))
    assert [one.offset for _, one in first] == [1, 9, 2]


def test_a_search_looks_into_keys_values_and_headers() -> None:
    assert holds(record(b"a needle b"), b"needle")
    assert holds(record(None, key=b"needle"), b"needle")
    assert holds(record(None, headers=(("h", b"needle"),)), b"needle")
    assert not holds(record(None, headers=(("needle", None),)), b"needle")
    assert holds(record(None), b"")


def test_json_is_laid_out_as_it_stands_every_digit_and_every_key_of_it() -> None:
    text = '{"a":1.10,"a":[1e400,{},[ ]],"b, {":"x\\"}, y","n":12345678901234567890}'
    assert laid_out_json(text) == (
        '{\n  "a": 1.10,\n  "a": [\n    1e400,\n    {},\n    []\n  ],\n'
        '  "b, {": "x\\"}, y",\n  "n": 12345678901234567890\n}'
    )
    found = view(text.encode())
    assert (found.note, found.preview) == ("JSON", text)
    assert found.whole == laid_out_json(text)


@pytest.mark.parametrize(
    "text", ["{", '{"a":}', "[1,]", "12", '"x"', "null", "", "[" * 100_000, "{" + "9" * 9_000]
)
def test_what_is_no_json_object_is_shown_as_text(text: str) -> None:
    assert laid_out_json(text) is None
    assert view(text.encode()).note != "JSON"


@pytest.mark.parametrize("value", [{"a": {"b": [1, 2, {"c": None}]}}, [[], {}, [[]]], []])
def test_what_is_laid_out_still_says_the_same(value: object) -> None:
    short = json.dumps(value, separators=(",", ":"))
    for text in (json.dumps(value), json.dumps(value, indent=3), short):
        laid_out = laid_out_json(text)
        assert laid_out is not None
        assert json.loads(laid_out) == value


def test_what_does_not_print_is_spelled_out() -> None:
    found = view(b"one\ttwo\r\n\x1b[31mred\x00 \xe2\x80\xae evil")
    assert found.preview == "one\\ttwo\\r\\n\\x1b[31mred\\x00 \\u202e evil"
    assert found.whole == "one\ttwo\\r\n\\x1b[31mred\\x00 \\u202e evil"
    hidden = view(b'{"a":"\xe2\x80\xae"}')
    assert hidden.whole is not None
    assert "\u202e" not in hidden.whole


def test_bytes_that_are_no_text_are_shown_in_hexadecimal() -> None:
    found = view(b"\x00\xff" * 100)
    assert found.preview is not None
    assert found.preview.startswith("00 ff 00 ff")
    assert found.note == "no UTF-8, 200 bytes"
    assert view(None).note == "null"
    assert view(None).preview is None
    assert view(b"").preview == ""


def test_a_long_value_is_cut_between_letters_and_says_so() -> None:
    long = "é" * VALUE_BYTES_MAX
    found = view(b"x" + long.encode())
    assert found.note == f"cut: the first {VALUE_BYTES_MAX:,} of {2 * VALUE_BYTES_MAX + 1:,} bytes"
    assert found.whole == "x" + "é" * (VALUE_BYTES_MAX // 2 - 1)
    assert found.preview is not None
    assert len(found.preview) == PREVIEW_CHARACTERS_MAX + 1
    assert found.size_bytes == 2 * VALUE_BYTES_MAX + 1
    cut_json = view(b'{"a":"' + b"x" * VALUE_BYTES_MAX + b'"}')
    assert cut_json.note.startswith("cut:"), "half an object is none"


def test_a_page_has_a_bound() -> None:
    rows = [(ROW, record(b"x" * VALUE_BYTES_MAX, offset=n)) for n in range(max(COUNTS))]
    views = record_views(rows)
    whole = [one for one in views if one.whole is not None]
    assert len(whole) == PAGE_BYTES_MAX // VALUE_BYTES_MAX
    assert views[-1].note == "cut: the page is full"
    assert views[-1].preview


def test_keys_and_headers_have_bounds_too() -> None:
    headers = tuple((f"h{n}", b"v") for n in range(HEADERS_MAX + 5))
    found = view(b"", key=b"k" * (KEY_BYTES_MAX + 1), headers=headers)
    assert found.key is not None
    assert found.key.endswith(f"(cut: the first {KEY_BYTES_MAX} of {KEY_BYTES_MAX + 1} bytes)")
    assert (len(found.headers), found.headers_left_out) == (HEADERS_MAX, 5)
    assert view(b"", headers=(("h", None),)).headers == (("h", "null"),)
    assert view(b"", headers=(("h\x1b", b"\n"),)).headers == (("h\\x1b", "\\n"),)


def test_rows_for_programs_are_text_or_base64_and_say_which() -> None:
    (found,) = record_rows([(ROW, record(b"\xff", key="é".encode(), headers=(("h", None),)))])
    assert (found["key"], found["key_encoding"]) == ("é", "utf-8")
    assert (found["value"], found["value_encoding"]) == ("/w==", "base64")
    assert found["headers"] == [{"name": "h", "value": None, "value_encoding": None}]
    (cut,) = record_rows([(ROW, record(b"x" + "é".encode() * VALUE_BYTES_MAX))])
    assert (cut["value_encoding"], cut["is_cut"]) == ("utf-8", True)
    assert cut["value_size_bytes"] == 2 * VALUE_BYTES_MAX + 1
    json.dumps(found)
