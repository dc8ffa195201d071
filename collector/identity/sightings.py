"""What is known and what is seen: inputs and outputs of deciding which file is which.

Room: above `fingerprint`. Pure data. `Stored` is what the collector knows of a generation (one
life of one file's content), `Seen` one name found by a scan, `OpenStat` the stat of an open handle.
A `Probe` asks for the hash of a part of a file; its answer is an input of the next call.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from collector.text.fingerprint import FileId, Fingerprint, Mark


class State(StrEnum):
    """The state of a generation.

    LIVE (under its first name) and ROTATED (renamed) are read. DRAINING: the name is gone, and the
    rest is read through the open handle. Three states are ends: MOVED_OUT (the file exists outside
    the globs), GONE (it vanished while no handle was open) and DONE (the content was deleted,
    truncated or replaced). A file in any state except DONE is recognised by device and inode.
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
    """A file's size and time of change. While both are the same, so is its content."""

    size: int
    mtime_ns: int


class Doubt(NamedTuple):
    """NULs before other text: where, the file's size then, and since when reading waits."""

    start: int
    size: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A generation as it is judged. `fingerprint` is at the position read up to.

    `stamp` is the file's stamp when its content was last found equal; None after a start.
    `is_behind`: the last scan saw unread bytes. `is_unread`: nothing was read of it yet.
    `size`: the largest size seen, without NULs at the end. `unread_lines_end`: behind this place no
    whole line was seen, at most an unfinished one.
    For a compressed file, position and fingerprint refer to the compressed bytes.
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
    """The same as `size`, including NULs at the end."""

    @property
    def position(self) -> int:
        """The position read up to."""
        return self.fingerprint.position


@dataclass(frozen=True, slots=True)
class Seen:
    """One matching name; several names can show one file. `birth_ns` is None if unknown."""

    path: str
    file: FileId
    size: int
    mtime_ns: int
    birth_ns: int | None = None
    input_index: int = 0
    still_ms: int = 0
    """For how long its size is known to be unchanged."""

    @property
    def stamp(self) -> Stamp:
        """Size and time of change."""
        return Stamp(self.size, self.mtime_ns)


@dataclass(frozen=True, slots=True)
class OpenStat:
    """The stat of an open handle; newer than what the scan saw under the file's name."""

    size: int
    mtime_ns: int
    links: int

    @property
    def stamp(self) -> Stamp:
        """Size and time of change."""
        return Stamp(self.size, self.mtime_ns)


class Probe(NamedTuple):
    """A question: the hash of `length` bytes of a file from `offset`."""

    file: FileId
    offset: int
    length: int


class WholeProbe(NamedTuple):
    """A slow question: the CRC32C of all bytes of a file before `length`, big-endian."""

    file: FileId
    length: int


class KeptProbe(NamedTuple):
    """A question about a trimmed file: where do the lines end that were read already?

    They were read up to `position` of an earlier life of the file. The answer has eight bytes,
    big-endian, and is empty if the file has no such lines. For `tail` see `trimming`.
    """

    file: FileId
    position: int
    marker: bytes
    tail: bytes


AnyProbe = Probe | WholeProbe | KeptProbe

# None: the bytes could not be read, so this round gives no verdict about the file.
Answers = Mapping[AnyProbe, bytes | None]


class Verdict(StrEnum):
    """What happened to a file. The names are those of the decision table and of the metrics."""

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
    """One verdict: about a known generation, a file seen under a name, or both.

    `begins`: a new generation begins at this file's start. `copy`: this file only repeats what the
    generation handed out, and is done. `kept_end`: the part of a trimmed file before this place
    was handed out already.
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
    """Verdicts, and the probes whose answers are needed for the missing ones.

    `is_waiting`: some file must be judged again at once, after these verdicts were applied.
    `noticed`: generations whose file has changed, and files longer than their possible originals.
    The next scan begins after that, so what it sees of them and of copies is newer.
    """

    judgements: tuple[Judgement, ...]
    probes: frozenset[AnyProbe]
    is_waiting: bool = False
    noticed: frozenset[str | FileId] = frozenset()
