"""Put dead letters back as lines: choose and repair the letters, and mark them as put back.

This module is pure. A letter is identified by its partition and offset in the dead-letter topic.
When its line is put back, a *note* is committed to the same partition in the same transaction. So a
reader of committed records that reads the whole topic knows for each letter whether it was put
back. A note has one header, `replayed`, with the letter's `partition:offset`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from collector.send.dead_letters import LINE_HEADER

REPLAYED = "replayed"
SHOWN_BYTES = 60
LINE_END_BYTES_MAX = 4
"""The size of the longest line end, CR LF in a UTF-16 line.

The length stored in a dead letter includes the line end, but the letter's value does not.
"""

Headers = Iterable[tuple[str, bytes | None]]


class Unrepairable(Exception):
    """The error for a letter that cannot be put back. Its text gives the reason."""


class LetterPlace(NamedTuple):
    """The partition and offset of a letter in the dead-letter topic."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. `offset` and `length` are the line's byte range in the file, if known.

    `line_key` is the key that the line would have had. `line_headers` are the headers of the line.
    """

    place: LetterPlace
    timestamp_ms: int
    reason: str | None
    topic: str | None
    file: str | None
    offset: int | None
    length: int | None
    key: bytes | None
    line_key: bytes | None
    value: bytes
    line_headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if the letter holds the whole line."""
        return self.length is None or self.length <= len(self.value) + LINE_END_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Repair:
    """How letters become lines: decoded, unchanged, or replaced by the user.

    `with_cut`: also put back letters that hold only the beginning of the line. `edits`: put back
    only these letters. The value is the line to send instead, or None to send the letter's own
    line.
    """

    decode: str | None = None
    with_cut: bool = False
    edits: Mapping[LetterPlace, bytes | None] | None = None


def note_of(headers: Headers) -> LetterPlace | None:
    """Return the partition and offset of the letter that a note marks as put back.

    Return None if the record is not a note.
    """
    for name, value in headers:
        if name == REPLAYED and value is not None:
            partition, _, offset = value.decode(errors="replace").partition(":")
            if partition.isdigit() and offset.isdigit():
                return LetterPlace(int(partition), int(offset))
    return None


def note_headers(place: LetterPlace) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of the note for a letter."""
    return ((REPLAYED, f"{place.partition}:{place.offset}".encode()),)


def letter_of(
    place: LetterPlace, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers
) -> Letter:
    """Return the letter in a record. Fields whose header is missing are None."""
    found = {name: content or b"" for name, content in headers}
    line_key = found.get("key", key)
    prefix = LINE_HEADER.decode()
    return Letter(
        place,
        timestamp_ms,
        _text(found.get("reason")),
        _text(found.get("topic")),
        _text(found.get("file")),
        _number(found.get("offset")),
        _number(found.get("length")),
        key,
        line_key or None,
        value or b"",
        tuple(
            (name.removeprefix(prefix), content)
            for name, content in found.items()
            if name.startswith(prefix)
        ),
    )


def repaired(letter: Letter, repair: Repair) -> bytes:
    """Return the line that replaces a dead letter. Raises Unrepairable if there is none."""
    if letter.topic is None:
        raise Unrepairable("the dead letter does not name the topic of its line")
    edited = None if repair.edits is None else repair.edits.get(letter.place)
    if edited is not None:
        return edited
    if not letter.is_whole and not repair.with_cut:
        raise Unrepairable(
            f"the dead letter has only {len(letter.value)} of the {letter.length} bytes of its"
            " line: use --cut to send these, or --stdin to send a line of your own"
        )
    if repair.decode is None:
        return letter.value
    try:
        return letter.value.decode(repair.decode).encode()
    except UnicodeError as error:
        raise Unrepairable(f"the dead letter is not valid {repair.decode}: {error}") from error


def first_bytes(value: bytes) -> str:
    """Return the beginning of a value as text, for a table."""
    return value[:SHOWN_BYTES].decode(errors="backslashreplace")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() else None
