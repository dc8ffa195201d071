"""Compares files with fingerprints: asks for hashes of the files and evaluates the answers.

This module is pure. If an answer is missing, its question is added to `probes`, and the result is
"not known yet". The caller then reads the bytes and calls again with the answers.
"""

from enum import Enum

from collector.identity.sightings import (
    Answers,
    AnyProbe,
    KeptProbe,
    Probe,
    Seen,
    Stamp,
    Stored,
    WholeProbe,
)
from collector.text.fingerprint import TRAIL_HASH_BYTES, FileId

JOINING_BYTES_MIN = 1024
"""The shortest head that counts as evidence. Many services print the same first line."""


class Content(Enum):
    """The result of comparing a file's bytes with a stored fingerprint."""

    EQUAL = "equal"
    SHORTER = "shorter"  # ends before the position
    HEAD_DIFFERS = "head differs"
    MARKER_DIFFERS = "marker differs"
    UNKNOWN = "unknown"  # an answer is missing


class Comparer:
    """Compares files for one call of `decide`, and collects the missing hashes as probes."""

    def __init__(self, answers: Answers):
        self.answers = answers
        self.probes: set[AnyProbe] = set()

    def compare(self, known: Stored, file: FileId, stamp: Stamp) -> Content:
        """Compare the head and the marker of a file with the fingerprint of a known file."""
        print_ = known.fingerprint
        if stamp.size < print_.position:
            return Content.SHORTER
        if print_.position == 0 or (known.stamp == stamp and file == known.file):
            return Content.EQUAL
        head = print_.heads[-1]
        marker_offset = print_.position - print_.marker_length
        head_equal = self._ask(Probe(file, 0, head.length), head.digest)
        marker_equal = self._ask(Probe(file, marker_offset, print_.marker_length), print_.marker)
        if head_equal is None or marker_equal is None:
            return Content.UNKNOWN
        if not head_equal:
            return Content.HEAD_DIFFERS
        return Content.EQUAL if marker_equal else Content.MARKER_DIFFERS

    def compare_short_head(self, known: Stored, name: Seen) -> Content:
        """Compare the head of a file that is shorter than the position, as far as the file
        reaches.
        """
        head = known.fingerprint.head_within(name.size)
        if head is None:
            return Content.SHORTER
        equal = self._ask(Probe(name.file, 0, head.length), head.digest)
        if equal is None:
            return Content.UNKNOWN
        return Content.SHORTER if equal else Content.HEAD_DIFFERS

    def holds_all(self, known: Stored, name: Seen, is_archive_name: bool) -> bool | None:
        """Tell whether a file has all bytes of a known file up to its position; None if unknown
        yet.

        Head, marker and the checksum of everything before the position must be equal. To exclude
        chance, the position must be large enough, or the file must have the name of an archive.
        """
        print_ = known.fingerprint
        enough = is_archive_name or print_.position >= JOINING_BYTES_MIN
        if print_.crc is None or not print_.position or not enough:
            return False
        content = self.compare(known, name.file, name.stamp)
        if content is Content.UNKNOWN:
            return None
        if content is not Content.EQUAL:
            return False
        whole = WholeProbe(name.file, print_.position)
        if whole not in self.answers:
            self.probes.add(whole)
            return None
        answer = self.answers[whole]
        # An unreadable file can be a copy. So the answer is None, because reading it as a new file
        # would repeat its lines.
        return None if answer is None else answer == print_.crc.to_bytes(4, "big")

    def trail_agrees(self, known: Stored, name: Seen) -> bool | None:
        """Tell whether a file has all older markers of a known file that lie within its length.

        Return True if there are no such markers; None if the answer is not known yet.
        """
        agrees: bool | None = True
        for mark in known.trail:
            length = min(mark.position, JOINING_BYTES_MIN)
            if mark.position > name.size:
                continue
            probe = Probe(name.file, mark.position - length, length)
            equal = self._ask(probe, mark.digest, TRAIL_HASH_BYTES)
            if equal is False:
                return False
            agrees = None if equal is None else agrees
        return agrees

    def kept_end(self, known: Stored, name: Seen) -> int | None:
        """Return the offset in a trimmed file at which the lines that were already read end.

        Return 0 if the file was not trimmed; None if the answer is not known yet.
        """
        if not known.position or not known.is_plain or not name.size:
            return 0
        print_ = known.fingerprint
        probe = KeptProbe(name.file, print_.position, print_.marker, known.tail)
        if probe not in self.answers:
            self.probes.add(probe)
            return None
        answer = self.answers[probe]
        return None if answer is None else int.from_bytes(answer, "big")

    def reaches_trail(self, known: Stored, name: Seen) -> bool:
        """Tell whether a file is long enough to contain an older marker of a known file."""
        return any(mark.position <= name.size for mark in known.trail)

    def same_so_far(self, known: Stored, name: Seen) -> bool | None:
        """Tell whether the shorter file `name` equals the head of `known`; None if not known yet.

        Only the first and the last bytes of the shorter file are compared.
        """
        length = min(name.size, JOINING_BYTES_MIN)
        if not length:
            return True
        for offset in (0, name.size - length):
            mine, theirs = Probe(name.file, offset, length), Probe(known.file, offset, length)
            missing = {probe for probe in (mine, theirs) if probe not in self.answers}
            if missing:
                self.probes |= missing
                return None
            if self.answers[mine] is None or self.answers[theirs] is None:
                # One of the files was truncated in the meantime, is gone, or could not be read.
                return None
            if self.answers[mine] != self.answers[theirs]:
                return False
        return True

    def _ask(self, probe: Probe, expected: bytes, digest_bytes: int | None = None) -> bool | None:
        """Tell whether the answer to a probe is the expected hash.

        Return None if there is no answer yet.
        """
        if probe not in self.answers:
            self.probes.add(probe)
            return None
        answer = self.answers[probe]
        return None if answer is None else answer[:digest_bytes] == expected
