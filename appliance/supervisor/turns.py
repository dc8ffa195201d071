"""When the next of several parts that replace each other may be stopped: the brokers of a cluster.

Pure. All others must be healthy, and, what their health does not say, no copy of a partition may
lag behind: a broker that has come back is healthy before it holds everything again, and the next
one to stop would leave partitions with fewer copies in sync than their writes need. So the parts
are looked at (`Look`) until nothing is out of sync. A round that waits in vain ends, and says so:
whatever keeps copies away, more restarts would make it worse (decision 0069).
"""

from appliance.supervisor.effects import Look

LOOK_EVERY_MS = 1_000
IN_SYNC_MS = 300_000
"""For so long a round waits without any partition coming in sync."""


class Turns:
    """One round of turns, from the first part that waits for its own to the last."""

    def __init__(self) -> None:
        self.waits_for = ""
        """Why nobody's turn comes, for people."""
        self.is_over = False
        """Whether the round has ended before all had their turn."""
        self.number = 0
        """Of the newest look; the answer to an earlier one tells of another state of things."""
        self._is_looking = False
        self._look_at_ms: int | None = None
        self._fewest: int | None = None
        self._since_ms: int | None = None
        """Since when no fewer partitions than `_fewest` have been out of sync."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `look` has something to ask; None while an answer is awaited, or nobody waits."""
        return None if self._is_looking else self._look_at_ms

    def begin(self) -> None:
        """Another round: whoever still waits from the one before takes part in it."""
        self.hold("")
        self.is_over = False

    def hold(self, waits_for: str) -> None:
        """Nobody's turn can come now, whatever the copies are like; what was asked is void."""
        self.waits_for = waits_for
        self.number += 1
        self._is_looking = False
        self._look_at_ms = self._fewest = self._since_ms = None

    def look(self, parts: tuple[str, ...], now_ms: int) -> list[Look]:
        """Ask how the copies are, if that is due."""
        if self._is_looking or (self._look_at_ms is not None and now_ms < self._look_at_ms):
            return []
        self._is_looking = True
        self.number += 1
        return [Look(parts, self.number)]

    def found(self, number: int, not_in_sync: int | None, why: str, now_ms: int) -> bool:
        """So many partitions are out of sync, None: nobody can tell, as `why` says. Whether the
        next turn may begin now."""
        if number != self.number or self.is_over:
            return False
        self._is_looking = False
        if not_in_sync == 0:
            self.hold("")
            return True
        fewest = self._fewest
        has_fewer = not_in_sync is not None and fewest is not None and not_in_sync < fewest
        if self._since_ms is None or has_fewer:
            self._since_ms = now_ms
        if fewest is None or has_fewer:
            self._fewest = not_in_sync
        self.waits_for = why if not_in_sync is None else not_in_sync_text(not_in_sync)
        self.is_over = now_ms - self._since_ms >= IN_SYNC_MS
        self._look_at_ms = None if self.is_over else now_ms + LOOK_EVERY_MS
        return False


def not_in_sync_text(count: int) -> str:
    """As `status` says it."""
    return (
        "1 partition that is not in sync"
        if count == 1
        else f"{count} partitions that are not in sync"
    )
