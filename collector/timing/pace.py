"""Limit how fast an input is read, if its configuration sets a limit.

This module is pure. After each block, the next read waits as long as the block takes at the limit.
So in any second at most the limit and one block are read, even if many files share the limit.
"""


class ReadLimit:
    """The limit of the read rate of one input."""

    def __init__(self, bytes_per_second: int):
        self._bytes_per_second = bytes_per_second
        self._free_at_ms = 0.0

    def wait_until_ms(self, now_ms: int) -> int | None:
        """Return when the input may be read again; None if it may be read now."""
        return None if now_ms >= self._free_at_ms else int(self._free_at_ms) + 1

    def took(self, size_bytes: int, now_ms: int) -> None:
        """Count `size_bytes` that were read from the input's files."""
        begun_ms = max(self._free_at_ms, now_ms)
        self._free_at_ms = begun_ms + size_bytes * 1000 / self._bytes_per_second
