"""Files against fingerprints: what is asked of their bytes, and what the answers mean.

Floor: above `sightings`. Pure. Where an answer is missing the question is noted in `probes` and the
result is unknown; the caller comes again with the answers.
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
"""Below this equal heads prove nothing: a hundred services print the same first line."""


class Content(Enum):
    """How a file's bytes compare with a generation's fingerprint."""

    EQUAL = "equal"
    SHORTER = "shorter"  # ends before the position
    HEAD_DIFFERS = "head differs"
    MARKER_DIFFERS = "marker differs"
    UNKNOWN = "unknown"  # probes are open


class Comparer:
    """The questions of one call of `decide`."""

    def __init__(self, answers: Answers):
        self.answers = answers
        self.probes: set[AnyProbe] = set()

    def compare(self, known: Stored, file: FileId, stamp: Stamp) -> Content:
        """Hold a file's head and marker against the fingerprint."""
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
        """Compare the head of a file that ends before the position, as far as it reaches."""
        head = known.fingerprint.head_within(name.size)
        if head is None:
            return Content.SHORTER
        equal = self._ask(Probe(name.file, 0, head.length), head.digest)
        if equal is None:
            return Content.UNKNOWN
        return Content.SHORTER if equal else Content.HEAD_DIFFERS

    def holds_all(self, known: Stored, name: Seen, is_archive_name: bool) -> bool | None:
        """Whether a file of its own holds all bytes up to the position; None: not known yet.

        Its head, marker and the checksum of everything before the position are equal, and there is
        enough of it, or the name of an archive, to believe that this is no chance.
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
        # What could not be read may be a copy: as another file its lines would come twice.
        return None if answer is None else answer == print_.crc.to_bytes(4, "big")

    def trail_agrees(self, known: Stored, name: Seen) -> bool | None:
        """Whether the file has the older markers that it is long enough for, if there are any.

        None: not known yet.
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
        """Where the lines end, in a file that was trimmed to them, that were read; 0: it was not.

        None: not known yet.
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
        """Whether the file is long enough for an older marker."""
        return any(mark.position <= name.size for mark in known.trail)

    def same_so_far(self, known: Stored, name: Seen) -> bool | None:
        """Whether a file shorter than another present one begins and ends like it at its size."""
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
                # One of them was truncated meanwhile, is gone, or could not be read.
                return None
            if self.answers[mine] != self.answers[theirs]:
                return False
        return True

    def _ask(self, probe: Probe, expected: bytes, digest_bytes: int | None = None) -> bool | None:
        """Whether the probe's answer is the expected hash; None when it is not known."""
        if probe not in self.answers:
            self.probes.add(probe)
            return None
        answer = self.answers[probe]
        return None if answer is None else answer[:digest_bytes] == expected
