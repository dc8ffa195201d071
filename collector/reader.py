"""Reads the known files: judges what a scan saw, opens what there is to read, gives out lines.

Floor: above `registry` and `files`. Synchronous; touches the disk through `files` only. One turn
reads at most one block of one file. Before each read the bytes just before the position are
compared with what was there before: where they differ, the file was rewritten, nothing is read,
and the next scan decides.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from collector.archive import MAGIC, Archive
from collector.archive_names import originals
from collector.config import BLOCK_BYTES, DRAIN_QUIET_MS, PREFIX_BYTES
from collector.decide import decide
from collector.encoding_names import UTF_16, OnInvalid
from collector.encodings import UTF_16_MARK_BYTES, Encoding, byte_order
from collector.evidence import evidence_at, evidence_at_end, line_start_before, whole_evidence
from collector.files import Handle, Handles, Scan, Unreadable, Vanished, open_file
from collector.fingerprint import Evidence, FileId, digest_of, resume
from collector.generation import Generation
from collector.lines import Kind, LineRules, Overlong
from collector.open_events import OpenEvents
from collector.probing import Prober
from collector.recognition import Compared, Recognition
from collector.registry import Registry
from collector.sightings import Held, Probe, Seen, Stamp, State, Verdict, WholeProbe
from collector.tailer import Request, Tailer
from collector.turn import Turn

ARCHIVE_SUFFIX = ".gz"

LineLimit = Callable[[Generation], int]
"""The longest line, without its line end, that a generation's topic takes in one record."""


class _Waking(Enum):
    """What came of waking a generation."""

    AWAKE = "awake"
    AGAIN = "again"  # another turn goes on with it
    WAITING = "waiting"  # until the file changes


