"""How much memory Spark's driver takes, and how many lines that allows in a batch.

Both follow the machine unless the configuration says otherwise. Pure but for `machine_bytes`.
"""

from pathlib import Path

from protocol.units import parse_size_bytes
from stream.config.settings import HEAP_BYTES_MIN, LINES_PER_BATCH_MIN, StreamSection

# The heap is this part of the machine, and the whole mill stays within 2.5 GiB on a large one.
HEAP_SHARE = 5
HEAP_BYTES_MAX = 1_280 << 20

# Of a large batch the heap holds the cells of the tasks that run, and in the end the text of all
# cells, some 150 bytes each and in more than one copy; a line may make a cell for every metric. Of
# a batch that proves too large a part is taken.
BYTES_PER_LINE = 3 << 10
LINES_PER_BATCH_MAX = 1_000_000


def heap_bytes(section: StreamSection, machine: int) -> int:
    """The heap of Spark's driver on a machine with so much memory."""
    if section.heap is not None:
        return parse_size_bytes(section.heap)
    return max(HEAP_BYTES_MIN, min(machine // HEAP_SHARE, HEAP_BYTES_MAX))


def lines_per_batch(section: StreamSection, machine: int) -> int:
    """The most lines that a batch takes while the stream is behind."""
    if section.max_lines_per_batch is not None:
        return section.max_lines_per_batch
    lines = heap_bytes(section, machine) // BYTES_PER_LINE
    return max(LINES_PER_BATCH_MIN, min(lines, LINES_PER_BATCH_MAX))


def machine_bytes(
    meminfo: Path = Path("/proc/meminfo"), limit: Path = Path("/sys/fs/cgroup/memory.max")
) -> int:
    """The memory of this machine, or of the container that the process runs in."""
    (total,) = (
        int(line.split()[1]) << 10
        for line in meminfo.read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    try:
        return min(total, int(limit.read_text()))
    except (OSError, ValueError):
        # No such file outside of a container, and the word `max` in one without a limit.
        return total
