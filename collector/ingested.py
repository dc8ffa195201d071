"""Moves or deletes files whose lines are all committed, if their input is configured so.

Three conditions must hold. The end of the file is committed. Nothing has changed for a while. And
the name still belongs to the file that was read, with the same length. The handle stays open, so
lines that a writer adds in the meantime are read.
"""

import logging
from pathlib import Path

from collector.config.input_section import InputSection
from collector.config.settings import INGESTED_QUIET_MS
from collector.identity.discovery import HOME_PREFIX, record_key
from collector.identity.generation import Generation
from collector.identity.handles import Handles, Unreadable, Vanished, move_file, remove_file
from collector.identity.registry import Registry
from collector.identity.sightings import State
from protocol.log import fields

logger = logging.getLogger(__name__)


class Ingested:
    """Moves or deletes files. `problems` has the reason for each file where that failed."""

    def __init__(self, registry: Registry, handles: Handles, home: str):
        self.problems: dict[str, str] = {}
        self._registry = registry
        self._handles = handles
        self._home = home

    def step(self, now_ms: int) -> bool:
        """Move or delete all files that are ingested and past their waiting time.

        Return True if a file left its path, because the next scan must then notice it.
        """
        if all(section.after_ingest == "keep" for section in self._registry.inputs):
            return False
        has_gone = False
        self.problems.clear()
        for generation in list(self._registry.generations.values()):
            section = generation.section
            if section.after_ingest != "keep" and self._is_done(generation, now_ms):
                has_gone |= self._put_away(generation, section, now_ms)
        return has_gone

    def _is_done(self, generation: Generation, now_ms: int) -> bool:
        """Tell whether the file was read from its start and is committed to its end."""
        is_committed = (
            generation.is_stored
            and generation.is_settled
            and generation.name not in self._registry.changed
            and 0 < generation.size <= generation.safe_position
        )
        return (
            is_committed
            and generation.state in (State.LIVE, State.ROTATED)
            and not generation.has_open_event
            and not generation.error
            and (generation.archive is None or generation.archive.damage is None)
            and generation.read_print().crc is not None
            and now_ms - generation.grown_at_ms >= INGESTED_QUIET_MS
        )

    def _put_away(self, generation: Generation, section: InputSection, now_ms: int) -> bool:
        path = generation.path
        try:
            handle = self._handles.get(generation.name)
            if handle is None:
                handle = self._handles.open(
                    generation.name, path, generation.file, generation.birth_ns
                )
            if generation.stamp is None or handle.look().stamp != generation.stamp:
                # The file changed after it was read to its end, so the change is read first.
                self._registry.counters["ingested_kept"] += 1
                generation.grown_at_ms = now_ms
                return False
            # Until the remaining lines are read, the handle is the only access to the file.
            self._handles.pin(generation.name)
            if section.after_ingest == "delete":
                gone = remove_file(path, generation.file)
            else:
                gone = move_file(path, generation.file, self._target(path, section))
        except (Vanished, Unreadable) as error:
            self.problems[path] = str(error)
            return False
        if gone is not None:
            self._handles.unpin(generation.name)
            self.problems[path] = gone
            return False
        self._registry.counters["removed_after_ingest"] += 1
        logger.info("committed file removed", extra=fields(path=path, done=section.after_ingest))
        return True

    def _target(self, path: str, section: InputSection) -> Path:
        """Return the new path of a file, in the same subfolder as below `watched/` or the root."""
        folder = Path(self._home) / section.move_to
        return folder / record_key(path, self._home).removeprefix(HOME_PREFIX).lstrip("/")
