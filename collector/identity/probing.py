"""Answers the probes of `decide`: short hashes at once, checksums of whole files in steps.

The module reads files through `handles` only. A checksum of all bytes before a position can cover
gigabytes. So each scan reads a bounded part, and the next scan continues.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping

import crc32c

from collector.config.settings import BLOCK_BYTES, CHECKSUM_BYTES
from collector.identity.handles import Handle, Handles, Unreadable, Vanished, open_file
from collector.identity.sightings import AnyProbe, KeptProbe, Probe, Stamp, WholeProbe
from collector.identity.trimming import kept_end
from collector.text.fingerprint import FileId, digest_of

_Answers = dict[AnyProbe, bytes | None]


class Prober:
    """Answers probes. `is_unfinished` is True when a checksum needs another scan."""

    def __init__(self, handles: Handles):
        self.is_unfinished = False
        self.refused: dict[str, str] = {}
        """The files that the last scan could not read, each with the reason."""
        self._handles = handles
        self._sums: dict[WholeProbe, tuple[Stamp, int, int]] = {}
        """The progress of each checksum of the last scan.

        Complete checksums are kept, because the next scan can ask for them again while other
        checksums are unfinished.
        """
        self._asked: set[WholeProbe] = set()
        self._budget = 0

    def begin(self) -> None:
        """Begin a scan with a new budget of bytes to read."""
        self.is_unfinished = False
        self._budget = CHECKSUM_BYTES
        self.refused.clear()
        self._sums = {probe: sum_ for probe, sum_ in self._sums.items() if probe in self._asked}
        self._asked.clear()

    def answer(self, probes: Collection[AnyProbe], paths: Mapping[FileId, str]) -> _Answers:
        """Return the answers to probes, opening each file once.

        An unfinished checksum has no answer yet.
        """
        open_handles = self._handles.by_file()
        answers: _Answers = {}
        by_file: dict[FileId, list[AnyProbe]] = defaultdict(list)
        for probe in probes:
            by_file[probe.file].append(probe)
        for file, mine in by_file.items():
            handle, is_own = open_handles.get(file), False
            try:
                if handle is None:
                    handle, is_own = open_file(paths[file], file), True
                for probe in mine:
                    self._answer_one(probe, handle, answers)
            except Unreadable as error:
                self.refused[paths.get(file) or str(file)] = str(error)
                answers.update(dict.fromkeys(mine))
            except (Vanished, KeyError):
                answers.update(dict.fromkeys(mine))
            finally:
                if handle is not None and is_own:
                    handle.close()
        return answers

    def _answer_one(self, probe: AnyProbe, handle: Handle, answers: _Answers) -> None:
        if isinstance(probe, KeptProbe):
            size = handle.look().size
            end = kept_end(probe.tail, probe.marker, probe.position, handle.read, size)
            answers[probe] = b"" if end is None else end.to_bytes(8, "big")
            return
        if isinstance(probe, Probe):
            data = handle.read(probe.offset, probe.length)
            answers[probe] = digest_of(data) if len(data) == probe.length else None
            return
        found = self._sum(probe, handle)
        if found is not None:
            answers[probe] = found.to_bytes(4, "big")
        elif probe not in self._sums:
            answers[probe] = None

    def _sum(self, probe: WholeProbe, handle: Handle) -> int | None:
        """Continue a checksum. Return None if it is unfinished or the file is too short."""
        stamp = handle.look().stamp
        self._asked.add(probe)
        begun, position, crc = self._sums.pop(probe, (stamp, 0, 0))
        if begun != stamp:
            position = crc = 0
        while position < probe.length:
            if self._budget <= 0:
                self._sums[probe] = (stamp, position, crc)
                self.is_unfinished = True
                return None
            data = handle.read(position, min(BLOCK_BYTES, probe.length - position))
            if not data:
                return None
            crc = crc32c.crc32c(data, crc)
            position += len(data)
            self._budget -= len(data)
        self._sums[probe] = (stamp, position, crc)
        return crc
