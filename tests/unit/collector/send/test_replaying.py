"""Replay of dead letters: the fields of a letter, the record that is made from it, and the note of
what was replayed."""

from pathlib import Path

import pytest

from collector.config.input_section import DEAD_LETTERS_TOPIC
from collector.send.replaying import (
    Letter,
    LetterPlace,
    Repair,
    Unrepairable,
    letter_of,
    note_headers,
    note_of,
    repaired,
)
from tests.unit.collector.world import HOST, World


def letter(value: bytes = b"\xe4bc", **fields: object) -> Letter:
    known: dict[str, object] = {
        "place": LetterPlace(1, 7), "timestamp_ms": 5, "reason": "invalid_bytes", "topic": "t",
        "file": "/a.log", "offset": 0, "length": len(value) + 1, "key": b"a", "line_key": b"a",
        "value": value,
    }  # fmt: skip
    return Letter(**(known | fields))  # type: ignore[arg-type]


def test_a_letter_says_what_its_record_said(tmp_path: Path) -> None:
    """The letter must have the line's own key and headers. The input's key for dead letters is
    ignored."""
    headers = {"reason": "ours", "host": "{host}"}
    for kind, expected in (("path", b"a.log"), ("none", None), ("host", HOST.encode())):
        folder = tmp_path / kind
        folder.mkdir()
        world = World(
            folder, key=kind, headers=headers, encoding="shift_jis", on_invalid="dead_letter"
        )
        world.append("a.log", b"one\n\xff two\n")
        world.scan()
        world.feeder.step(world.now_ms)
        (piece,) = (
            entry.piece
            for batch in world.feeder.outbox.take(everything=True)
            if batch.partition.topic == DEAD_LETTERS_TOPIC
            for entry in batch.entries
        )
        said = [(name.decode(), content) for name, content in piece.headers]
        value = bytes(piece.block.data).removesuffix(b"\n")
        found = letter_of(LetterPlace(0, 0), 1, piece.key, value, said)
        assert (found.reason, found.topic, found.offset, found.length) == (
            "invalid_bytes", "t", 4, 6,
        )  # fmt: skip
        assert found.file == f"{folder}/a.log"
        assert found.line_key == expected
        assert found.value == b"\xff two"
        assert found.line_headers == (("reason", b"ours"), ("host", HOST.encode()))
        assert found.is_whole


def test_a_note_names_its_letter_and_is_no_letter() -> None:
    assert note_of(
        [(name, value) for name, value in note_headers(LetterPlace(2, 40))]
    ) == LetterPlace(2, 40)
    assert note_of([("reason", b"overlong"), ("replayed", b"by hand")]) is None
    assert note_of([("replayed", None)]) is None


def test_a_letter_is_put_back_as_it_is_or_as_it_is_read() -> None:
    assert repaired(letter(), Repair()) == b"\xe4bc"
    assert repaired(letter(), Repair(decode="latin-1")) == "äbc".encode()
    with pytest.raises(Unrepairable, match="the dead letter is not valid ascii"):
        repaired(letter(), Repair(decode="ascii"))


def test_a_letter_that_holds_only_a_beginning_is_left_out_unless_asked_for() -> None:
    beginning = letter(b"abc", length=2001)
    with pytest.raises(Unrepairable, match="only 3 of the 2001 bytes"):
        repaired(beginning, Repair())
    assert repaired(beginning, Repair(with_cut=True)) == b"abc"
    assert repaired(beginning, Repair(edits={LetterPlace(1, 7): b"by hand"})) == b"by hand"


def test_one_that_says_no_topic_cannot_be_put_back() -> None:
    with pytest.raises(Unrepairable, match="name the topic"):
        repaired(letter(topic=None), Repair(edits={LetterPlace(1, 7): b"x"}))
