"""Send a last line that has no line end, once its file has not grown for a while.

The position after such a line is stored as usual, so a restart does not send the line again. Bytes
that are appended later begin a new record.
"""

from collector.identity.generation import Generation
from collector.identity.handles import Handle
from collector.identity.sightings import State
from collector.read.turn import Turn
from collector.read.waking import content_of


def flush_last_line(generation: Generation, handle: Handle, size: int, now_ms: int) -> Turn | None:
    """Return the last line of a file that was read to `size`, once its `flush_after` has passed.

    Return None if there is nothing to send yet. The open event before the line is sent with it.
    """
    tailer, after_ms = generation.tailer, generation.section.flush_after
    if (
        tailer is None
        or after_ms is None
        or tailer.doubt is not None
        or not _is_flushed(generation)
    ):
        return None
    encoding = tailer.rules.encoding
    size -= size % encoding.unit_bytes
    request = tailer.final_request(size)
    if request is None:
        return None
    due_ms = generation.grown_at_ms + after_ms
    if now_ms < due_ms:
        return Turn(wake_at_ms=due_ms)
    content = content_of(generation, handle, request.offset, request.length)
    if content is None:
        return Turn(has_more=True)
    is_room = encoding.ends_with_newline and not any(content[-encoding.unit_bytes :])
    if len(content) < request.length or is_room:
        # Do not send the line, because a writer may still replace the NULs at the end by text.
        return None
    data = memoryview(content)
    if len(encoding.newlines(data)):
        # The line was completed in place since it was read.
        tailer.rewind()
        return Turn(has_more=True)
    return Turn(tuple(tailer.take_final(data, size)), has_more=True)


def _is_flushed(generation: Generation) -> bool:
    """Tell whether `flush_after` applies to the file, because no other rule will send its last
    line.
    """
    is_damaged = generation.archive is not None and generation.archive.damage is not None
    is_closing = generation.state is State.DRAINING
    return not is_damaged and not is_closing and generation.carried_by is None
