"""Decide how long open events wait for their next line, and continue them after a rotation.

This module is pure. An open event waits in memory and in its file until its next line arrives, for
at most `max_age`. If a rotation split the event, its next line is the first line of the next file.
Then one transaction holds the joined record and the positions of both files.
"""

from dataclasses import replace

from collector.config.settings import COMMIT_MS
from collector.identity.generation import Generation
from collector.identity.registry import Registry
from collector.identity.sightings import State
from collector.read.turn import Turn
from collector.text.events import continues, joined
from collector.text.lines import Block
from collector.timing.schedule import ReadQueue


class OpenEvents:
    """The open events of the files of one collector."""

    def __init__(self, registry: Registry):
        self._registry = registry

    def settle(self, generation: Generation, turn: Turn, now_ms: int) -> Turn:
        """Return the result of a read, with the blocks of open events that are complete now.

        An open event is complete at its maximum age. The first lines of a file wait for the last
        lines of the file that had its name before.
        """
        turn = self._aged(generation, turn, now_ms)
        return turn if generation.lines_read else self._after(generation, turn, now_ms)

    def rest(self, generation: Generation) -> Turn:
        """Return the open event of a file that will not grow."""
        event = _event(generation)
        return Turn() if event is None else Turn((event,))

    def last(self, generation: Generation, blocks: tuple[Block, ...]) -> Turn:
        """Return a file's last blocks, joined with the open event of the file that had its name
        before."""
        known = self._predecessor(generation)
        if generation.lines_read or known is None or not blocks:
            return Turn(blocks)
        return self._join(generation, known, Turn(blocks)) or Turn(blocks)

    def is_carried(self, generation: Generation) -> bool:
        """Tell whether the open event will be joined with the first line of the next file."""
        other = generation.carried_by
        return (
            other is not None
            and other.name in self._registry.generations
            and not other.lines_read
            and _event(other) is not None
        )

    def _aged(self, generation: Generation, turn: Turn, now_ms: int) -> Turn:
        tailer = generation.tailer
        assert tailer is not None
        event, rules = tailer.pending, tailer.rules.events
        if event is None or rules is None or turn.blocks or turn.has_more:
            return turn
        if self.is_carried(generation):
            # Check again later, because the next file can disappear before its first lines are
            # handed out.
            return replace(turn, wake_at_ms=now_ms + rules.max_age_ms)
        due_ms = generation.grown_at_ms + rules.max_age_ms
        if now_ms < due_ms and not generation.closes_event:
            wake_at_ms = due_ms if turn.wake_at_ms is None else min(due_ms, turn.wake_at_ms)
            return replace(turn, wake_at_ms=wake_at_ms)
        return Turn((event,), has_more=True)

    def _after(self, generation: Generation, turn: Turn, now_ms: int) -> Turn:
        """Combine the first lines of a file with the last lines of the file that had its name
        before."""
        assert generation.tailer is not None
        first = turn.blocks[0] if turn.blocks else generation.tailer.pending
        known = self._predecessor(generation)
        if first is None or known is None:
            return turn
        since_ms = generation.held_back_ms = generation.held_back_ms or now_ms
        rules = generation.tailer.rules.events
        if rules is None:
            return turn
        if now_ms - since_ms > rules.max_age_ms:
            # These lines have waited as long as the event that they continue, so they still join
            # it.
            if known.carried_by is generation and turn.blocks:
                return self._join(generation, known, turn) or turn
            return turn
        is_read = _is_read(known)
        if is_read and _event(known) is None:
            return turn
        if is_read and self._goes_on(known, generation, first):
            if turn.blocks:
                return self._join(generation, known, turn) or turn
            known.carried_by = generation
            return turn
        # First hand out the remaining lines of the earlier file, or its open event alone.
        known.closes_event = is_read
        generation.tailer.rewind()
        return Turn(wake_at_ms=now_ms + COMMIT_MS, others=(known,))

    def _predecessor(self, generation: Generation) -> Generation | None:
        """Return the unfinished file that had this name before, so its lines come first."""
        found = [
            known
            for known in self._registry.predecessors(generation)
            if _event(known) is not None or not (known.state.has_ended or _is_read(known))
        ]
        return max(found, key=_changed_ns, default=None)

    @staticmethod
    def _goes_on(known: Generation, generation: Generation, first: Block) -> bool:
        event = _event(known)
        tailer = generation.tailer
        if event is None or tailer is None or tailer.rules.events is None:
            return False
        # The event is the last one only if no unfinished line follows it in the file.
        is_last = known.state.has_ended or event.end >= known.text_end
        if not is_last or known.partition != generation.partition or first.is_dead_letter:
            return False
        return continues(event, first, tailer.rules.events)

    def _join(self, generation: Generation, known: Generation, turn: Turn) -> Turn | None:
        first, *rest = turn.blocks
        event = _event(known)
        if event is None or not self._goes_on(known, generation, first):
            return None
        if first.count > 1:
            first, second = first.split_at(1)
            rest.insert(0, second)
        return replace(turn, blocks=(joined(event, first), *rest), joined=known)


def _event(generation: Generation) -> Block | None:
    return None if generation.tailer is None else generation.tailer.pending


def _is_read(generation: Generation) -> bool:
    """Tell whether later files need not wait for this file: it is fully read, failed, or far
    behind.
    """
    if generation.error or generation.is_archive or generation.read_queue is ReadQueue.BACKFILL:
        return True
    if generation.state is State.DRAINING or generation.state.has_ended:
        return True
    if generation.tailer is None:
        return generation.size <= generation.position
    tailer = generation.tailer
    return tailer.doubt is None and tailer.request(generation.size) is None


def _changed_ns(generation: Generation) -> int:
    return 0 if generation.stamp is None else generation.stamp.mtime_ns
