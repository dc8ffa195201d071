"""Which leader epoch began at which offset."""

from __future__ import annotations


class LeaderEpochs:
    """Entries (epoch, start offset), both rising."""

    entries: list[tuple[int, int]]

    @property
    def latest(self) -> int:
        """The epoch of the newest batch, -1 when there is none."""
        return self.entries[-1][0] if self.entries else -1
