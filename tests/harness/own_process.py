"""A function that runs in a process of its own, apart from the threads and files of other tests."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Result = TypeVar("Result")


def in_own_process(function: Callable[..., Result], *args: object) -> Result:
    """Call `function` in a new process, and return what it returns or raise what it raises.

    The function and its arguments must be defined at the top of a module, because the new process
    imports them by name.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()
