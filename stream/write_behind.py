"""Runs work on another thread while the next piece is prepared."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType


class WriteBehind:
    """Runs one piece of work at a time on another thread.

    If the work raises an exception, the next call of `do` or `wait` or the end of the context
    raises it.

    After the end of the context no work is running. The thread is a daemon, so a process that exits
    inside the context does not wait for the work. The threads of a pool would keep the process
    alive for as long as a server is away.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._doing: Future[object] | None = None

    def do(self, work: Callable[[], object]) -> None:
        """Wait for the earlier work, and then start this work."""
        self.wait()
        self._doing = Future()
        threading.Thread(target=_do, args=(work, self._doing), name=self._name, daemon=True).start()

    def wait(self) -> None:
        """Wait for the running work; raises the exception that the work raised."""
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
