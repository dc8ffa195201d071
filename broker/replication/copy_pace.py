"""Makes copies of replicas pause between answers while other partitions of the broker are written.

This module is pure. A copy without a rate limit takes all the time of the disk and of the event
loop that it can get. Appends to other partitions, and their acknowledgements, would wait. So after
this broker has appended and fsynced an answer, the copy pauses for a multiple of the time that this
took. The time is measured, so on a slow or loaded machine the pauses are longer. While other
partitions are written, copies take at most one part in `1 + REST_FACTOR` of the time. Otherwise
copies do not pause.
"""

from __future__ import annotations

REST_FACTOR = 2
"""The length of a pause, as a multiple of the time that the last answer took."""

REST_MS_MAX = 200
"""The longest pause in milliseconds. One slow fsync must not stop a copy for long."""


class CopyPace:
    """The pauses of the copies on one link."""

    __slots__ = ("_answered_ms", "_others_then", "_rest_until_ms")

    def __init__(self) -> None:
        self._answered_ms: int | None = None
        self._others_then = 0
        self._rest_until_ms = 0

    def answered(self, now_ms: int) -> None:
        """Record that an answer with records has arrived."""
        self._answered_ms = now_ms

    def rest_until_ms(self, others_count: int, now_ms: int) -> int:
        """Return the time before which no request should be sent. Call this when all received
        records are durable.

        `others_count` is the number of appends to partitions that are not copied, since the start.
        """
        if self._answered_ms is not None:
            took_ms = now_ms - self._answered_ms
            self._answered_ms = None
            has_others = others_count != self._others_then
            rest_ms = min(took_ms * REST_FACTOR, REST_MS_MAX) if has_others else 0
            self._rest_until_ms = now_ms + rest_ms
            self._others_then = others_count
        return self._rest_until_ms
