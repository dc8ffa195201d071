"""Find bytes that changed in place, in a file that has not grown.

Room: above `generation` and `handles`. A writer may replace the NULs of a preallocated or mapped
file by text. That changes no size, and for a mapped file it causes no event. A writer may also
truncate its last line and write a shorter one. So an idle file is examined again: its first NUL at
each wake-up, and the bytes behind its last line end when its time of change differs.
"""

from typing import NamedTuple

from collector.identity.generation import Generation
from collector.identity.handles import Handle
from collector.identity.sightings import Doubt, OpenStat
from collector.text.tailer import Request

HOLE_QUIET_MS = 1_000  # NULs before other text are skipped after this time
STAMP_SURE_MS = 50  # the clock of a file system can have steps as long as this


class NextRead(NamedTuple):
    """What to read now, or when to look again because NULs may still be overwritten."""

    request: Request | None = None
    wake_at_ms: int | None = None


class InPlace:
    """Examines files whose size shows nothing new."""

    def __init__(self) -> None:
        self.quiet_ms = HOLE_QUIET_MS

    def look(
        self, generation: Generation, handle: Handle, held: OpenStat, size: int, now_ms: int
    ) -> NextRead:
        """Return what to read of a file for which the tailer's `request` returned None."""
        tailer = generation.tailer
        assert tailer is not None
        if generation.archive is not None:
            # A compressor does not overwrite its output.
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
        """Skip NULs that were unchanged for long enough, and all others present since then."""
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
    """Note the file's stamp at the time the bytes behind the position were read."""
    generation.read_stamp = held.stamp
    generation.is_read_stamp_sure = now_ms - held.mtime_ns // 1_000_000 >= STAMP_SURE_MS
