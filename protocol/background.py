"""Reports errors of background tasks, for which nothing waits."""

import asyncio
from typing import Any


def report_failure(task: "asyncio.Task[Any]", message: str) -> None:
    """Give the error of an ended task to the event loop's exception handler, if it has one.

    Such an error is a bug. Without this call nothing would show it, because nothing awaits the
    task. The parts' handlers end the process.
    """
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler(
            {"message": message, "exception": error, "task": task}
        )
