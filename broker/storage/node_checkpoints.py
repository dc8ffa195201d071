"""The node's checkpoints: taken in the loop, written in one thread, read at the start.

Four files contain one offset per partition: the recovery point, the log start offset, the high
watermark, and the end of the cleaned part. Each partition folder has a file of its leader epochs.
The files can be out of date: an old recovery point only makes recovery after a crash longer.
`broker/storage/checkpoint` defines the file formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from broker.storage import checkpoint
from broker.storage.disk import Disk
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.log import Log
from broker.storage.reserve import Reserve
from protocol.types import TopicPartition

Offsets = dict[TopicPartition, int]
Epochs = Mapping[str, tuple[int, Sequence[tuple[int, int]]]]
"""The leader epochs of each partition folder: their change count, and their entries."""

OFFSET_CHECKPOINTS = (
    checkpoint.RECOVERY_POINTS,
    checkpoint.LOG_START_OFFSETS,
    checkpoint.HIGH_WATERMARKS,
    checkpoint.CLEANED_OFFSETS,
)


class CheckpointJob:
    """The node's checkpoints as of one moment. The file thread writes and fsyncs them.

    An older checkpoint never overwrites a newer one, in whatever order they are performed.
    """

    __slots__ = ("_epochs", "_files", "_frees_room", "_number", "_offsets")

    def __init__(
        self,
        files: NodeCheckpoints,
        number: int,
        offsets: dict[str, Offsets],
        epochs: Epochs,
        *,
        frees_room: bool,
    ) -> None:
        self._files = files
        self._number = number
        self._offsets = offsets
        self._epochs = epochs
        self._frees_room = frees_room

    def perform(self) -> None:
        self._files.write(self._number, self._offsets, self._epochs, frees_room=self._frees_room)


class NodeCheckpoints:
    """The checkpoint files of a data folder, and their contents."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._reserve = Reserve(disk, folder)
        self._numbers = count(1)
        self._written_number: dict[str, int] = {}
        self._written: dict[str, Offsets] = {}
        """The contents of the offset checkpoints by file name.

        A name is missing until its first write.
        """
        self._found: dict[str, Offsets] = {}
        self._written_epochs: dict[str, int] = {}

    def known(self) -> dict[str, Offsets]:
        """Return the contents of the offset checkpoints: those last written or, before the first
        write, those read at the start."""
        return self._found | self._written

    def read(self) -> dict[str, Offsets]:
        """Read the offset checkpoints, by name. Raises CorruptionError if one is damaged."""
        self._found = {name: self._read_offsets(name) for name in OFFSET_CHECKPOINTS}
        return self._found

    def _read_offsets(self, name: str) -> Offsets:
        path = f"{self._folder}/{name}"
        if not self._disk.exists(path):
            return {}
        try:
            return checkpoint.decode_offsets(self._disk.read_all(path))
        except ValueError as error:
            reason = (
                f"the file is not a valid checkpoint ({error}); remove it, and the next start"
                " checks every batch"
            )
            raise CorruptionError(path, 0, reason) from error

    def read_epochs(self, folder: str) -> list[tuple[int, int]] | None:
        """Return the leader epochs of a partition folder; None if the file cannot be used."""
        try:
            return checkpoint.decode_epochs(
                self._disk.read_all(f"{folder}/{checkpoint.LEADER_EPOCHS}")
            )
        except (DiskError, ValueError) as error:
            if isinstance(error, DiskError) and error.is_short:
                raise
            # Recovery rebuilds the epochs from the headers of all batches.
            return None

    def take(
        self,
        logs: Mapping[TopicPartition, Log],
        offline: Iterable[TopicPartition],
        *,
        only: str | None = None,
        frees_room: bool = False,
    ) -> CheckpointJob:
        """Return a job that writes the checkpoints of these logs, or only the one named by `only`
        and the epochs.

        Offline partitions keep their entries, because these entries show which data existed.
        """
        number = next(self._numbers)
        offsets = {
            checkpoint.RECOVERY_POINTS: {tp: log.recovery_point for tp, log in logs.items()},
            checkpoint.LOG_START_OFFSETS: {
                tp: log.log_start_offset for tp, log in logs.items() if log.log_start_offset
            },
            checkpoint.HIGH_WATERMARKS: {tp: log.high_watermark for tp, log in logs.items()},
            checkpoint.CLEANED_OFFSETS: {
                tp: log.cleaned_offset for tp, log in logs.items() if log.cleaned_offset >= 0
            },
        }
        for name, known in self.known().items():
            offsets[name].update({tp: known[tp] for tp in offline if tp in known})
        if only is not None:
            offsets = {only: offsets[only]}
        epochs = {
            log.folder: (log.leader_epochs.change_count, log.leader_epochs.entries.copy())
            for log in logs.values()
            if log.leader_epochs.change_count != self._written_epochs.get(log.folder, 0)
        }
        return CheckpointJob(self, number, offsets, epochs, frees_room=frees_room)

    def write(
        self, number: int, offsets: dict[str, Offsets], epochs: Epochs, *, frees_room: bool
    ) -> None:
        """Write the files of one `CheckpointJob`. Called in the one file thread."""
        # Write the epochs first, because a start does not read epochs from the batches below a
        # recovery point.
        for folder, (change_count, entries) in epochs.items():
            if change_count < self._written_epochs.get(folder, 0):
                continue
            self._write_epochs(folder, entries, frees_room)
            self._written_epochs[folder] = change_count
        for name, values in offsets.items():
            if number < self._written_number.get(name, 0):
                continue
            if self._written.get(name) != values:
                data = checkpoint.encode_offsets(values)
                self._replace(f"{self._folder}/{name}", data, frees_room)
                self._written[name] = values
            # Set the number only after success. If the disk refused this checkpoint, an older one
            # must still be written, because a truncation waits for the lowered offsets in it.
            self._written_number[name] = number
        self._reserve.refill()

    def forget_folder(self, folder: str) -> None:
        """Forget a removed partition folder. A new one with this name has its own epochs."""
        self._written_epochs.pop(folder, None)

    def _replace(self, path: str, data: bytes, frees_room: bool) -> None:
        if frees_room:
            self._reserve.replace(path, data)
        else:
            self._disk.replace(path, data, is_durable=True)

    def _write_epochs(
        self, folder: str, entries: Sequence[tuple[int, int]], frees_room: bool
    ) -> None:
        path = f"{folder}/{checkpoint.LEADER_EPOCHS}"
        try:
            self._replace(path, checkpoint.encode_epochs(entries), frees_room)
        except DiskError:
            # A deletion can have renamed the folder in the meantime.
            if self._disk.exists(folder):
                raise
