"""All generations the collector knows, and what each verdict does to them.

Floor: above `generation` and `decide`. Pure: files are opened by `reader`. A verdict either
changes a known generation, or ends it and begins another, or begins one.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from collector.config.settings import InputSection
from collector.identity.checkpoints import Checkpoint
from collector.identity.discovery import record_key
from collector.identity.generation import Generation, begun_again, restored
from collector.identity.routing import Routes
from collector.identity.sightings import Judgement, Seen, State, Stored, Verdict
from collector.text.fingerprint import FileId

# The generation's content is, or goes on, under the name and in the file that was seen.
_FOLLOWED = frozenset(
    {
        Verdict.UNCHANGED,
        Verdict.GROWN,
        Verdict.RENAMED,
        Verdict.RENUMBERED,
        Verdict.COPYTRUNCATED,
        Verdict.SHRUNK,
        Verdict.TRIMMED,
        Verdict.REPLACED_SAME_HEAD,
        Verdict.MOVED,
    }
)

# Verdicts that are the ordinary course of things, not events to be counted.
_ORDINARY = frozenset({Verdict.UNCHANGED, Verdict.GROWN})


class Registry:
    """Generations by name and by path. `new_name` gives each generation a name of its own."""

    def __init__(self, inputs: Sequence[InputSection], home: str, new_name: Callable[[], str]):
        self.inputs = tuple(inputs)
        self.generations: dict[str, Generation] = {}
        self.counters: Counter[str] = Counter()
        self.changed: set[str] = set()
        """Whose position records are to be written."""
        self._home = home
        self._routes = Routes(inputs, home)
        self._new_name = new_name
        self._by_path: dict[str, Generation] = {}
        self._by_key: dict[str, list[Generation]] = {}
        self._begun = 0
        self._links: set[str] = set()
        self._held_copies: set[FileId] = set()
        # Of a collector that has no positions, `start: end` holds until the first scan of an input.
        self._not_looked_at = self.inputs

    def restore(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Take over what the topic of positions holds; once, before the first scan."""
        for checkpoint in checkpoints:
            generation = restored(checkpoint, self.inputs[0])
            generation.changed = self.changed
            self._add(generation)
            if generation.state is not State.DONE:
                self._by_path[generation.path] = generation
            self.counters["lost_possible"] += generation.lost_possible
            self._not_looked_at = ()
        self._hold_topics()

    def start_over(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Take over what is stored in place of what was believed; names and files stay.

        So do a file's input, which one that has lost its name shows no more, and how much of it was
        seen: what was read and is nowhere any more is told as lost. A file of which nothing was
        ever committed begins again, and its open handle is kept, which may be the last way to it.
        One that was found to be a copy is judged again with its original.
        """
        fresh = [
            known
            for known in self.generations.values()
            if not known.is_stored and known.copy_of is None
        ]
        before = self.generations.copy()
        self.counters["lost_possible"] -= sum(one.lost_possible for one in before.values())
        self.generations.clear()
        self._by_path.clear()
        self._by_key.clear()
        self.changed.clear()
        self.restore(checkpoints)
        for known in self.generations.values():
            if (believed := before.get(known.name)) is not None:
                known.section = believed.section
                known.size = max(known.size, believed.size)
        taken = {known.file for known in self.generations.values() if not known.state.has_ended}
        for known in fresh:
            if known.file not in taken and not known.state.has_ended:
                again = begun_again(known)
                self._add(again)
                self._by_path.setdefault(again.path, again)
        self._hold_topics()

    def files(self) -> dict[str, FileId]:
        """Which file each generation is, by its name."""
        return {known.name: known.file for known in self.generations.values()}

    def at_path(self, path: str) -> Generation | None:
        """The generation that was last seen under a name and is still read."""
        found = self._by_path.get(path)
        return None if found is None or found.state.has_ended else found

    def stored(self, undisturbed: Collection[FileId]) -> Collection[Stored]:
        """The generations to be judged: all but the owners of undisturbed files."""
        return [
            generation.stored()
            for generation in self.generations.values()
            if generation.file not in undisturbed or generation.state.has_ended
        ]

    def is_undisturbed(self, seen: Seen) -> bool:
        """The file is where and what it was, read to its end or without a topic as before: there
        is nothing to judge."""
        known = self._by_path.get(seen.path)
        is_read = known is not None and known.size <= known.position
        return (
            known is not None
            and known.stamp is not None
            and known.stamp.mtime_ns == seen.mtime_ns
            and known.stamp.size == seen.size
            and known.file == seen.file
            and known.birth_ns == seen.birth_ns
            and known.state in (State.LIVE, State.ROTATED)
            and known.section is self.inputs[seen.input_index]
            and (self._is_refused_as_before(known) or (is_read and not known.error))
        )

    def change_inputs(self, inputs: Sequence[InputSection]) -> None:
        """Other inputs: the next look finds which of them each file belongs to."""
        globs = {glob for section in self.inputs for glob in section.paths}
        before = self.inputs
        # An input that is as it was is the same object: its files need not be looked at anew.
        self.inputs = tuple(next((old for old in before if old == one), one) for one in inputs)
        self._routes.change(self.inputs)
        fresh = [one for one in self.inputs if not globs.intersection(one.paths)]
        self._not_looked_at = (*self._not_looked_at, *fresh)

    def leave_unmatched(self, is_matched: Callable[[str], bool], now_ms: int) -> list[Generation]:
        """Read no further what no input reads (`is_matched` says so of its name).

        What is known of such a file stays for as long as if it had been moved away, so that an
        input that comes back goes on where it stood. Returns these files.
        """
        left = [
            known
            for known in self.generations.values()
            if known.state in (State.LIVE, State.ROTATED) and not is_matched(known.path)
        ]
        for known in left:
            known.end(State.MOVED_OUT, now_ms)
        return left

    def first_look_done(self) -> None:
        """A complete scan was applied: files that turn up later are read from their start."""
        self._not_looked_at = ()

    def apply(self, judgement: Judgement, is_held: bool, now_ms: int) -> list[Generation]:
        """Carry out one verdict; returns the generations it touched, those that ended included.

        `is_held` tells whether the judged generation has an open handle to be drained.
        """
        verdict, seen = judgement.verdict, judgement.seen
        known = self.generations.get(judgement.generation or "")
        if verdict is Verdict.LINKED:
            self._note_link(seen)
            return []
        if verdict is Verdict.COPY_HELD:
            self._note_copy(seen)
            return []
        if verdict not in _ORDINARY:
            self.counters[verdict] += 1
        touched = []
        if known is not None:
            known.verdict = verdict
            self._change(known, judgement, is_held, now_ms)
            touched.append(known)
            if judgement.lost_possible:
                self._note_lost(known)
            if judgement.copy is not None:
                touched.append(self._copied(known, judgement.copy, verdict))
        if judgement.begins is not None:
            touched.append(self._begin(judgement.begins, verdict))
        return touched

    def end_lost(self, known: Generation, now_ms: int) -> None:
        """A file without a name was rewritten: what it held beyond the position cannot be known."""
        known.end(State.DONE, now_ms)
        self._note_lost(known)

    def _note_lost(self, known: Generation) -> None:
        if not known.lost_possible:
            known.lost_possible = True
            known.touch()
            self.counters["lost_possible"] += 1

    def found_again(self, known: Generation) -> None:
        """What was feared to be lost of a generation was found in a copy of its file."""
        if known.lost_possible:
            known.lost_possible = False
            known.touch()
            self.counters["lost_possible"] -= 1

    def drop(self, generation: Generation) -> None:
        """Forget a generation of which nothing is stored: its file is judged anew."""
        del self.generations[generation.name]
        self._forget_key(generation)
        self.changed.discard(generation.name)
        if self._by_path.get(generation.path) is generation:
            del self._by_path[generation.path]

    def predecessors(self, generation: Generation) -> list[Generation]:
        """The plain files whose lines go before this one's: those with its key begun earlier.

        None of one that was renamed itself before a line of it was given.
        """
        if generation.path != generation.first_path:
            return []
        return [
            known
            for known in self._by_key.get(generation.record_key, ())
            if known is not generation
            and not known.is_archive
            and known.topic == generation.topic
            and (known.order < generation.order or (not known.order and known.lines_read > 0))
        ]

    def relatives(self, originals: Collection[str]) -> set[FileId]:
        """The files of the generations that have or had one of these paths."""
        if not originals:
            return set()
        return {
            known.file
            for known in self.generations.values()
            if known.path in originals or known.first_path in originals
        }

    def forget(self, now_ms: int, forget_after_ms: int) -> list[str]:
        """Drop what ended long ago; returns the names whose position records are to go."""
        old = [
            generation.name
            for generation in self.generations.values()
            if generation.ended_ms is not None
            and now_ms - generation.ended_ms >= forget_after_ms
            and generation.is_settled
        ]
        for name in old:
            generation = self.generations.pop(name)
            self._forget_key(generation)
            if self._by_path.get(generation.path) is generation:
                del self._by_path[generation.path]
        if old:
            self._hold_topics()
        return old

    def take_name_of(self, generation: Generation, known: Generation) -> None:
        """An archive turned out to be one of a known file: its lines go where that one's went."""
        generation.record_key = known.record_key
        generation.first_path = known.first_path
        generation.partition = None
        self._route(generation)
        generation.touch()

    def _route(self, known: Generation) -> None:
        """Set the topic that follows from the first name; call again after `first_path` changes."""
        topic, known.unroutable = self._routes.of(known.section, known.first_path, known.path)
        known.refused_in = self._routes.edition
        known.topic = topic or known.topic

    def _is_refused_as_before(self, known: Generation) -> bool:
        return bool(known.unroutable) and known.refused_in == self._routes.edition

    def _hold_topics(self) -> None:
        self._routes.hold(known.topic for known in self.generations.values())

    def _add(self, generation: Generation) -> None:
        self.generations[generation.name] = generation
        self._by_key.setdefault(generation.record_key, []).append(generation)

    def _forget_key(self, generation: Generation) -> None:
        """An archive may have been given another key since; then it stays, and is passed over."""
        mine = self._by_key.get(generation.record_key, [])
        if generation in mine:
            mine.remove(generation)
            if not mine:
                del self._by_key[generation.record_key]

    def _change(self, known: Generation, judgement: Judgement, is_held: bool, now_ms: int) -> None:
        """What a verdict does to the generation it is about."""
        verdict, seen = judgement.verdict, judgement.seen
        if verdict in _FOLLOWED and seen is not None:
            self._follow(known, seen)
        elif verdict in (Verdict.TRUNCATED, Verdict.REWRITTEN, Verdict.COPYTRUNCATED):
            known.end(State.DONE, now_ms)
        elif verdict is Verdict.GONE_WHILE_DOWN:
            known.end(State.GONE, now_ms)
        elif verdict in (Verdict.DELETED, Verdict.MOVED_OUT) or (
            verdict is Verdict.REPLACED and is_held
        ):
            known.state = State.DRAINING
            known.touch()

    def _follow(self, known: Generation, seen: Seen) -> None:
        """The generation's file was seen under a name: take over where and which it is."""
        if known.path != seen.path:
            if self._by_path.get(known.path) is known:
                del self._by_path[known.path]
            known.path = seen.path
            known.touch()
        if known.file != seen.file:
            known.file = seen.file
            known.birth_ns = seen.birth_ns
            known.touch()
        known.birth_ns = seen.birth_ns if known.birth_ns is None else known.birth_ns
        known.section = self.inputs[seen.input_index]
        self._route(known)
        known.stamp = seen.stamp
        if not known.is_archive:
            known.size = max(seen.size, known.position)
        known.revive(State.LIVE if seen.path == known.first_path else State.ROTATED)
        self._by_path[seen.path] = known

    def _begin(self, seen: Seen, verdict: Verdict) -> Generation:
        section = self.inputs[seen.input_index]
        topic, refusal = self._routes.of(section, seen.path)
        is_first_look = any(section is one for one in self._not_looked_at)
        starts_at_end = is_first_look and section.start == "end"
        self._begun += 1
        generation = Generation(
            self._new_name(),
            section,
            topic,
            record_key(seen.path, self._home),
            seen.path,
            seen.path,
            seen.file,
            seen.birth_ns,
            verdict=verdict,
            size=seen.size,
            changed=self.changed,
            starts_at_end=starts_at_end,
            order=self._begun,
            begins_at_end=starts_at_end,
            unroutable=refusal,
        )
        self._add(generation)
        self._by_path[seen.path] = generation
        return generation

    def _copied(self, known: Generation, copy: Seen, verdict: Verdict) -> Generation:
        """A file that holds what `known` gave, as a generation of its own that has nothing left.

        Its fingerprint is that of `known`, if it is as long; else the reader makes one.
        """
        section = self.inputs[copy.input_index]
        topic, refusal = self._routes.of(section, known.first_path, copy.path)
        generation = Generation(
            self._new_name(),
            section,
            topic,
            known.record_key,
            copy.path,
            known.first_path,
            copy.file,
            copy.birth_ns,
            state=State.ROTATED,
            verdict=verdict,
            lines=known.lines,
            size=copy.size,
            changed=self.changed,
            copy_of=known,
            unroutable=refusal,
        )
        if known.position == copy.size:
            generation.fingerprint = known.read_print()
            self.found_again(known)
        generation.touch()
        self._add(generation)
        self._by_path[copy.path] = generation
        return generation

    def _note_copy(self, seen: Seen | None) -> None:
        assert seen is not None
        if seen.file not in self._held_copies:
            self._held_copies.add(seen.file)
            self.counters[Verdict.COPY_HELD] += 1

    def _note_link(self, seen: Seen | None) -> None:
        assert seen is not None
        if seen.path not in self._links:
            self._links.add(seen.path)
            self.counters[Verdict.LINKED] += 1
