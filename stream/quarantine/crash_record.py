"""Records which parts of a batch were being counted when the JVM ended, across restarts.

Room: one small file, `suspects.json`. Only a driver whose JVM ended writes it, so a driver that
was itself killed by a signal records nothing. It is removed when the batch is in the sinks.
"""

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from protocol.log import fields
from sinks.rows import OffsetRange
from stream.quarantine.search import Part

# A search names one part for each end of the JVM; a file with more is not of a single search.
PARTS_MAX = 1_000

_VERSION = 1

logger = logging.getLogger(__name__)


class CrashRecord:
    """The recorded parts, each with its blame (`search.blame_of`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.batch_id: int | None = None
        self._blame: dict[Part, int] = self._load()

    @property
    def blame(self) -> Mapping[Part, int]:
        """All recorded parts, the oldest first."""
        return self._blame

    def blame_of_batch(self, part: Part) -> int:
        """Return the blame of a batch that began at the same offsets.

        Spark can plan a batch again with a later end.
        """
        starts = _starts(part)
        return max((n for known, n in self._blame.items() if _starts(known) == starts), default=0)

    def note(self, query_id: str, batch_id: int, part: Part, blame: int) -> None:
        """Record that the JVM ended while counting this part; fsynced. Raises OSError."""
        self._blame[part] = self._blame.get(part, 0) + blame
        self.batch_id = batch_id
        for known in list(self._blame)[:-PARTS_MAX]:
            del self._blame[known]
        text = json.dumps(
            {
                "version": _VERSION,
                "query_id": query_id,
                "batch_id": batch_id,
                "parts": [
                    {
                        "blame": blame,
                        "ranges": [[r.topic, r.partition, r.start, r.end] for r in known],
                    }
                    for known, blame in self._blame.items()
                ],
            }
        )
        draft = self._path.with_suffix(".tmp")
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        self._sync_folder()

    def clear(self) -> None:
        """Clear the record, because the batch is in the sinks. Raises OSError."""
        if self._blame:
            self._blame = {}
            self.batch_id = None
            self._path.unlink(missing_ok=True)
            self._sync_folder()

    def _load(self) -> dict[Part, int]:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return {}
        try:
            value = json.loads(text)
            if value["version"] != _VERSION:
                raise ValueError(f"its version is {value['version']!r}")
            found = {
                tuple(
                    OffsetRange(str(topic), int(partition), int(start), int(end))
                    for topic, partition, start, end in one["ranges"]
                ): int(one["blame"])
                for one in value["parts"]
            }
            self.batch_id = int(value["batch_id"])
        except (ValueError, KeyError, TypeError) as error:
            logger.warning(
                "the file about earlier ends of Java cannot be read, and is removed",
                extra=fields(file=self._path.name, why=error),
            )
            with contextlib.suppress(OSError):
                self._path.unlink()
            return {}
        return found

    def _sync_folder(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _starts(part: Part) -> dict[tuple[str, int], int]:
    return {(one.topic, one.partition): one.start for one in part}
