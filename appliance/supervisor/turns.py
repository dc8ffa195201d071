"""Decides when the next of several parts that can do each other's work (the brokers) may stop.

This module is pure. All other brokers must be healthy, and all replicas must be in sync. Health
alone is not enough. A restarted broker is healthy before its replicas have caught up, so stopping
the next broker would leave partitions with fewer in-sync replicas than writes need. So the brokers
are asked (`AskReplicas`) until no partition is out of sync. A round that makes no progress ends and
reports this, because further restarts would only make the situation worse (decision 0069).
"""

from appliance.supervisor.effects import AskReplicas, Readiness

LOOK_EVERY_MS = 1_000
IN_SYNC_MS = 300_000
"""The milliseconds after which a round ends if no further partition gets in sync."""


class RestartTurns:
    """One round of restarts, until all parts that waited for their turn have been restarted."""

    def __init__(self) -> None:
        self.waits_for = ""
        """The reason why no part can stop now, as text for people."""
        self.is_over = False
        """True if the round has ended before all parts were restarted."""
        self.number = 0
        """The number of the newest request. Answers to earlier requests are outdated."""
        self._is_looking = False
        self._look_at_ms: int | None = None
        self._fewest: int | None = None
        self._since_ms: int | None = None
        """The time since when the number of partitions out of sync has not fallen below
        `_fewest`."""

    @property
    def next_deadline_ms(self) -> int | None:
        """The time at which `look` asks the brokers next.

        It is None while an answer is missing, and if no part waits to restart.
        """
        return None if self._is_looking else self._look_at_ms

    def begin(self) -> None:
        """Start another round. Parts that still wait from the previous round take part in it."""
        self.hold("")
        self.is_over = False

    def hold(self, waits_for: str) -> None:
        """Let no part stop now, for the reason `waits_for`.

        The answer to a pending request is ignored.
        """
        self.waits_for = waits_for
        self.number += 1
        self._is_looking = False
        self._look_at_ms = self._fewest = self._since_ms = None

    def look(self, parts: tuple[str, ...], now_ms: int) -> list[AskReplicas]:
        """Return the request for the state of the replicas, if it is due."""
        if self._is_looking or (self._look_at_ms is not None and now_ms < self._look_at_ms):
            return []
        self._is_looking = True
        self.number += 1
        return [AskReplicas(parts, self.number)]

    def found(self, number: int, ready: Readiness, now_ms: int) -> bool:
        """Handle an answer. Return whether the next part can stop now."""
        if number != self.number or self.is_over:
            return False
        self._is_looking = False
        not_in_sync = ready.not_in_sync
        if not_in_sync == 0:
            self.hold("")
            return True
        fewest = self._fewest
        has_fewer = not_in_sync is not None and fewest is not None and not_in_sync < fewest
        if self._since_ms is None or has_fewer:
            self._since_ms = now_ms
        if fewest is None or has_fewer:
            self._fewest = not_in_sync
        self.waits_for = ready.why if not_in_sync is None else not_in_sync_text(not_in_sync)
        self.is_over = now_ms - self._since_ms >= IN_SYNC_MS
        self._look_at_ms = None if self.is_over else now_ms + LOOK_EVERY_MS
        return False


def not_in_sync_text(count: int) -> str:
    """Return the number of out-of-sync partitions as text for `status`."""
    return (
        "1 partition that is not in sync"
        if count == 1
        else f"{count} partitions that are not in sync"
    )
