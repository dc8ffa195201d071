"""Reads Spark's checkpoint on disk: the offsets of each batch, and which batches are committed.

Spark writes `offsets/N` before batch N runs and `commits/N` after it; `sources/0/0` has the first
offsets of a new query. The checkpoint may not survive a power failure, and the sinks' ledger is the
truth. A checkpoint that does not fit is given up, and a new query resumes from the ledger.

This module reads and writes files below one folder, and does nothing else.
"""

import itertools
import json
import os
import shutil
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from sinks.rows import OffsetRange

Offsets = dict[tuple[str, int], int]

EARLIEST = -2

_VERSION_LINE = "v1"


class CheckpointFault(Exception):
    """The error for a checkpoint that is incomplete, or belongs to another stream.

    Its text says why.
    """


@dataclass(frozen=True, slots=True)
class Resumption:
    """The state in a checkpoint: its query, the last planned batch, and the committed offsets.

    `last_batch` is None if the query has planned no batch yet.
    """

    query_id: str
    last_batch: int | None
    committed: Offsets


class CheckpointFolder:
    """One checkpoint folder on the driver's own disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def location(self) -> str:
        """The folder as a URI for Spark. Blanks are not escaped, because Spark expects that."""
        return f"file://{self.folder.resolve()}"

    def resumption(self, topics: Collection[str]) -> Resumption | None:
        """Return the state in the checkpoint; None if there is no checkpoint yet.

        Raises CheckpointFault for missing or torn files, or if it belongs to other topics.
        """
        if not (self.folder / "metadata").exists():
            if self._batches("offsets"):
                raise CheckpointFault("the checkpoint has offsets but no metadata")
            return None
        query_id = self._query_id()
        planned, finished = self._batches("offsets"), self._batches("commits")
        _check_dense(planned, "offsets")
        _check_dense(finished, "commits")
        if not planned:
            if finished:
                raise CheckpointFault("the checkpoint has commits but no offsets")
            return Resumption(query_id, None, {})
        last = planned[-1]
        done = finished[-1] if finished else planned[0] - 1
        if done not in (last, last - 1):
            raise CheckpointFault(f"batch {last} is planned, but batch {done} was the last to end")
        if {topic for topic, _ in self.ends(last)} != set(topics):
            raise CheckpointFault("the checkpoint is for other topics than the configuration names")
        committed = self.ends(done) if done in planned else {}
        if last - 1 in planned or last == 0:
            self.starts(last)
        elif done != last:
            raise CheckpointFault(
                f"batch {last} is not committed, and offsets/{last - 1} is missing"
            )
        return Resumption(query_id, last, committed)

    def give_up(self) -> None:
        """Remove the checkpoint. A rename makes it disappear in one step for other processes."""
        if self.folder.exists():
            given_up = self.folder.with_name(f"{self.folder.name}.given-up")
            shutil.rmtree(given_up, ignore_errors=True)
            self.folder.rename(given_up)
            shutil.rmtree(given_up, ignore_errors=True)

    def begin(self, query_id: str) -> None:
        """Start a checkpoint for a new query, replacing any other."""
        self.give_up()
        self.folder.mkdir(parents=True)
        draft = self.folder / f".metadata.{uuid.uuid4()}.tmp"
        with draft.open("w") as file:
            file.write(json.dumps({"id": query_id}))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.folder / "metadata")

    def ranges(self, batch_id: int) -> dict[tuple[str, int], OffsetRange]:
        """Return the offsets that a batch covers, by partition.

        A partition that appeared with this batch has the start EARLIEST.
        """
        starts = self.starts(batch_id)
        return {
            (topic, partition): OffsetRange(
                topic, partition, starts.get((topic, partition), EARLIEST), end
            )
            for (topic, partition), end in sorted(self.ends(batch_id).items())
        }

    def starts(self, batch_id: int) -> Offsets:
        """Return the offsets at which a batch begins.

        They are the ends of the batch before it, or the first offsets of the query.
        """
        return self.ends(batch_id - 1) if batch_id > 0 else self._initial()

    def ends(self, batch_id: int) -> Offsets:
        """Return the offsets at which a batch ends, from Spark's offset log."""
        lines = self._lines(self.folder / "offsets" / str(batch_id))
        if len(lines) != 3:
            raise CheckpointFault(f"offsets/{batch_id} has {len(lines)} lines, expected 3")
        return _offsets_of(lines[2], f"offsets/{batch_id}")

    def _initial(self) -> Offsets:
        lines = self._lines(self.folder / "sources" / "0" / "0")
        return _offsets_of(lines[-1], "sources/0/0")

    def _query_id(self) -> str:
        try:
            return str(uuid.UUID(json.loads((self.folder / "metadata").read_text())["id"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointFault(f"the checkpoint's metadata cannot be read: {error}") from error

    def _batches(self, log: str) -> list[int]:
        folder = self.folder / log
        if not folder.is_dir():
            return []
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())

    def _lines(self, path: Path) -> list[str]:
        name = path.relative_to(self.folder)
        try:
            # Old versions of Spark wanted a zero byte before the initial offsets.
            lines = path.read_text().lstrip("\0").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointFault(f"{name} cannot be read: {error}") from error
        if not lines or lines[0] != _VERSION_LINE:
            raise CheckpointFault(f"{name} is incomplete or has an unknown version")
        return lines


def starting_offsets(
    partitions: Mapping[str, int], ledger: Mapping[tuple[str, int], int]
) -> dict[str, dict[str, int]]:
    """Return the offsets at which a new query begins: the ledger's ends, or else EARLIEST.

    `partitions` is the number of partitions of each topic, because Spark requires an offset for
    every partition.
    """
    return {
        topic: {str(index): ledger.get((topic, index), EARLIEST) for index in range(count)}
        for topic, count in sorted(partitions.items())
    }


def forgotten_by(committed: Offsets, ledger: Mapping[tuple[str, int], int]) -> str | None:
    """Return in words which offsets Spark has committed and the ledger does not have.

    None if there are no such offsets. Spark commits a batch only after the sinks have it. So if the
    ledger lacks committed offsets, a sink was emptied or restored from an older copy.
    """
    for (topic, partition), end in sorted(committed.items()):
        counted = ledger.get((topic, partition))
        if counted is None or counted < end:
            known = "nothing" if counted is None else f"up to {counted}"
            return f"{topic}-{partition} is committed up to {end}, but the ledger has {known}"
    return None


def _check_dense(batches: list[int], log: str) -> None:
    for before, after in itertools.pairwise(batches):
        if after != before + 1:
            raise CheckpointFault(
                f"the checkpoint's {log} have no batch between {before} and {after}"
            )


def decode_offsets(line: str) -> Offsets:
    """Parse offsets in the format of Spark's Kafka source; raises ValueError."""
    try:
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in json.loads(line).items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(f"found {line[:80]!r}, expected offsets by topic and partition") from error


def encode_offsets(offsets: Offsets) -> str:
    """Return offsets in the format of Spark's Kafka source."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)


def _offsets_of(line: str, name: str) -> Offsets:
    try:
        return decode_offsets(line)
    except ValueError as error:
        raise CheckpointFault(f"{name} cannot be read: {error}") from error
