"""Limit how fast an input is read, if its configuration says so.

Room: ground of the room. Pure. Each block delays the next one by the time it takes at the limit.
So any second holds at most one block more than the limit, however many files share it.
"""


class ReadLimit:
    """The read limit of one input."""

    def __init__(self, bytes_per_second: int):
        self._bytes_per_second = bytes_per_second
        self._free_at_ms = 0.0

    def wait_until_ms(self, now_ms: int) -> int | None:
        """Return when to read again; None: now."""
        return None if now_ms >= self._free_at_ms else int(self._free_at_ms) + 1

    def took(self, size_bytes: int, now_ms: int) -> None:
        """Note that bytes of its files were read."""
        begun_ms = max(self._free_at_ms, now_ms)
        self._free_at_ms = begun_ms + size_bytes * 1000 / self._bytes_per_second
