"""Measures how much clients use, and returns the time for which a client above its quota must
pause.

This module is pure: time comes as an argument, in monotonic milliseconds. As in Kafka, a quota
limits the rate on this broker.
"""

from __future__ import annotations

import math

from broker.quotas.quota_table import NO_QUOTAS, QuotaTable
from broker.quotas.rates import SAMPLE_MS, WINDOW_MS_MIN, KeptRates, SampledRate, TokenBucket
from protocol.security.quota import FETCH_RATE, MUTATION_RATE, REQUEST_SHARE

REQUEST_PAUSE_MS_MAX = SAMPLE_MS
"""The longest pause in milliseconds for a client that uses too much time of the request thread, as
in Kafka."""

ANONYMOUS = "ANONYMOUS"
"""Kafka's name of the user on a listener without a login."""


class QuotaClient:
    """The user and the client id of a request, which select its quotas."""

    __slots__ = ("client_id", "user")

    def __init__(self, user: str | None, client_id: str | None) -> None:
        """`user` is None on a listener without a login."""
        self.user = ANONYMOUS if user is None else user
        self.client_id = client_id or ""


class ClientQuotas:
    """The quotas in force, and the rates of the clients that have a quota."""

    def __init__(self) -> None:
        self.table: QuotaTable = NO_QUOTAS
        self._rates: KeptRates[tuple[str, tuple[str, str]], SampledRate] = KeptRates(SampledRate)
        self._buckets: KeptRates[tuple[str, str], TokenBucket] = KeptRates(TokenBucket)

    def use(self, table: QuotaTable) -> None:
        """Put other quotas in force. The rates that were measured before are kept."""
        self.table = table

    def record(self, key: str, client: QuotaClient, value: float, now_ms: int) -> int:
        """Add a client's use of a quota. Return the client's pause in milliseconds; 0 if it need
        not pause."""
        quota = self.table.of_client(key, client.user, client.client_id)
        if quota is None:
            return 0
        rate = self._rates.of((key, quota.scope), now_ms)
        rate.record(value, now_ms)
        pause_ms = rate.throttle_ms(quota.value, now_ms)
        return min(pause_ms, REQUEST_PAUSE_MS_MAX) if key == REQUEST_SHARE else pause_ms

    def fetch_bytes_max(self, client: QuotaClient) -> float:
        """Return the largest size in bytes of an answer to a Fetch: the bytes that the quota allows
        in a whole window."""
        quota = self.table.of_client(FETCH_RATE, client.user, client.client_id)
        return math.inf if quota is None else quota.value * WINDOW_MS_MIN / 1_000

    def record_fetch(self, client: QuotaClient, size_bytes: int, now_ms: int) -> tuple[int, bool]:
        """Add the answer to a Fetch. Return the client's pause in milliseconds, and True if the
        answer must be empty. The bytes of an answer that must be empty are not added.

        The first batch of an answer can be larger than the quota of a whole window. If nothing was
        sent in the window before, it is sent all the same, because otherwise it would never be
        sent.
        """
        quota = self.table.of_client(FETCH_RATE, client.user, client.client_id)
        if quota is None:
            return 0, False
        rate = self._rates.of((FETCH_RATE, quota.scope), now_ms)
        is_first = rate.is_unused(now_ms)
        rate.record(size_bytes, now_ms)
        pause_ms = rate.throttle_ms(quota.value, now_ms)
        if not pause_ms or is_first:
            return pause_ms, False
        rate.record(-size_bytes, now_ms)
        return pause_ms, True

    def take_back_fetch(self, client: QuotaClient, size_bytes: int, now_ms: int) -> None:
        """Subtract the bytes of an answer that is not sent after all."""
        self.record(FETCH_RATE, client, -size_bytes, now_ms)

    def mutate(self, client: QuotaClient, count: int, now_ms: int, *, is_strict: bool) -> int:
        """Count partitions that a client creates or deletes. Return its pause in milliseconds.

        With `is_strict` nothing is counted if the client must pause: the change is refused.
        """
        quota = self.table.of_client(MUTATION_RATE, client.user, client.client_id)
        if quota is None:
            return 0
        bucket = self._buckets.of(quota.scope, now_ms)
        pause_ms = bucket.pause_ms(quota.value, now_ms)
        if is_strict and pause_ms:
            return pause_ms
        bucket.take(count, quota.value, now_ms)
        return 0 if is_strict else bucket.pause_ms(quota.value, now_ms)

    def give_back(self, client: QuotaClient, count: int, now_ms: int) -> None:
        """Take back partitions that were counted and not changed."""
        quota = self.table.of_client(MUTATION_RATE, client.user, client.client_id)
        if quota is not None:
            self._buckets.of(quota.scope, now_ms).take(-count, quota.value, now_ms)
