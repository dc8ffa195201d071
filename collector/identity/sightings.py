"""The inputs and outputs of the decision which file is which.

This module has only data classes. `Stored` is what the collector knows of a generation (one life of
one file's content). `Seen` is one name found by a scan, and `OpenStat` the stat of an open file. A
`Probe` asks for the hash of a part of a file. Its answer is an input of the next call.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from collector.text.fingerprint import FileId, Fingerprint, Mark


class State(StrEnum):
    """The state of a generation.

    LIVE (under its first name) and ROTATED (renamed) are read. DRAINING: the name is gone, and the
    rest is read through the open handle. In three states reading has ended: MOVED_OUT (the file
    exists outside the globs), GONE (it vanished while no handle was open) and DONE (the content was
    deleted, truncated or replaced). A file in any state except DONE is recognised by device and
    inode.
    """

    LIVE = "live"
    ROTATED = "rotated"
    DRAINING = "draining"
    MOVED_OUT = "moved_out"
    GONE = "gone"
    DONE = "done"

    @property
    def has_ended(self) -> bool:
        """Tell whether reading has ended, unless the file appears again."""
        return self in (State.MOVED_OUT, State.GONE, State.DONE)


class Stamp(NamedTuple):
    """A file's size and modification time.

    As long as both are the same, the content is the same.
    """

    size: int
    mtime_ns: int


class Doubt(NamedTuple):
    """NULs that other text follows. Text may still replace them, so reading waits there.

    `size` is the file's size when they were found, and `since_ms` when the wait began.
    """

    start: int
    size: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A known generation as `decide` needs it.

    `fingerprint` is that of the bytes read so far. `stamp` is the file's stamp when its content was
    last found equal; None after a start. `is_behind`: the last scan found unread bytes.
    `is_unread`: no byte of the file was read yet. `size`: the largest size seen, without NULs at
    the end. After the offset `unread_lines_end` only an unfinished line was seen. For a compressed
    file, position and fingerprint refer to the compressed bytes.
    """

    generation: str
    path: str
    file: FileId
    birth_ns: int | None
    fingerprint: Fingerprint
    state: State = State.LIVE
    stamp: Stamp | None = None
    is_behind: bool = False
    first_path: str = ""
    size: int = 0
    trail: tuple[Mark, ...] = ()
    is_plain: bool = True
    is_unread: bool = False
    unread_lines_end: int = 0
    tail: bytes = b""
    """The last bytes before the position, while the file is being read."""
    seen_size: int = 0
    """The largest size seen, including NULs at the end."""

    @property
    def position(self) -> int:
        """The position up to which the file was read."""
        return self.fingerprint.position


@dataclass(frozen=True, slots=True)
class Seen:
    """One matching name. Several names can belong to one file. `birth_ns` is None if unknown."""

    path: str
    file: FileId
    size: int
    mtime_ns: int
    birth_ns: int | None = None
    input_index: int = 0
    still_ms: int = 0
    """The time for which the size of the file is known to be unchanged."""

    @property
    def stamp(self) -> Stamp:
        """The size and modification time of the file."""
        return Stamp(self.size, self.mtime_ns)


@dataclass(frozen=True, slots=True)
class OpenStat:
    """The stat of an open file, which is newer than the stat that the scan found under its name."""

    size: int
    mtime_ns: int
    links: int

    @property
    def stamp(self) -> Stamp:
        """The size and modification time of the file."""
        return Stamp(self.size, self.mtime_ns)


class Probe(NamedTuple):
    """A question for the hash of `length` bytes of a file from `offset`."""

    file: FileId
    offset: int
    length: int


class WholeProbe(NamedTuple):
    """A slow question for the CRC32C of all bytes of a file before `length`, big-endian."""

    file: FileId
    length: int


class KeptProbe(NamedTuple):
    """A question about a trimmed file: the offset at which the lines end that were read before.

    These lines were read up to `position`, before the file was trimmed. The answer has eight bytes,
    big-endian, and is empty if the file has no such lines. `trimming` explains `tail`.
    """

    file: FileId
    position: int
    marker: bytes
    tail: bytes


AnyProbe = Probe | WholeProbe | KeptProbe

# The answer None means that the bytes could not be read, so there is no verdict about the file.
Answers = Mapping[AnyProbe, bytes | None]


class Verdict(StrEnum):
    """The change of a file. The names are those of the decision table and of the metrics."""

    INODE_REUSED = "inode_reused"
    UNCHANGED = "unchanged"
    GROWN = "grown"
    RENAMED = "renamed"
    LINKED = "linked"
    DELETED = "deleted"
    MOVED_OUT = "moved_out"
    TRUNCATED = "truncated"
    REWRITTEN = "rewritten"
    RENUMBERED = "renumbered"
    REPLACED = "replaced"
    COPYTRUNCATED = "copytruncated"
    SHRUNK = "shrunk"
    TRIMMED = "trimmed"
    REPLACED_SAME_HEAD = "replaced_same_head"
    MOVED = "moved"
    COPY_HELD = "copy_held"
    COPY_DONE = "copy_done"
    ARCHIVE_DONE = "archive_done"
    ARCHIVE_CONTINUED = "archive_continued"
    NEW = "new"
    GONE_WHILE_DOWN = "gone_while_down"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One verdict: about a known generation, a file that a scan found under a name, or both.

    `begins`: a new generation begins at the start of this file. `copy`: this file only repeats
    lines of the generation, so it is done. `kept_end`: the lines before this offset of a trimmed
    file were handed out already.
    """

    verdict: Verdict
    generation: str | None = None
    seen: Seen | None = None
    lost_possible: bool = False
    begins: Seen | None = None
    copy: Seen | None = None
    kept_end: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdicts, and the probes whose answers are needed for the missing verdicts.

    `is_waiting`: a file needs another decision at once, after these verdicts were applied.
    `noticed`: generations whose file has changed, and files longer than their possible originals.
    The next scan begins later, so it sees newer states of these files and of their copies.
    """

    judgements: tuple[Judgement, ...]
    probes: frozenset[AnyProbe]
    is_waiting: bool = False
    noticed: frozenset[str | FileId] = frozenset()