class Reader:
    """The files of one collector. `wants_scan` says that only a scan can tell what happened."""

    def __init__(
        self,
        registry: Registry,
        handles: Handles,
        line_limit: LineLimit,
        drain_quiet_ms: int = DRAIN_QUIET_MS,
    ):
        self.registry = registry
        self.handles = handles
        self.wants_scan = False
        self._line_limit = line_limit
        self._drain_quiet_ms = drain_quiet_ms
        self._prober = Prober(handles)
        self._recognition = Recognition(registry)
        self._open_events = OpenEvents(registry)
        self._still: dict[FileId, tuple[Stamp, int]] = {}

    def judge(self, scan: Scan, now_ms: int) -> list[Generation]:
        """Apply a scan; returns the generations that may have something to read."""
        self.wants_scan = False
        self._prober.begin()
        held = {name: handle.look() for name, handle in self.handles}
        seen = self._disturbed(scan, now_ms)
        undisturbed = {name.file for name in scan.seen} - {name.file for name in seen}
        stored = self.registry.stored(undisturbed)
        answers: dict[Probe | WholeProbe, bytes | None] = {}
        paths = {name.file: name.path for name in seen}
        # Each round answers all that is asked, and of a file only so much can be asked: it ends.
        while True:
            decision = decide(stored, seen, held, answers, is_complete=scan.is_complete)
            open_probes = decision.probes - answers.keys()
            if not open_probes or self._prober.is_unfinished:
                break
            answers.update(self._prober.answer(open_probes, paths))
        self.wants_scan = self._prober.is_unfinished or decision.is_waiting
        touched: dict[str, Generation] = {}
        for judgement in decision.judgements:
            is_held = judgement.generation in held
            for generation in self.registry.apply(judgement, is_held, now_ms):
                touched[generation.name] = generation
            if judgement.copy is not None:
                self._take_measure(judgement.copy)
            if judgement.verdict is Verdict.SHRUNK and judgement.generation is not None:
                self._shrink(self.registry.generations[judgement.generation])
        if scan.is_complete:
            self.registry.first_look_done()
        for generation in touched.values():
            self._settle_handle(generation, now_ms)
        return [
            generation
            for generation in self.registry.generations.values()
            if generation.state is State.DRAINING
            or (generation.name in touched and self.has_work(generation))
            or (generation.state.has_ended and generation.has_open_event)
            or self._is_behind(generation, held.get(generation.name))
        ]

    def has_work(self, generation: Generation) -> bool:
        """Whether a turn may give something."""
        if generation.state is State.DRAINING:
            return True
        if generation.state.has_ended:
            return False
        raw = generation.raw_print()
        if raw is not None and (generation.stamp is None or generation.stamp.size > raw.position):
            return True
        return generation.size > generation.position

    @staticmethod
    def _is_behind(generation: Generation, held: Held | None) -> bool:
        """Whether an open handle has more than was read, whatever became of the name."""
        is_plain = held is not None and not generation.is_archive
        return is_plain and held is not None and held.size > generation.position

    def turn(self, generation: Generation, now_ms: int) -> Turn:
        """Read on; raises Unreadable. Blocks are to be handed out by the generation's tailer."""
        if generation.state.has_ended:
            return self._open_events.rest(generation)
        try:
            handle = self._handle(generation)
            held = handle.look()
            turn = self._read(generation, handle, held, now_ms)
            if generation.tailer is not None and generation.tailer.rules.events is not None:
                turn = self._open_events.settle(generation, turn, now_ms)
        except Vanished:
            self.wants_scan = True
            return Turn()
        generation.error = ""
        generation.backoff.reset()
        if turn.blocks:
            generation.read_at_ms = now_ms
        is_over = generation.state is State.DRAINING and turn.wake_at_ms is None
        if is_over and not turn.blocks and not turn.has_more:
            return self._drained(generation, held, now_ms)
        return turn

    def finish(self, generation: Generation) -> Turn:
        """What is left once the file is closed for good or a one-shot run ends.

        That is the open event and the unfinished last line.
        """
        handle = self.handles.get(generation.name)
        if generation.tailer is None or self._open_events.is_carried(generation):
            return Turn()
        data: bytes | None = b""
        size = generation.size
        if handle is not None:
            size = self._content_size(generation, handle.look())
            request = generation.tailer.final_request(size)
            if request is not None:
                data = self._content(generation, handle, request.offset, request.length)
        blocks = generation.tailer.take_final(memoryview(data or b""), size)
        if data and generation.archive is not None and generation.archive.damage is not None:
            # What precedes the damage is no line, and never will be one.
            blocks[-1] = replace(blocks[-1], kind=Kind.DEAD_LETTER, source=None)
        return self._open_events.last(generation, tuple(blocks))

    def close(self, generation: Generation) -> None:
        """Let a generation's handle go."""
        self.handles.close(generation.name)

    # --- judging ------------------------------------------------------------------------------

    def _disturbed(self, scan: Scan, now_ms: int) -> list[Seen]:
        """The names to be judged. Of a file with several names all are, or none.

        With a file that has the name of an archive, the one that it may be a copy of is judged.
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

    def _take_measure(self, copy: Seen) -> None:
        """Make the fingerprint of a file that is done as it is."""
        generation = self.registry.at_path(copy.path)
        if generation is None or generation.position == copy.size:
            return
        try:
            handle = open_file(copy.path, copy.file)
        except (Vanished, Unreadable):
            self.registry.drop(generation)
            return
        generation.fingerprint = whole_evidence(handle, copy.size).fingerprint()
        generation.stamp = handle.look().stamp
        handle.close()

    def _shrink(self, generation: Generation) -> None:
        """The file ends before the position: go on at the start of the line that its end cuts."""
        if not generation.is_settled:
            # What is on its way was read before the file became shorter; it is judged again.
            self.wants_scan = True
            return
        handle = self._handle(generation)
        encoding = self._encoding(generation, handle) or Encoding()
        end = line_start_before(handle, handle.look().size, encoding)
        if end >= generation.position and generation.tailer is not None:
            # Only of an open event was there more.
            generation.tailer.rewind()
            return
        generation.fingerprint = whole_evidence(handle, end).fingerprint()
        generation.tailer = generation.delivery = None
        generation.touch()

    def _settle_handle(self, generation: Generation, now_ms: int) -> None:
        """Keep the handle of what is to be drained, close that of what has ended."""
        handle = self.handles.get(generation.name)
        if handle is not None and handle.file != generation.file:
            # It goes on in another file.
            self.handles.close(generation.name)
        if generation.state is State.DRAINING:
            self.handles.pin(generation.name)
            generation.still_since_ms = generation.still_since_ms or now_ms
        elif generation.state.has_ended:
            self.handles.close(generation.name)

    # --- reading ------------------------------------------------------------------------------

    def _handle(self, generation: Generation) -> Handle:
        handle = self.handles.get(generation.name)
        if handle is None:
            handle = self.handles.open(generation.name, generation.path, generation.file)
        return handle

    def _read(self, generation: Generation, handle: Handle, held: Held, now_ms: int) -> Turn:
        if generation.tailer is None:
            waking = self._wake(generation, handle, held, now_ms)
            if waking is not _Waking.AWAKE:
                return Turn(has_more=waking is _Waking.AGAIN)
        tailer = generation.tailer
        assert tailer is not None
        if generation.archive is not None:
            if held.size < generation.archive.raw.position:
                self.wants_scan = True
                return Turn()
            if self._examine(generation, generation.archive, handle, held):
                return Turn(has_more=True)
        size = self._content_size(generation, held)
        if size < tailer.position:
            self.wants_scan = True
            return Turn()
        generation.size = size
        request = tailer.request(size)
        if request is None:
            generation.stamp = held.stamp
            return self._at_end(generation)
        return self._take(generation, handle, held, request, now_ms)

    def _take(
        self, generation: Generation, handle: Handle, held: Held, request: Request, now_ms: int
    ) -> Turn:
        tailer = generation.tailer
        assert tailer is not None
        before = tailer.evidence.tail if request.offset == tailer.position else b""
        if generation.archive is not None:
            content = generation.archive.read(handle.read, request.offset, request.length)
            if content is None:
                return Turn(has_more=True)
            data = memoryview(content)
        else:
            content = handle.read(request.offset - len(before), request.length + len(before))
            if not content.startswith(before):
                generation.stamp = None
                self.wants_scan = True
                return Turn()
            data = memoryview(content)[len(before) :]
        generation.stamp = held.stamp
        skipped = tailer.nul_bytes_skipped
        blocks = tailer.take(request, data)
        generation.grown_at_ms = now_ms
        self.registry.counters["nul_bytes_skipped"] += tailer.nul_bytes_skipped - skipped
        return Turn(tuple(blocks), has_more=len(data) > 0)

    def _at_end(self, generation: Generation) -> Turn:
        """Nothing to read; the rest of a damaged archive is closed for good."""
        archive = generation.archive
        if archive is not None and archive.damage is not None:
            turn = self.finish(generation)
            return replace(turn, has_more=bool(turn.blocks))
        return Turn()

    def _drained(self, generation: Generation, held: Held, now_ms: int) -> Turn:
        """The end of a file without a name, once it stood still long enough."""
        if generation.stamp != held.stamp or generation.still_since_ms is None:
            generation.stamp = held.stamp
            generation.still_since_ms = now_ms
        if now_ms - generation.still_since_ms < self._drain_quiet_ms:
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

    def _content_size(self, generation: Generation, held: Held) -> int:
        if generation.archive is not None:
            return generation.archive.content_size or 0
        return held.size

    def _content(
        self, generation: Generation, handle: Handle, offset: int, length: int
    ) -> bytes | None:
        if generation.archive is not None:
            return generation.archive.read(handle.read, offset, length)
        return handle.read(offset, length)

    # --- waking -------------------------------------------------------------------------------

    def _wake(self, generation: Generation, handle: Handle, held: Held, now_ms: int) -> "_Waking":
        """Give a sleeping generation its tailer, once it is known what kind of file it is."""
        if generation.archive is None and generation.is_archive:
            generation.archive = Archive()
        elif generation.archive is None and generation.position == 0:
            head = handle.read(0, len(MAGIC))
            if head == MAGIC:
                generation.archive = Archive()
            elif len(head) < len(MAGIC) and generation.path.endswith(ARCHIVE_SUFFIX):
                return _Waking.WAITING
        if generation.archive is not None:
            waking = self._wake_archive(generation, generation.archive, handle, held, now_ms)
            if waking is not _Waking.AWAKE:
                return waking
        encoding = self._encoding(generation, handle)
        if encoding is None:
            is_short = self._content_size(generation, held) < UTF_16_MARK_BYTES
            return _Waking.WAITING if is_short else _Waking.AGAIN
        evidence = self._evidence(generation, handle, held, encoding)
        if evidence is None:
            return _Waking.WAITING if self.wants_scan else _Waking.AGAIN
        generation.wake(Tailer(self._rules(generation, encoding), evidence, BLOCK_BYTES))
        return _Waking.AWAKE

    def _rules(self, generation: Generation, encoding: Encoding) -> LineRules:
        section = self.registry.inputs[generation.input_index]
        limit = min(section.max_line_bytes, self._line_limit(generation) // encoding.growth_max)
        limit -= limit % encoding.unit_bytes
        events = None if section.multiline is None else section.multiline.rules()
        if events is not None:
            events = replace(events, max_bytes=min(events.max_bytes, limit))
        return LineRules(
            limit, section.line_end == "cut", Overlong(section.on_overlong), encoding, events
        )

    def _encoding(self, generation: Generation, handle: Handle) -> Encoding | None:
        """The file's encoding; None while it is too short to show which one, or not read so far."""
        section = self.registry.inputs[generation.input_index]
        name = section.encoding
        if name == UTF_16:
            head = self._content(generation, handle, 0, UTF_16_MARK_BYTES)
            if head is None or len(head) < UTF_16_MARK_BYTES:
                return None
            name = byte_order(head)
        return Encoding(name, OnInvalid(section.on_invalid))

    def _wake_archive(
        self, generation: Generation, archive: Archive, handle: Handle, held: Held, now_ms: int
    ) -> "_Waking":
        """An archive is read from the moment on that it was whole once."""
        if generation.begins_at_end:
            self._skip_archive(generation, handle, held)
            return _Waking.WAITING
        if self._examine(generation, archive, handle, held):
            return _Waking.AGAIN
        if archive.content_size is None:
            generation.stamp = held.stamp
            return _Waking.WAITING
        if generation.position or generation.is_recognised or archive.damage is not None:
            return _Waking.AWAKE
        compared = self._recognition.go_on(generation, handle.read, now_ms)
        if compared is Compared.WAITING:
            # Only a look tells what became of the file it may be a copy of.
            generation.stamp = None
            return _Waking.WAITING
        return _Waking.AGAIN

    def _examine(
        self, generation: Generation, archive: Archive, handle: Handle, held: Held
    ) -> bool:
        was_sound = archive.damage is None
        progressed = archive.examine(handle.read, held.size)
        if was_sound and archive.damage is not None:
            self.registry.counters["files_damaged"] += 1
        generation.size = archive.content_size or 0
        return progressed

    def _evidence(
        self, generation: Generation, handle: Handle, held: Held, encoding: Encoding
    ) -> Evidence | None:
        """Where reading begins, its bytes confirmed; None when they differ or take another turn."""
        if generation.begins_at_end:
            generation.begins_at_end = False
            generation.touch()
            return evidence_at_end(handle, held.size, encoding)
        print_ = generation.fingerprint
        if print_.position == 0:
            return Evidence()
        head = self._content(generation, handle, 0, min(print_.position, PREFIX_BYTES))
        if head is None:
            return None
        length = print_.marker_length
        tail = self._content(generation, handle, print_.position - length, length)
        if tail is None:
            return None
        if digest_of(head) != print_.heads[-1].digest or digest_of(tail) != print_.marker:
            generation.stamp = None
            self.wants_scan = True
            return None
        return resume(print_, head, tail)

    def _skip_archive(self, generation: Generation, handle: Handle, held: Held) -> None:
        """An archive that was there before the first start, where only new lines are wanted."""
        generation.begins_at_end = False
        generation.archive = None
        generation.archive_print = evidence_at(handle, held.size).fingerprint()
        generation.size = 0
        generation.stamp = held.stamp
        generation.touch()
