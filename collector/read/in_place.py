"""Find bytes that changed in place, in a file whose size has not grown.

A writer may replace the NULs of a preallocated or mapped file by text. The size of the file stays
the same, and a mapped file causes no inotify event. A writer may also truncate its last line and
write a shorter one. So an idle file is examined again. At each wake-up its first NUL is read. When
its modification time differs, the bytes after its last line end are read again too.
"""

from typing import NamedTuple

from collector.identity.generation import Generation
from collector.identity.handles import Handle
from collector.identity.sightings import Doubt, OpenStat
from collector.text.tailer import Request

HOLE_QUIET_MS = 1_000  # NULs before other text are skipped after this time
STAMP_SURE_MS = 50  # the clock of a file system can advance in steps of this length


class NextRead(NamedTuple):
    """The part of the file to read now, or the time at which to examine the file again.

    There is a time if text may still replace NULs in the file.
    """

    request: Request | None = None
    wake_at_ms: int | None = None


class InPlace:
    """Finds changes in files whose size shows nothing new."""

    def __init__(self) -> None:
        self.quiet_ms = HOLE_QUIET_MS

    def look(
        self, generation: Generation, handle: Handle, held: OpenStat, size: int, now_ms: int
    ) -> NextRead:
        """Return what to read of a file of which the tailer's `request` returned None."""
        tailer = generation.tailer
        assert tailer is not None
        if generation.archive is not None:
            # Skip archives, because a compressor does not replace bytes that it has written.
            tailer.trust(size)
            return NextRead(tailer.request(size))
        probe = tailer.nuls_to_probe(size)
        if probe is not None and any(handle.read(probe.offset, probe.length)):
            tailer.look_again(is_written_at_start=True)
            return NextRead(tailer.request(size))
        if tailer.doubt is not None:
            return self._wait(generation, size, now_ms)
        generation.doubt = None
        is_all_read = max(size, tailer.searched_end) == tailer.read_position
        is_same = generation.is_read_stamp_sure and generation.read_stamp == held.stamp
        if is_all_read or is_same or not generation.rests:
            return NextRead()
        note_read(generation, held, now_ms)
        tailer.look_again()
        return NextRead(tailer.request(size))

    def _wait(self, generation: Generation, size: int, now_ms: int) -> NextRead:
        """Skip NULs that have not changed for the quiet time, and all NULs found before these
        NULs."""
        tailer = generation.tailer
        assert tailer is not None
        assert tailer.doubt is not None
        doubt = generation.doubt
        if doubt is None or doubt.start != tailer.doubt.start:
            doubt = generation.doubt = Doubt(tailer.doubt.start, size, now_ms)
        due_ms = doubt.since_ms + self.quiet_ms
        if now_ms < due_ms:
            return NextRead(wake_at_ms=due_ms)
        generation.doubt = None
        tailer.trust(max(doubt.size, tailer.doubt.end))
        return NextRead(tailer.request(size))


def note_read(generation: Generation, held: OpenStat, now_ms: int) -> None:
    """Store the file's modification stamp at the time when the bytes after the position were
    read."""
    generation.read_stamp = held.stamp
    generation.is_read_stamp_sure = now_ms - held.mtime_ns // 1_000_000 >= STAMP_SURE_MS
