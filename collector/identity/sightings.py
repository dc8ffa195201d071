"""What is known and what is seen: the inputs and outputs of deciding which file is which.

Floor: above `fingerprint`. Pure data. `Stored` is what the collector knows of a generation (one
life of one file's content), `Seen` one name found by a scan, `Held` an open handle's own stat.
A `Probe` asks for the hash of a stretch of a file, and its answer is the next call's input.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from collector.text.fingerprint import FileId, Fingerprint, Mark


class State(StrEnum):
    """A generation's life.

    LIVE (under its first name) and ROTATED (renamed) are read. DRAINING: its name is gone, the rest
    is read through the open handle. Ended: MOVED_OUT (the file lives on outside the globs), GONE
    (it vanished while no handle was open) and DONE (its content is no more: deleted, truncated,
    replaced). All but DONE are known again by device and inode.
    """

    LIVE = "live"
    ROTATED = "rotated"
    DRAINING = "draining"
    MOVED_OUT = "moved_out"
    GONE = "gone"
    DONE = "done"

    @property
    def has_ended(self) -> bool:
        """Nothing is read of it any more, unless its file shows up again."""
        return self in (State.MOVED_OUT, State.GONE, State.DONE)


class Stamp(NamedTuple):
    """A file's size and time of change: while both stand still, so does its content."""

    size: int
    mtime_ns: int


class Doubt(NamedTuple):
    """NULs before other text, since when they are waited for, and how long the file was then."""

    start: int
    size: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A generation as it is judged. `fingerprint` is at the position read up to.

    `stamp` is what the file looked like when its content was last found equal; None at a start.
    `is_behind`: the last look saw bytes that were not read; `is_unread`: its first turn is to come;
    `size`: the most that was seen of it, without NULs at its end. `unread_lines_end`: behind this
    place no whole line was seen, at most an open one.
    For a compressed file, position and fingerprint are those of its compressed bytes.
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
    """The same as `size`, with NULs at the end."""

    @property
    def position(self) -> int:
        """Where reading stands."""
        return self.fingerprint.position


@dataclass(frozen=True, slots=True)
class Seen:
    """One matching name; several names may show one file. `birth_ns` is None where unknown."""

    path: str
    file: FileId
    size: int
    mtime_ns: int
    birth_ns: int | None = None
    input_index: int = 0
    still_ms: int = 0
    """How long its size is known to have stood still."""

    @property
    def stamp(self) -> Stamp:
        """Size and time of change."""
        return Stamp(self.size, self.mtime_ns)


@dataclass(frozen=True, slots=True)
class Held:
    """An open handle's stat: newer than what the scan saw under the file's name."""

    size: int
    mtime_ns: int
    links: int

    @property
    def stamp(self) -> Stamp:
        """Size and time of change."""
        return Stamp(self.size, self.mtime_ns)


class Probe(NamedTuple):
    """A question: the hash of `length` bytes of a file from `offset` on."""

    file: FileId
    offset: int
    length: int


class WholeProbe(NamedTuple):
    """A question that takes time: the CRC32C of all bytes of a file before `length`, big-endian."""

    file: FileId
    length: int


class KeptProbe(NamedTuple):
    """A question: where, in a file, the last lines end that were read up to `position` of another
    life of it, eight bytes big-endian; empty if it has none. `tail`: see `trimming`."""

    file: FileId
    position: int
    marker: bytes
    tail: bytes


AnyProbe = Probe | WholeProbe | KeptProbe

# None: the bytes could not be read, so nothing can be decided about this file in this round.
Answers = Mapping[AnyProbe, bytes | None]


class Verdict(StrEnum):
    """What has happened to a file; the names are those of the decision table and of the metrics."""

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

    `begins`: a new generation begins at this file's start. `copy`: this file holds nothing but what
    the generation has given already, and is done as it is. `kept_end`: so much of a trimmed file
    was given already.
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
    """Verdicts, and probes whose answers are needed for those still missing.

    `is_waiting`: some file is to be judged again at once, with what these verdicts change.
    `noticed`: generations whose file has changed, and files that are longer than what they may be
    copies of. The next scan begins after that, so what it sees of them and of copies is no older.
    """

    judgements: tuple[Judgement, ...]
    probes: frozenset[AnyProbe]
    is_waiting: bool = False
    noticed: frozenset[str | FileId] = frozenset()
