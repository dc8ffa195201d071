"""Runs work on another thread while the next piece is prepared."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType


class WriteBehind:
    """Runs one piece of work at a time; an exception is raised by the next call, or at the end.

    When its context ends, no work is running. A process that exits inside the context does not wait
    for the work, because the thread is a daemon. The threads of a pool would keep the process alive
    for as long as a server is away.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._doing: Future[object] | None = None

    def do(self, work: Callable[[], object]) -> None:
        """Start the work, after waiting for the earlier one."""
        self.wait()
        self._doing = Future()
        threading.Thread(target=_do, args=(work, self._doing), name=self._name, daemon=True).start()

    def wait(self) -> None:
        """Wait for the running work; raises what it raised."""
        doing, self._doing = self._doing, None
        if doing is not None:
            doing.result()

    def __enter__(self) -> "WriteBehind":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.wait()
        elif self._doing is not None:
            self._doing.exception()


def _do(work: Callable[[], object], doing: "Future[object]") -> None:
    try:
        doing.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        doing.set_exception(error)
