"""The memory of Spark's driver, and the number of lines per batch that it allows.

Both depend on the machine unless the configuration sets them. Only `machine_bytes` reads files.
"""

from pathlib import Path

from protocol.units import parse_size_bytes
from stream.config.settings import HEAP_BYTES_MIN, LINES_PER_BATCH_MIN, StreamSection

# The heap is the machine's memory divided by this number. The upper limit keeps the whole mill
# within 2.5 GiB.
HEAP_SHARE = 5
HEAP_BYTES_MAX = 1_280 << 20

# The heap that a line of a large batch can need. A line can make a cell for every metric. The heap
# has the cells of the running tasks, and at the end the text of all cells, which is about 150 bytes
# each, in several copies. If a batch is too large in spite of this, it is counted in parts.
BYTES_PER_LINE = 3 << 10
LINES_PER_BATCH_MAX = 1_000_000


def heap_bytes(section: StreamSection, machine: int) -> int:
    """Return the heap of Spark's driver on a machine with `machine` bytes of memory."""
    if section.heap is not None:
        return parse_size_bytes(section.heap)
    return max(HEAP_BYTES_MIN, min(machine // HEAP_SHARE, HEAP_BYTES_MAX))


def lines_per_batch(section: StreamSection, machine: int) -> int:
    """Return the most lines of a batch while the stream is behind."""
    if section.max_lines_per_batch is not None:
        return section.max_lines_per_batch
    lines = heap_bytes(section, machine) // BYTES_PER_LINE
    return max(LINES_PER_BATCH_MIN, min(lines, LINES_PER_BATCH_MAX))


def machine_bytes(
    meminfo: Path = Path("/proc/meminfo"), limit: Path = Path("/sys/fs/cgroup/memory.max")
) -> int:
    """Return the memory of this machine, or of the container of this process."""
    (total,) = (
        int(line.split()[1]) << 10
        for line in meminfo.read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    try:
        return min(total, int(limit.read_text()))
    except (OSError, ValueError):
        # Outside of a container this file does not exist. In a container without a limit it has the
        # word `max`. In both cases the memory of the machine is the limit.
        return total
