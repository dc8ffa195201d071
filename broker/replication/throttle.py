"""Limits the bytes that copies of replicas transfer each second, with a bucket of bytes.

This module is pure. A broker has one bucket for the copies that it sends as a leader, and one for
the copies that it receives as a follower. The rates are Kafka's keys
`leader.replication.throttled.rate` and `follower.replication.throttled.rate`. The lists of topics
(`*.replication.throttled.replicas`) say which replicas are limited.

A full bucket has the bytes of one second. A batch that is larger than the content of the bucket is
still copied whole, and the content becomes negative. A bucket with less than one byte is closed. It
opens again when it has the bytes of `REFILL_MS`, so that a slow copy does not send many small
answers. So in any time t, the copied bytes are at most rate x t, one full bucket and one batch.
"""

from __future__ import annotations

from functools import lru_cache

from broker.settings import LONG_MAX

UNLIMITED = LONG_MAX
"""The rate without a limit, which is the default of both keys."""

REFILL_MS = 100
"""The time in milliseconds whose bytes a closed bucket must have before it opens again."""

ALL_REPLICAS = "*"
"""The list that names every replica of a topic."""

_LISTS_KEPT_MAX = 256

_DIGITS_MAX = 10
"""The largest number of digits of a partition or broker id in a list. Python refuses to parse very
long numbers, and no replica has such a number."""


class CopyThrottle:
    """The bucket of one direction. The rate is an argument, so a change applies at once."""

    __slots__ = ("_at_ms", "_is_closed", "_milli_bytes", "_rate")

    def __init__(self) -> None:
        self._rate = UNLIMITED
        self._milli_bytes = 0
        """The content in thousandths of a byte, so that rounding errors do not add up. It is
        negative after a batch that was larger than the content."""
        self._at_ms = 0
        self._is_closed = False

    def room(self, rate: int, now_ms: int) -> int:
        """Return the number of bytes that can be copied now; 0 if the bucket is closed."""
        self._fill(rate, now_ms)
        if rate == UNLIMITED:
            return UNLIMITED
        return 0 if self._is_closed else self._milli_bytes // 1_000

    def take(self, size_bytes: int, rate: int, now_ms: int) -> None:
        """Take the bytes that were copied out of the bucket."""
        self._fill(rate, now_ms)
        if rate != UNLIMITED:
            self._milli_bytes -= size_bytes * 1_000
            self._judge()

    def wait_ms(self, rate: int, now_ms: int) -> int | None:
        """Return the milliseconds until the bucket opens: 0 if it is open, None if it never opens.

        At a rate of 0 nothing is copied until the rate changes.
        """
        if self.room(rate, now_ms):
            return 0
        if not rate:
            return None
        return -(-(self._opening - self._milli_bytes) // rate)

    @property
    def _opening(self) -> int:
        """The content at which a closed bucket opens again, in thousandths of a byte."""
        return max(self._rate * REFILL_MS, 1_000)

    def _fill(self, rate: int, now_ms: int) -> None:
        """Add the bytes for the time that has passed. A bucket with a new rate starts full, because
        its content at the former rate does not matter for the new one."""
        if rate != self._rate:
            self._rate = rate
            self._milli_bytes = rate * 1_000
        elif rate != UNLIMITED:
            elapsed_ms = max(now_ms - self._at_ms, 0)
            self._milli_bytes = min(self._milli_bytes + rate * elapsed_ms, rate * 1_000)
        self._at_ms = now_ms
        self._judge()

    def _judge(self) -> None:
        """Close the bucket when less than one byte is left, and open it when it is refilled."""
        if self._milli_bytes < 1_000:
            self._is_closed = True
        elif self._milli_bytes >= self._opening:
            self._is_closed = False


def is_listed(replicas: str, partition_index: int, node_id: int) -> bool:
    """Return True if a list of throttled replicas names this broker's replica of a partition.

    A list has the form `partition:broker,…`, or `*` for all replicas of the topic.
    """
    if not replicas:
        return False
    if replicas == ALL_REPLICAS:
        return True
    return partition_index in _listed(replicas, node_id)


@lru_cache(maxsize=_LISTS_KEPT_MAX)
def _listed(replicas: str, node_id: int) -> frozenset[int]:
    """Return the partitions that a list names for a broker.

    The result is cached, because lists can be long and the same lists are needed for every fetch.
    """
    pairs = (entry.split(":") for entry in replicas.split(",") if entry)
    return frozenset(
        int(partition)
        for partition, broker in pairs
        if max(len(partition), len(broker)) <= _DIGITS_MAX and int(broker) == node_id
    )
