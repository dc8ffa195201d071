"""Writes checkpoints in the file thread, one at a time.

All requests that arrive during a write share the next checkpoint. So clients cause no extra writes
if they send requests faster than the disk writes, or disconnect before the answer.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.storage.log_manager import LogManager
from broker.world import Jobs

Done = Callable[[], None]
Failed = Callable[[Exception], None]


class CheckpointQueue:
    """Writes the checkpoint with the start offset and the recovery point of every log."""

    def __init__(self, logs: LogManager, worker: Jobs) -> None:
        self._logs = logs
        self._worker = worker
        self._next: list[tuple[Done, Failed]] = []
        """The callbacks of the callers that asked for a checkpoint since the last one was
        started."""
        self._next_frees_room = False
        self._is_writing = False

    def write(self, done: Done, failed: Failed, *, frees_room: bool = False) -> None:
        """Write a checkpoint of the present state, then call `done`, or `failed` with the error.

        With `frees_room`, files can be deleted after this checkpoint. So it may use the reserve on
        a full disk.
        """
        self._next.append((done, failed))
        self._next_frees_room |= frees_room
        if not self._is_writing:
            self._write()

    def _write(self) -> None:
        asked, self._next = self._next, []
        frees_room, self._next_frees_room = self._next_frees_room, False
        self._is_writing = True
        checkpoint = self._logs.checkpoint(frees_room=frees_room)

        def written(_: None) -> None:
            self._is_writing = False
            for done, _failed in asked:
                done()
            go_on()

        def refused(error: Exception) -> None:
            self._is_writing = False
            for _done, failed in asked:
                failed(error)
            go_on()

        def go_on() -> None:
            if self._next and not self._is_writing:
                self._write()

        self._worker.run(checkpoint.perform, written, refused)
