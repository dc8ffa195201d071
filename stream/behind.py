"""Work that is done one piece behind: on another thread, while the next piece is made."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType


class OneBehind:
    """Does one piece of work at a time; what it raises comes with the next call, or the end.

    At the end of its context nothing is being done any more.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._doing: Future[object] | None = None

    def do(self, work: Callable[[], object]) -> None:
        """Begin, as soon as what was begun before is done."""
        self.wait()
        self._doing = self._pool.submit(work)

    def wait(self) -> None:
        """Wait for what was begun; raises what that raised."""
        doing, self._doing = self._doing, None
        if doing is not None:
            doing.result()

    def __enter__(self) -> "OneBehind":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            self._pool.shutdown(wait=True)
