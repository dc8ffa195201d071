"""How fast an input may be read, where a limit is set.

Floor: ground of the room. Pure. What was read is paid for in time before the next block is: so a
limit holds over any second but for one block, however many files share it.
"""


class Pace:
    """One input's limit."""

    def __init__(self, bytes_per_second: int):
        self._bytes_per_second = bytes_per_second
        self._free_at_ms = 0.0

    def wait_until_ms(self, now_ms: int) -> int | None:
        """When to read again; None: now."""
        return None if now_ms >= self._free_at_ms else int(self._free_at_ms) + 1

    def took(self, size_bytes: int, now_ms: int) -> None:
        """So many bytes of its files were read."""
        begun_ms = max(self._free_at_ms, now_ms)
        self._free_at_ms = begun_ms + size_bytes * 1000 / self._bytes_per_second
