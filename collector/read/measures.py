"""Compute the fingerprints at which reading of a file continues.

The module reads files through handles that the caller opened or provides.
"""

from collections.abc import Callable

from collector.identity.evidence import line_start_before, whole_evidence
from collector.identity.generation import Generation
from collector.identity.handles import Handle, Unreadable, Vanished, open_file
from collector.identity.registry import Registry
from collector.identity.sightings import Judgement, Seen, Stamp
from collector.read.waking import Waker
from collector.text.encodings import Encoding
from collector.text.fingerprint import Fingerprint


class Measures:
    """Computes fingerprints for the files of one registry.

    `open_handle` opens the file of a generation.
    """

    def __init__(
        self, registry: Registry, waker: Waker, open_handle: Callable[[Generation], Handle]
    ):
        self._registry = registry
        self._waker = waker
        self._open_handle = open_handle

    def of_copy(self, judgement: Judgement) -> tuple[Fingerprint, Stamp] | None:
        """Return the fingerprint of a copy that was read to its end.

        Return None if the fingerprint of its original is valid for the copy, or if the copy is
        gone. Raises Unreadable.
        """
        copy, original = judgement.copy, self._registry.generations.get(judgement.generation or "")
        if copy is None or original is None or original.position == copy.size:
            return None
        try:
            handle = open_file(copy.path, copy.file, copy.birth_ns)
        except Vanished:
            return None
        try:
            return whole_evidence(handle, copy.size).fingerprint(), handle.look().stamp
        finally:
            handle.close()

    def give(self, copy: Seen, measure: tuple[Fingerprint, Stamp] | None) -> None:
        """Store the result of `of_copy` as the fingerprint of the copy."""
        generation = self._registry.at_path(copy.path)
        if generation is None or generation.position == copy.size:
            return
        if measure is None:
            self._registry.drop(generation)
        else:
            generation.fingerprint, generation.stamp = measure

    def shrink(self, generation: Generation) -> bool:
        """Continue to read a file that became shorter than its position, at the start of its last
        line.

        Returns False if the next scan must identify the file again.
        """
        if not generation.is_settled:
            # Some lines that were read before the file became shorter are not committed yet.
            generation.stamp = None
            return False
        try:
            handle = self._open_handle(generation)
            encoding = self._waker.encoding(generation, handle) or Encoding()
            end = line_start_before(handle, handle.look().size, encoding)
            print_ = whole_evidence(handle, end).fingerprint()
        except (Vanished, Unreadable):
            generation.stamp = None
            return False
        if end >= generation.position and generation.tailer is not None:
            # The file ends inside the open event, so only the event's lines were removed.
            generation.tailer.rewind()
            return True
        generation.begin_behind(print_)
        return True

    def trim(self, generation: Generation, kept_end: int) -> bool:
        """Continue after `kept_end` in a file that was trimmed to its last lines.

        Returns False if the next scan must identify the file again.
        """
        try:
            handle = self._open_handle(generation)
            print_ = whole_evidence(handle, kept_end).fingerprint()
            generation.size = handle.look().size
        except (Vanished, Unreadable):
            generation.stamp = None
            return False
        generation.begin_behind(print_)
        generation.forget_marks()
        return True
