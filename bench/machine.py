"""Measures the CPU time and memory of processes, and the load of other processes on the machine.

Other load is the time that the hypervisor took, plus the CPU time that belongs neither to the bench
nor to a process it started. It can be measured only over a period of time, so a `Watch` covers one
run.
"""

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import psutil

MIB = 1 << 20


def description() -> dict[str, Any]:
    """Return the description of the machine that every JSON line contains."""
    return {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}


def cpu_s(pid: int) -> float:
    """Return user and system seconds of one process with all its threads."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def pss_mib(pids: Iterable[int]) -> float:
    """Return the proportional set size of the processes together, in MiB. A page that several of
    the processes share is included only once."""
    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += psutil.Process(pid).memory_full_info().pss
    return total / MIB


def tree(pid: int) -> list[int]:
    """Return the ids of a process and its descendants; empty if the process has ended."""
    try:
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def no_roots() -> list[int]:
    """Return no process, for a bench in which all our processes are descendants of this one."""
    return []


class Watch:
    """Measures other load over one span: `with Watch() as watch: …`, then `watch.other_load`.

    `watch.seconds` is the length of the span. `roots` returns processes of ours that are not
    descendants of this one, such as a supervisor in the background. They must run during the whole
    span. Otherwise their CPU time is treated as other load.
    """

    def __init__(self, roots: Callable[[], Iterable[int]] = no_roots) -> None:
        self._roots = roots
        self.seconds = 0.0
        self.other_load = 0.0

    def __enter__(self) -> "Watch":
        self._ours_s = self._own_cpu_s()
        self._busy_s = busy_s()
        self._began_s = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._began_s
        others_s = (busy_s() - self._busy_s) - (self._own_cpu_s() - self._ours_s)
        self.other_load = max(0.0, others_s / self.seconds)

    def _own_cpu_s(self) -> float:
        return trees_cpu_s([os.getpid(), *self._roots()])


def busy_s() -> float:
    """Return how many seconds the cores, all together, were busy since the machine started."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def trees_cpu_s(roots: Iterable[int]) -> float:
    """Return the CPU seconds of processes and their descendants, including children that have
    ended."""
    return sum(_lifetime_cpu_s({pid for root in roots for pid in tree(root)}))


def _lifetime_cpu_s(pids: Iterable[int]) -> Iterator[float]:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            yield times.user + times.system + times.children_user + times.children_system
