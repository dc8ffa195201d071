"""The fingerprints of files that were found to be copies.

Floor: beside `reader`. Touches the disk through a handle of its own.
"""

from collector.identity.evidence import whole_evidence
from collector.identity.handles import Vanished, open_file
from collector.identity.registry import Registry
from collector.identity.sightings import Judgement, Seen, Stamp
from collector.text.fingerprint import Fingerprint

Measure = tuple[Fingerprint, Stamp]


def measure_copy(registry: Registry, judgement: Judgement) -> Measure | None:
    """Return the fingerprint of a file that is done as it is.

    None where it is that of its original, or where the file is gone. Raises Unreadable.
    """
    copy, original = judgement.copy, registry.generations.get(judgement.generation or "")
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


def take_measure(registry: Registry, copy: Seen, measure: Measure | None) -> None:
    """Give a copy its fingerprint; without one it is judged again as a new file."""
    generation = registry.at_path(copy.path)
    if generation is None or generation.position == copy.size:
        return
    if measure is None:
        registry.drop(generation)
    else:
        generation.fingerprint, generation.stamp = measure
