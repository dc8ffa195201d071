"""Read the known files: apply scans, open files with unread lines, and return their lines.

The module is synchronous and touches the disk through `files` only. One call reads at most one
block of one file. Before each read, the bytes just before the position are compared with the bytes
that were read there earlier. If they differ, the file was rewritten. Then nothing is read, and the
next scan finds out what happened.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from collector.config.settings import BLOCK_BYTES, DRAIN_QUIET_MS
from collector.identity.archive_names import originals
from collector.identity.decide import decide
from collector.identity.files import FolderScan
from collector.identity.generation import Generation
from collector.identity.handles import Handle, Handles, Unreadable, Vanished
from collector.identity.probing import Prober
from collector.identity.registry import Registry
from collector.identity.sightings import (
    AnyProbe,
    Decision,
    Judgement,
    OpenStat,
    Seen,
    Stamp,
    State,
    Stored,
    Verdict,
)
from collector.read.in_place import InPlace, NextRead, note_read
from collector.read.last_lines import flush_last_line
from collector.read.measures import Measures
from collector.read.open_events import OpenEvents
from collector.read.turn import Turn
from collector.read.waking import FieldsOf, LineLimit, Waker, Waking, content_of, content_size
from collector.text.fingerprint import FileId
from collector.text.lines import RecordKind
from collector.text.tailer import Request


class Reader:
    """Reads the files of one collector.

    `wants_scan` is set when only a scan can find out what happened to a file.
    """

    def __init__(
        self,
        registry: Registry,
        handles: Handles,
        line_limit: LineLimit,
        fields_of: FieldsOf,
        drain_quiet_ms: int = DRAIN_QUIET_MS,
    ):
        self.registry = registry
        self.handles = handles
        self.wants_scan = False
        self._drain_quiet_ms = drain_quiet_ms
        self._prober = Prober(handles)
        self.refused = self._prober.refused
        self._waker = Waker(registry, line_limit, fields_of)
        self._measures = Measures(registry, self._waker, self._handle)
        self._open_events = OpenEvents(registry)
        self.in_place = InPlace()
        self._still: dict[FileId, tuple[Stamp, int]] = {}
        self._noticed: frozenset[str | FileId] = frozenset()

    def judge(self, scan: FolderScan, now_ms: int) -> list[Generation]:
        """Apply a scan, and return the files that may have unread lines."""
        self.wants_scan = False
        self._prober.begin()
        held = self._look_at_handles()
        seen = self._disturbed(scan, now_ms)
        undisturbed = {name.file for name in scan.seen} - {name.file for name in seen}
        stored = self.registry.stored(undisturbed)
        decision = self._decide(stored, seen, held, is_complete=scan.is_complete)
        self._noticed = decision.noticed
        self.wants_scan = self._prober.is_unfinished or decision.is_waiting
        touched: dict[str, Generation] = {}
        for judgement in decision.judgements:
            if judgement.verdict is Verdict.TRIMMED and not self._is_given(judgement):
                self.wants_scan = True
                continue
            try:
                measure = self._measures.of_copy(judgement)
            except Unreadable:
                # The copy cannot be read, so do not apply the verdict yet. A later scan gives it
                # again.
                continue
            is_held = judgement.generation in held
            for generation in self.registry.apply(judgement, is_held, now_ms):
                touched[generation.name] = generation
            if judgement.copy is not None:
                self._measures.give(judgement.copy, measure)
            if judgement.verdict is Verdict.SHRUNK and judgement.generation is not None:
                known = self.registry.generations[judgement.generation]
                self.wants_scan |= not self._measures.shrink(known)
            if judgement.verdict is Verdict.TRIMMED and judgement.generation is not None:
                known = self.registry.generations[judgement.generation]
                self._settle_handle(known, now_ms)
                self.wants_scan |= not self._measures.trim(known, judgement.kept_end)
        if scan.is_complete:
            self.registry.first_look_done()
        for generation in touched.values():
            self._settle_handle(generation, now_ms)
        return [
            generation
            for generation in self.registry.generations.values()
            if generation.state is State.DRAINING
            or (generation.name in touched and self.has_work(generation))
            or (
                generation.has_open_event
                and (generation.state.has_ended or generation.closes_event)
            )
            or self._is_behind(generation, held.get(generation.name))
        ]

    def _decide(
        self,
        stored: Collection[Stored],
        seen: Sequence[Seen],
        held: Mapping[str, OpenStat],
        *,
        is_complete: bool,
    ) -> Decision:
        """Decide which file is which, and read the bytes that the decision asks for.

        The loop ends because each round answers all probes, and the number of probes of a file is
        limited.
        """
        answers: dict[AnyProbe, bytes | None] = {}
        paths = {name.file: name.path for name in seen}
        while True:
            decision = decide(
                stored,
                seen,
                held,
                answers,
                is_complete=is_complete,
                noticed=self._noticed,
            )
            open_probes = decision.probes - answers.keys()
            if not open_probes or self._prober.is_unfinished:
                return decision
            answers.update(self._prober.answer(open_probes, paths))

    def _is_given(self, judgement: Judgement) -> bool:
        """Tell whether everything that was read is committed.

        If an event of several lines is unfinished, first let it be sent without further lines.
        """
        known = self.registry.generations[judgement.generation or ""]
        known.closes_event |= known.has_open_event
        return known.is_settled and not known.has_open_event

    def has_work(self, generation: Generation) -> bool:
        """Tell whether the next call of `turn` can return lines."""
        if generation.state is State.DRAINING:
            return True
        if generation.state.has_ended:
            return False
        raw = generation.raw_print()
        if raw is not None and (generation.stamp is None or generation.stamp.size > raw.position):
            return True
        return generation.size > generation.position

    @staticmethod
    def _is_behind(generation: Generation, held: OpenStat | None) -> bool:
        """Tell whether an open handle has unread bytes, even if its file has lost its name."""
        is_plain = held is not None and not generation.is_archive
        return is_plain and held is not None and held.size > generation.position

    def turn(self, generation: Generation, now_ms: int, block_bytes: int = BLOCK_BYTES) -> Turn:
        """Read the next lines of a file, about `block_bytes` at most. Raises Unreadable.

        The caller must pass each block to the `hand_out` method of the generation.
        """
        if generation.state.has_ended:
            return self._open_events.rest(generation)
        try:
            handle = self._handle(generation)
            held = handle.look()
            turn = self._read(generation, handle, held, now_ms, block_bytes)
            if generation.tailer is not None and generation.tailer.rules.events is not None:
                turn = self._open_events.settle(generation, turn, now_ms)
        except Vanished:
            self.wants_scan = True
            return Turn()
        generation.error = ""
        generation.backoff.reset()
        generation.rests = not (turn.blocks or turn.has_more)
        if turn.blocks:
            generation.read_at_ms = now_ms
        is_over = generation.state is State.DRAINING and turn.wake_at_ms is None
        if is_over and not turn.blocks and not turn.has_more:
            return self._drained(generation, held, now_ms)
        return turn

    def finish(self, generation: Generation) -> Turn:
        """Return the open event and the unfinished last line of a file that will not grow.

        This is called when an archive is complete, or when a one-shot run ends.
        """
        handle = self.handles.get(generation.name)
        if generation.tailer is None or self._open_events.is_carried(generation):
            return Turn()
        data: bytes | None = b""
        size = generation.size
        if handle is not None:
            size = content_size(generation, handle.look())
            request = generation.tailer.final_request(size)
            if request is not None:
                data = content_of(generation, handle, request.offset, request.length)
        blocks = generation.tailer.take_final(memoryview(data or b""), size)
        if (
            blocks
            and data
            and generation.archive is not None
            and generation.archive.damage is not None
        ):
            # The bytes before the damage are an incomplete line that will never be completed.
            blocks[-1] = replace(blocks[-1], kind=RecordKind.DEAD_LETTER, source=None)
        return self._open_events.last(generation, tuple(blocks))

    def keep(self, generation: Generation) -> None:
        """Open a file that will be read later, so that it can be read even after its name is
        removed.

        This call closes no other handle. Otherwise thousands of waiting files would close each
        other's handles.
        """
        if not (generation.state.has_ended or self.handles.is_full):
            with suppress(Vanished, Unreadable):
                self._handle(generation)

    def close(self, generation: Generation) -> None:
        """Close the file of a generation."""
        self.handles.close(generation.name)

    # --- scans --------------------------------------------------------------------------------

    def _look_at_handles(self) -> dict[str, OpenStat]:
        """Return the stat of each open handle. Close handles whose file system was unmounted."""
        held: dict[str, OpenStat] = {}
        for name, handle in self.handles:
            try:
                held[name] = handle.look()
            except Unreadable:
                self.handles.close(name)
        return held

    def _disturbed(self, scan: FolderScan, now_ms: int) -> list[Seen]:
        """Return the names that may belong to another file than in the last scan.

        If one name of a file is returned, its other names are returned too. With an archive's name,
        the file that the archive may be a copy of is returned as well.
        """
        names = Counter(name.file for name in scan.seen)
        chosen = {
            name.file
            for name in scan.seen
            if names[name.file] > 1 or not self.registry.is_undisturbed(name)
        }
        archives = {
            path for name in scan.seen if name.file in chosen for path in originals(name.path)
        }
        chosen |= self.registry.relatives(archives)
        still, self._still = self._still, {}
        found = []
        for name in scan.seen:
            if name.file not in chosen:
                continue
            stamp, since_ms = still.get(name.file, (name.stamp, now_ms))
            since_ms = since_ms if stamp == name.stamp else now_ms
            self._still[name.file] = (name.stamp, since_ms)
            found.append(replace(name, still_ms=now_ms - since_ms))
        return found

    def _settle_handle(self, generation: Generation, now_ms: int) -> None:
        """Pin the handle of a draining file, and close the handle of a file that has ended."""
        handle = self.handles.get(generation.name)
        if handle is not None and handle.file != generation.file:
            # The generation continues in another file.
            self.handles.close(generation.name)
        if generation.state is State.DRAINING:
            self.handles.pin(generation.name)
            generation.still_since_ms = generation.still_since_ms or now_ms
        elif generation.state.has_ended:
            self.handles.close(generation.name)
        else:
            self.handles.unpin(generation.name)

    # --- reading ------------------------------------------------------------------------------

    def _handle(self, generation: Generation) -> Handle:
        handle = self.handles.get(generation.name)
        if handle is None:
            handle = self.handles.open(
                generation.name, generation.path, generation.file, generation.birth_ns
            )
        return handle

    def _read(
        self, generation: Generation, handle: Handle, held: OpenStat, now_ms: int, block_bytes: int
    ) -> Turn:
        waking = Waking.AWAKE
        if generation.tailer is None:
            waking = self._waker.wake(generation, handle, held, now_ms)
        elif generation.ruled_by is not generation.section and not self._open_events.is_carried(
            generation
        ):
            waking = self._waker.renew(generation, handle, held)
        if waking is Waking.CHANGED:
            return self._changed(generation, now_ms)
        if waking is not Waking.AWAKE:
            return Turn(has_more=waking is Waking.AGAIN)
        tailer = generation.tailer
        assert tailer is not None
        if generation.archive is not None:
            if held.size < generation.archive.raw.position:
                return self._changed(generation, now_ms)
            if self._waker.examine(generation, generation.archive, handle, held):
                return Turn(has_more=True)
        size = content_size(generation, held)
        if size < tailer.read_position:
            return self._changed(generation, now_ms)
        look = NextRead(tailer.request(size, block_bytes))
        if look.request is None:
            look = self.in_place.look(generation, handle, held, size, now_ms)
        if look.request is None:
            generation.size = size
            if generation.stamp != held.stamp:
                # The file may have been rewritten, so a scan compares it.
                generation.stamp = None
            turn = flush_last_line(generation, handle, size, now_ms) or self._at_end(generation)
            times = [at_ms for at_ms in (turn.wake_at_ms, look.wake_at_ms) if at_ms is not None]
            return replace(turn, wake_at_ms=min(times, default=None))
        return self._take(generation, handle, held, look.request, now_ms)

    def _take(
        self, generation: Generation, handle: Handle, held: OpenStat, request: Request, now_ms: int
    ) -> Turn:
        tailer = generation.tailer
        assert tailer is not None
        if request.offset == tailer.position:
            note_read(generation, held, now_ms)
        if generation.archive is not None:
            content = generation.archive.read(handle.read, request.offset, request.length)
            if content is None:
                return Turn(has_more=True)
            data = memoryview(content)
        else:
            before = tailer.before(request)
            content = handle.read(request.offset - len(before), request.length + len(before))
            if not content.startswith(before):
                if request.offset != tailer.position:
                    tailer.look_again()
                    return Turn(has_more=True)
                generation.stamp = None
                return self._changed(generation, now_ms)
            data = memoryview(content)[len(before) :]
        # The bytes before the position are as expected, so the bytes read belong to the generation.
        generation.size = content_size(generation, held)
        generation.stamp = held.stamp
        if request.offset == 0:
            self._waker.refuse_without_lines(generation, data, held)
        skipped = tailer.nul_bytes_skipped
        blocks = tailer.take(request, data)
        if blocks or generation.read_to != tailer.searched_end:
            generation.read_to, generation.grown_at_ms = tailer.searched_end, now_ms
        self.registry.counters["nul_bytes_skipped"] += tailer.nul_bytes_skipped - skipped
        is_more = blocks or tailer.doubt is not None or tailer.request(generation.size) is not None
        # The next read decides when a last line without a line end is sent.
        is_more = is_more or generation.section.flush_after is not None
        return Turn(tuple(blocks), has_more=len(data) > 0 and bool(is_more))

    def _changed(self, generation: Generation, now_ms: int) -> Turn:
        """Handle a file whose content changed.

        If the file has a name, only a scan can find the cause.
        """
        if generation.state is not State.DRAINING:
            self.wants_scan = True
            return Turn()
        self.registry.end_lost(generation, now_ms)
        self.handles.close(generation.name)
        return Turn(has_more=generation.has_open_event)

    def _at_end(self, generation: Generation) -> Turn:
        """Return no lines, or the last blocks of a damaged archive."""
        archive = generation.archive
        if archive is not None and archive.damage is not None:
            turn = self.finish(generation)
            return replace(turn, has_more=bool(turn.blocks))
        return Turn()

    def _drained(self, generation: Generation, held: OpenStat, now_ms: int) -> Turn:
        """End a file that has no name, once it has not changed for long enough.

        The handle stays open until all lines of the file are committed. If their transaction is
        aborted, the lines can be read again only through this handle.
        """
        if generation.stamp != held.stamp or generation.still_since_ms is None:
            generation.stamp = held.stamp
            generation.still_since_ms = now_ms
        is_still = now_ms - generation.still_since_ms >= self._drain_quiet_ms
        if not is_still or not generation.is_settled:
            return Turn()
        if held.links > 0:
            generation.end(State.MOVED_OUT, now_ms)
        else:
            turn = self.finish(generation)
            if turn.blocks:
                return replace(turn, has_more=True)
            generation.end(State.DONE, now_ms)
        self.handles.close(generation.name)
        return Turn()
