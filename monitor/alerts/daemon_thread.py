"""Calls in threads that do not keep the process alive."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Answer = TypeVar("Answer")


def in_daemon_thread(call: Callable[[], Answer], name: str) -> Future[Answer]:
    """Run a call in a separate daemon thread and return the future of its answer.

    The threads of an executor are joined when the process ends, so a thread that waits for someone
    else's server would delay the stop of the monitor.
    """
    future: Future[Answer] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer = call()
        except BaseException as error:  # noqa: BLE001 - the future's owner raises it
            future.set_exception(error)
        else:
            future.set_result(answer)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
