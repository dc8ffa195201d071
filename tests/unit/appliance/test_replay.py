"""Replay of dead letters: which edits by hand are accepted, and the size of one transaction."""

import json

import pytest

from appliance.cli.replay_command import edits_of, repair_of
from appliance.kafka.replay import TRANSACTION_BYTES_MAX, TRANSACTION_LETTERS_MAX, Line, portions
from appliance.output import CommandError
from collector.send.replaying import Letter, LetterPlace


def row(offset: int, **more: object) -> dict[str, object]:
    return {"partition": 0, "record_offset": offset, "value_base64": "", **more}


def test_edits_are_the_envelope_or_rows_one_a_line() -> None:
    rows = [row(3), row(4, line="made good")]
    expected = {LetterPlace(0, 3): None, LetterPlace(0, 4): b"made good"}
    assert edits_of(json.dumps({"schema": "x", "data": rows})) == expected
    assert edits_of("\n".join(map(json.dumps, rows))) == expected
    assert edits_of(json.dumps(rows[0])) == {LetterPlace(0, 3): None}


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[1]",
        '{"data": [{"partition": 0}]}',
        "7",
        '{"partition": -1, "record_offset": 0}',
    ],
)
def test_what_is_no_letter_is_a_fault(text: str) -> None:
    with pytest.raises(CommandError, match="expected what `collector dead-letters --json`"):
        edits_of(text)


def test_an_encoding_that_is_none_is_a_fault() -> None:
    with pytest.raises(CommandError, match="expected the name of a text encoding"):
        repair_of("klingon", cut=False, stdin=False)
    with pytest.raises(CommandError, match="expected the name of a text encoding"):
        repair_of("base64", cut=False, stdin=False)


def line(offset: int, size: int) -> Line:
    place = LetterPlace(0, offset)
    return Line(Letter(place, 0, None, "t", None, None, None, b"k", b"k", b""), "t", bytes(size))


def test_transactions_are_bounded_by_number_and_by_bytes() -> None:
    many = [line(n, 1) for n in range(2 * TRANSACTION_LETTERS_MAX + 1)]
    assert [len(found) for found in portions(many)] == [
        TRANSACTION_LETTERS_MAX, TRANSACTION_LETTERS_MAX, 1,
    ]  # fmt: skip
    large = [line(n, TRANSACTION_BYTES_MAX // 2) for n in range(3)]
    assert [len(found) for found in portions(large)] == [2, 1]
    assert [len(found) for found in portions([line(0, 2 * TRANSACTION_BYTES_MAX)])] == [1]
    assert list(portions([])) == []
