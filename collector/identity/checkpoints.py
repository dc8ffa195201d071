"""The position record: what the topic of positions holds about one generation.

This module is pure. Key: `<instance>/<generation>`. Value: one JSON object, hashes in base64, so
that a person can read it with any Kafka client:

    v            format, 1
    path         the name it was last seen under      key    path of its records' key
    first_path   the first name, null: the same       topic  where its lines went
    device, inode, birth_ns                           which file it is
    position     start of the next line; decompressed bytes for an archive
    lines        lines acknowledged since its start
    heads        [[length, hash] …] of the first bytes marker hash of the bytes before position
    crc          CRC32C of bytes 0..position          trail  [[position, hash] …] of older markers,
                                                             of each hash the first 8 bytes
    size         last seen size                       state  see sightings.State
    archive      null, or {size, heads, marker, crc} of the compressed bytes
    at_ms        when this was written                ended_ms  since when it has ended, or null
    lost         there if lines of it may be lost     again     there if it must be counted again

A null value forgets the generation. A value of a later format, or an unreadable one, is reported
and never interpreted by guess.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

from collector.identity.sightings import State, Stored
from collector.text.fingerprint import FileId, Fingerprint, Head, Mark

FORMAT = 1


class UnreadableCheckpoint(Exception):
    """The error for a position record that this version cannot read. Its text says why."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The stored state of one file.

    `fingerprint.position` is the position up to which it is committed.
    """

    generation: str
    path: str
    first_path: str
    record_key: str
    topic: str
    file: FileId
    birth_ns: int | None
    fingerprint: Fingerprint
    lines: int
    trail: tuple[Mark, ...]
    size: int
    state: State
    archive: Fingerprint | None
    at_ms: int
    ended_ms: int | None = None
    lost_possible: bool = False
    counts_again: bool = False
    """True if a user asked to read the file again even if it is a copy of another file."""
    lines_end: int | None = None
    """The offset after which only an unfinished line, up to `size`, was found.

    None if there was no unfinished line, or if this is unknown.
    """

    def stored(self) -> Stored:
        """Return the stored file as `decide` needs it.

        An archive is recognised by its compressed bytes.
        """
        return Stored(
            self.generation,
            self.path,
            self.file,
            self.birth_ns,
            self.archive or self.fingerprint,
            self.state,
            None,
            self.fingerprint.position < self.size,
            self.first_path,
            self.size,
            self.trail,
            self.archive is None,
            unread_lines_end=self.size if self.lines_end is None else self.lines_end,
        )

    def is_forgotten(self, now_ms: int, forget_after_ms: int) -> bool:
        """Tell whether the file ended so long ago that its position record can be deleted."""
        return self.ended_ms is not None and now_ms - self.ended_ms >= forget_after_ms


def encode_key(instance: str, generation: str) -> bytes:
    """Return the record key of one file generation of one collector instance."""
    return f"{instance}/{generation}".encode()


def decode_key(key: bytes, instance: str) -> str | None:
    """Return the generation in a record key; None when the record belongs to another instance."""
    owner, slash, generation = key.decode(errors="replace").rpartition("/")
    return generation if slash and owner == instance and generation else None


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the record value of a checkpoint."""
    c = checkpoint
    archive = None
    if c.archive is not None:
        archive = {"size": c.archive.position, **_hashes(c.archive)}
    value = {
        "v": FORMAT,
        "path": c.path,
        "first_path": None if c.first_path == c.path else c.first_path,
        "key": c.record_key,
        "topic": c.topic,
        "device": c.file.device,
        "inode": c.file.inode,
        "birth_ns": c.birth_ns,
        "position": c.fingerprint.position,
        "lines": c.lines,
        **_hashes(c.fingerprint),
        "trail": [[mark.position, _text(mark.digest)] for mark in c.trail],
        "size": c.size,
        "state": str(c.state),
        "archive": archive,
        "at_ms": c.at_ms,
        "ended_ms": c.ended_ms,
    }
    value |= {"lost": True} if c.lost_possible else {}
    value |= {"again": True} if c.counts_again else {}
    value |= {"lines_end": c.lines_end} if c.lines_end is not None else {}
    # Bytes of a name that are not UTF-8 are kept as lone surrogates, which JSON writes as escapes.
    return json.dumps(value, separators=(",", ":")).encode()


def decode(generation: str, value: bytes) -> Checkpoint:
    """Return the checkpoint in a record value. Raises UnreadableCheckpoint."""
    try:
        fields = json.loads(value)
        if fields["v"] != FORMAT:
            raise UnreadableCheckpoint(f"found format {fields['v']!r}, expected {FORMAT}")
        return _decode(generation, fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableCheckpoint(f"not a position record: {error!r}") from error


def _decode(generation: str, fields: dict[str, Any]) -> Checkpoint:
    archive = fields["archive"]
    ended_ms, birth_ns = fields["ended_ms"], fields["birth_ns"]
    lines_end = fields.get("lines_end")
    return Checkpoint(
        generation,
        str(fields["path"]),
        str(fields["path"] if fields["first_path"] is None else fields["first_path"]),
        str(fields["key"]),
        str(fields["topic"]),
        FileId(int(fields["device"]), int(fields["inode"])),
        None if birth_ns is None else int(birth_ns),
        _fingerprint(int(fields["position"]), fields),
        int(fields["lines"]),
        tuple(Mark(int(at), _bytes(digest)) for at, digest in fields["trail"]),
        int(fields["size"]),
        State(fields["state"]),
        None if archive is None else _fingerprint(int(archive["size"]), archive),
        int(fields["at_ms"]),
        None if ended_ms is None else int(ended_ms),
        bool(fields.get("lost")),
        bool(fields.get("again")),
        None if lines_end is None else int(lines_end),
    )


def _text(digest: bytes) -> str:
    return b64encode(digest).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4), validate=True)


def _hashes(print_: Fingerprint) -> dict[str, Any]:
    return {
        "heads": [[head.length, _text(head.digest)] for head in print_.heads],
        "marker": _text(print_.marker),
        "crc": print_.crc,
    }


def _fingerprint(position: int, fields: dict[str, Any]) -> Fingerprint:
    heads = tuple(Head(int(length), _bytes(digest)) for length, digest in fields["heads"])
    if position < 0 or (position > 0 and not heads):
        raise ValueError("the position has no hashes of the file's first bytes")
    crc = fields["crc"]
    marker = _bytes(fields["marker"])
    return Fingerprint(position, heads, marker, None if crc is None else int(crc))
