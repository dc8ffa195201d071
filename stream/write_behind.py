"""Work that is done one piece behind: on another thread, while the next piece is made."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType


class WriteBehind:
    """Does one piece of work at a time; what it raises comes with the next call, or the end.

    At the end of its context nothing is being done any more. A process that exits within its
    context does not wait for what is being done: a pool's threads would keep it alive for as long
    as a server is away.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._doing: Future[object] | None = None

    def do(self, work: Callable[[], object]) -> None:
        """Begin, as soon as what was begun before is done."""
        self.wait()
        self._doing = Future()
        threading.Thread(target=_do, args=(work, self._doing), name=self._name, daemon=True).start()

    def wait(self) -> None:
        """Wait for what was begun; raises what that raised."""
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
