"""Records in a file which parts of a batch were being counted when the JVM ended.

The file, `suspects.json`, survives restarts. Only a driver whose JVM ended writes it, so a driver
that was itself killed by a signal records nothing. The file is removed when the sinks have stored
the batch.
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

# The most recorded parts. A search records one part for each end of the JVM, so it needs far fewer.
PARTS_MAX = 1_000

_VERSION = 1

logger = logging.getLogger(__name__)


class CrashRecord:
    """The recorded parts. Each has a *blame*: how likely it is that counting it ends the JVM.

    `search.blame_of` returns the blame that one end of the JVM adds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.batch_id: int | None = None
        self._blame: dict[Part, int] = self._load()

    @property
    def blame(self) -> Mapping[Part, int]:
        """All recorded parts with their blame, the oldest first."""
        return self._blame

    def blame_of_batch(self, part: Part) -> int:
        """Return the highest blame of a recorded part that begins at the offsets of this batch.

        The ends are not compared, because Spark can plan a batch again with a later end.
        """
        starts = _starts(part)
        return max((n for known, n in self._blame.items() if _starts(known) == starts), default=0)

    def note(self, query_id: str, batch_id: int, part: Part, blame: int) -> None:
        """Record durably that the JVM ended while counting this part. Raises OSError."""
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
                raise ValueError(f"found version {value['version']!r}, expected {_VERSION}")
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
                "removed the record of earlier crashes of Java, because it cannot be read",
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
