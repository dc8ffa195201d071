"""All generations that the collector knows, and how each verdict changes them.

This module is pure; `reader` opens the files. A verdict changes a known generation, ends it and
begins another, or begins a new one.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from collector.config.input_section import InputSection
from collector.identity.checkpoints import Checkpoint
from collector.identity.discovery import record_key
from collector.identity.generation import Generation, begun_again, restored
from collector.identity.routing import Routes
from collector.identity.sightings import Judgement, Seen, State, Stored, Verdict
from collector.text.fingerprint import FileId

# After these verdicts the generation continues under the name and in the file that the scan found.
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

# Verdicts that occur in normal operation, so they are not counted as events.
_ORDINARY = frozenset({Verdict.UNCHANGED, Verdict.GROWN})


class Registry:
    """All generations by name and by path. `new_name` returns a unique name for a new
    generation."""

    def __init__(self, inputs: Sequence[InputSection], home: str, new_name: Callable[[], str]):
        self.inputs = tuple(inputs)
        self.generations: dict[str, Generation] = {}
        self.counters: Counter[str] = Counter()
        self.changed: set[str] = set()
        """The names of the generations whose position records must be written."""
        self._home = home
        self._routes = Routes(inputs, home)
        self._new_name = new_name
        self._by_path: dict[str, Generation] = {}
        self._by_key: dict[str, list[Generation]] = {}
        self._begun = 0
        self._links: set[str] = set()
        self._held_copies: set[FileId] = set()
        # `start: end` applies to the first scan of an input, and only if no positions are stored.
        self._not_looked_at = self.inputs

    def restore(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Load the stored position records. Call this once, before the first scan."""
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
        """Replace the positions in memory by the stored records, and keep the names and files.

        The input of a file is kept, because a file without a name cannot be assigned again. The
        size is kept, so that lines that no file has any more are reported as lost. A file without
        committed lines begins again with its open handle. A copy is compared again.
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
        """Map the name of each generation to its file."""
        return {known.name: known.file for known in self.generations.values()}

    def at_path(self, path: str) -> Generation | None:
        """Return the generation that was last seen at `path`, if it is still being read."""
        found = self._by_path.get(path)
        return None if found is None or found.state.has_ended else found

    def stored(self, undisturbed: Collection[FileId]) -> Collection[Stored]:
        """Return the generations that need a verdict: all except those of undisturbed files."""
        return [
            generation.stored()
            for generation in self.generations.values()
            if generation.file not in undisturbed or generation.state.has_ended
        ]

    def is_undisturbed(self, seen: Seen) -> bool:
        """Tell whether a file needs no verdict: it is unchanged and read, or it still has no
        topic."""
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
        """Replace the inputs. The next scan assigns each file to one of them."""
        globs = {glob for section in self.inputs for glob in section.paths}
        before = self.inputs
        # Keep the old object of an unchanged input, so that its files remain undisturbed.
        self.inputs = tuple(next((old for old in before if old == one), one) for one in inputs)
        self._routes.change(self.inputs)
        fresh = [one for one in self.inputs if not globs.intersection(one.paths)]
        self._not_looked_at = (*self._not_looked_at, *fresh)

    def leave_unmatched(self, is_matched: Callable[[str], bool], now_ms: int) -> list[Generation]:
        """End the files that no input reads any more, and return them.

        `is_matched` tells whether an input matches a path. Such a file is remembered as long as a
        file that was moved away. So reading continues at the old position if the input comes back.
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
        """Handle the first complete scan. Files found later are read from their start."""
        self._not_looked_at = ()

    def apply(self, judgement: Judgement, is_held: bool, now_ms: int) -> list[Generation]:
        """Carry out one verdict. Return the generations that it changed, including those it ended.
        `is_held` tells whether the generation has an open handle with unread lines."""
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
        """End a file without a name that was rewritten. Unread lines may be lost."""
        known.end(State.DONE, now_ms)
        self._note_lost(known)

    def _note_lost(self, known: Generation) -> None:
        if not known.lost_possible:
            known.lost_possible = True
            known.touch()
            self.counters["lost_possible"] += 1

    def found_again(self, known: Generation) -> None:
        """Undo the report of lost lines, because a copy of the file has these lines."""
        if known.lost_possible:
            known.lost_possible = False
            known.touch()
            self.counters["lost_possible"] -= 1

    def drop(self, generation: Generation) -> None:
        """Forget a generation without a stored record, so that its file gets another verdict."""
        del self.generations[generation.name]
        self._forget_key(generation)
        self.changed.discard(generation.name)
        if self._by_path.get(generation.path) is generation:
            del self._by_path[generation.path]

    def predecessors(self, generation: Generation) -> list[Generation]:
        """Return the plain files whose lines must be sent before the lines of this file.

        They have the same key and began earlier. A file that was renamed before any of its lines
        was handed out has no predecessors.
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
        """Return the files of all generations that have, or first had, one of these paths."""
        if not originals:
            return set()
        return {
            known.file
            for known in self.generations.values()
            if known.path in originals or known.first_path in originals
        }

    def forget(self, now_ms: int, forget_after_ms: int) -> list[str]:
        """Drop generations that ended long ago. Return their names, so that their records are
        deleted."""
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
        """Give an archive the key and topic of the known file of which it is an archive."""
        generation.record_key = known.record_key
        generation.first_path = known.first_path
        generation.partition = None
        self._route(generation)
        generation.touch()

    def _route(self, known: Generation) -> None:
        """Set the topic of a file by its first name, or else by its current name."""
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
        """Remove a generation from the index by key. An archive may have got another key since."""
        mine = self._by_key.get(generation.record_key, [])
        if generation in mine:
            mine.remove(generation)
            if not mine:
                del self._by_key[generation.record_key]

    def _change(self, known: Generation, judgement: Judgement, is_held: bool, now_ms: int) -> None:
        """Apply a verdict to the known generation that it names."""
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
        """Set the name, device and inode of a generation to those that the scan found."""
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
            known.note_size(max(seen.size, known.position))
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
        """Return a generation that is already read, for a file that repeats the lines of `known`.

        It has the fingerprint of `known` if both have the same length. Otherwise the reader
        computes one.
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
