"""Bytes that change in place: when a file is read again though it has not grown.

Floor: above `generation` and `handles`. A writer may replace the NULs of a preallocated or mapped
file by text, which shows in no size and, for a mapped file, in no event; or cut its last line and
write a shorter one. So a file that rests is looked at again: the first of its NULs at each wake-up,
and the bytes behind its last line end when its time of change is another one.
"""

from typing import NamedTuple

from collector.identity.generation import Generation
from collector.identity.handles import Handle
from collector.identity.sightings import Doubt, Held
from collector.text.tailer import Request

HOLE_QUIET_MS = 1_000  # NULs before other text are read over after so long
STAMP_SURE_MS = 50  # a file system's clock may stand still for as long as that


class Look(NamedTuple):
    """What to read now; or when to look again, because NULs may still be written over."""

    request: Request | None = None
    wake_at_ms: int | None = None


class InPlace:
    """Looks at files that have nothing new by their size."""

    def __init__(self) -> None:
        self.quiet_ms = HOLE_QUIET_MS

    def look(
        self, generation: Generation, handle: Handle, held: Held, size: int, now_ms: int
    ) -> Look:
        """What is to be read of a file of which `request` says that nothing is."""
        tailer = generation.tailer
        assert tailer is not None
        if generation.archive is not None:
            # What was compressed is not written over any more.
            tailer.trust(size)
            return Look(tailer.request(size))
        probe = tailer.nuls_to_probe(size)
        if probe is not None and any(handle.read(probe.offset, probe.length)):
            tailer.look_again(is_written_at_start=True)
            return Look(tailer.request(size))
        if tailer.doubt is not None:
            return self._wait(generation, size, now_ms)
        generation.doubt = None
        is_all_read = max(size, tailer.searched_end) == tailer.read_position
        is_same = generation.is_read_stamp_sure and generation.read_stamp == held.stamp
        if is_all_read or is_same or not generation.rests:
            return Look()
        note_read(generation, held, now_ms)
        tailer.look_again()
        return Look(tailer.request(size))

    def _wait(self, generation: Generation, size: int, now_ms: int) -> Look:
        """Read over NULs that stood for long enough, and all others that were there by then."""
        tailer = generation.tailer
        assert tailer is not None
        assert tailer.doubt is not None
        doubt = generation.doubt
        if doubt is None or doubt.start != tailer.doubt.start:
            doubt = generation.doubt = Doubt(tailer.doubt.start, size, now_ms)
        due_ms = doubt.since_ms + self.quiet_ms
        if now_ms < due_ms:
            return Look(wake_at_ms=due_ms)
        generation.doubt = None
        tailer.trust(max(doubt.size, tailer.doubt.end))
        return Look(tailer.request(size))


def note_read(generation: Generation, held: Held, now_ms: int) -> None:
    """Note what the file looked like as the bytes behind the position were read."""
    generation.read_stamp = held.stamp
    generation.is_read_stamp_sure = now_ms - held.mtime_ns // 1_000_000 >= STAMP_SURE_MS
