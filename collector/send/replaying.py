"""Put dead letters back as lines: which ones, in what form, and the note that it was done.

Room: beside `dead_letters`. Pure. A letter is named by its partition and offset in the topic of
dead letters. Its note is a record of the same partition, committed together with the line that was
put back. So reading the topic to its end, with no open transaction before that, shows for each
letter whether it was put back. A note has one header, `replayed`, with the letter's place as
`partition:offset`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from collector.send.dead_letters import LINE_HEADER

REPLAYED = "replayed"
SHOWN_BYTES = 60
LINE_END_BYTES_MAX = 4
"""CR LF in UTF-16. A letter's length includes its line end; its value does not."""

Headers = Iterable[tuple[str, bytes | None]]


class Unrepairable(Exception):
    """A letter cannot be put back; the text gives the reason."""


class LetterPlace(NamedTuple):
    """The partition and offset of a letter in its topic."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. `offset` and `length` refer to the file, in bytes, if known.

    `line_key` is the key that the line would have had; `line_headers` are its headers.
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
        """Whether it holds the whole line."""
        return self.length is None or self.length <= len(self.value) + LINE_END_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Repair:
    """How letters become lines: decoded, unchanged, or replaced by the user.

    `with_cut`: also put back letters of which only the beginning was kept. `edits`: put back only
    these letters; each value is the replacement line, or None to keep the letter's own.
    """

    decode: str | None = None
    with_cut: bool = False
    edits: Mapping[LetterPlace, bytes | None] | None = None


def note_of(headers: Headers) -> LetterPlace | None:
    """Return the letter that a record marks as put back; None for any other record."""
    for name, value in headers:
        if name == REPLAYED and value is not None:
            partition, _, offset = value.decode(errors="replace").partition(":")
            if partition.isdigit() and offset.isdigit():
                return LetterPlace(int(partition), int(offset))
    return None


def note_headers(place: LetterPlace) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a letter's note."""
    return ((REPLAYED, f"{place.partition}:{place.offset}".encode()),)


def letter_of(
    place: LetterPlace, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers
) -> Letter:
    """Return the letter in a record. Fields without a header are None."""
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
    """Return the line to put back. Raises Unrepairable."""
    if letter.topic is None:
        raise Unrepairable("it does not name the topic of its line")
    edited = None if repair.edits is None else repair.edits.get(letter.place)
    if edited is not None:
        return edited
    if not letter.is_whole and not repair.with_cut:
        raise Unrepairable(
            f"only {len(letter.value)} of its {letter.length} bytes were kept: --cut puts these"
            " back, --stdin a line of your own"
        )
    if repair.decode is None:
        return letter.value
    try:
        return letter.value.decode(repair.decode).encode()
    except UnicodeError as error:
        raise Unrepairable(f"it is not {repair.decode}: {error}") from error


def first_bytes(value: bytes) -> str:
    """Return the beginning of a value as text, for a table."""
    return value[:SHOWN_BYTES].decode(errors="backslashreplace")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() else None
