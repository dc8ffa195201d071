"""Heap and batch size depend on the machine's memory unless the configuration sets them."""

from pathlib import Path

import pytest

from stream.config.settings import HEAP_BYTES_MIN, StreamSection
from stream.spark.memory import HEAP_BYTES_MAX, heap_bytes, lines_per_batch, machine_bytes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("machine", "heap"),
    [(2 * GIB, HEAP_BYTES_MIN), (4 * GIB, 4 * GIB // 5), (24 * GIB, HEAP_BYTES_MAX)],
)
def test_the_heap_is_a_share_of_the_machine_within_bounds(machine: int, heap: int) -> None:
    assert heap_bytes(StreamSection(), machine) == heap


def test_what_is_said_holds() -> None:
    section = StreamSection(heap="3GiB", max_lines_per_batch=1_234)
    assert heap_bytes(section, GIB) == 3 * GIB
    assert lines_per_batch(section, GIB) == 1_234


def test_a_batch_grows_with_the_heap() -> None:
    small, large = (
        lines_per_batch(StreamSection(heap=heap), 24 * GIB) for heap in ("512MiB", "1GiB")
    )
    assert large - 2 * small in (0, 1)
    assert lines_per_batch(StreamSection(heap="64GiB"), 24 * GIB) == 1_000_000


def test_a_container_has_the_memory_that_it_may_use(tmp_path: Path) -> None:
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemFree:  1 kB\nMemTotal:        8388608 kB\n")
    assert machine_bytes(meminfo, limit) == 8 * GIB
    limit.write_text("max\n")
    assert machine_bytes(meminfo, limit) == 8 * GIB
    limit.write_text(f"{3 * GIB}\n")
    assert machine_bytes(meminfo, limit) == 3 * GIB
