"""The memory and CPU time of a part: of its process and every process that it started."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Resident memory, and CPU time since the start of the processes."""

    memory_bytes: int
    cpu_s: float


def usage_of(pid: int | None) -> Usage | None:
    """Return the usage of a process and its descendants; None if the process has ended or this
    account cannot see it."""
    import psutil

    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        memory_bytes = sum(member.memory_info().rss for member in family)
        # This includes the CPU time of descendants that have ended, which the kernel adds to the
        # process that waited for them.
        cpu_s = sum(sum(member.cpu_times()[:4]) for member in family)
    except psutil.Error:
        return None
    return Usage(memory_bytes, cpu_s)
