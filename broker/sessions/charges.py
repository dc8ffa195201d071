"""Computes what one request costs its client, and the pause that follows from it.

This module is pure. On a listener with quotas each started request has a charge. The bytes of a
Produce are charged when the request has started, because a client can have many requests in flight.
The bytes of a Fetch are charged before its answer, and the time of the thread when the answer of
any request is ready. The answer names the pause and is sent at once. Then the connection pauses
(KIP-219).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from broker.quotas.client_quotas import ClientQuotas, QuotaClient
from broker.security.rights import Rights
from broker.world import Clock
from protocol.messages.api import ApiKey
from protocol.security.quota import PRODUCE_RATE, REQUEST_SHARE

NS_PER_PERCENT = 10_000_000
"""The nanoseconds of one per cent of a thread in a second."""

PAUSE_MS_MAX = 2**31 - 1
"""The longest pause that an answer can name."""

_PRODUCE = int(ApiKey.PRODUCE)
_NOT_CHARGED = frozenset({int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)})


class ChargedSession(Protocol):
    """A session. A charge uses these members."""

    rights: Rights
    """What the client may do, with its user."""

    def throttle(self, pause_ms: int) -> None:
        """Start no request for this time, and read nothing."""


@dataclass(frozen=True, slots=True)
class Charging:
    """The objects that all charges of a broker share."""

    quotas: ClientQuotas
    clock: Clock
    turn_ns: Callable[[], int]


class Charge:
    """The cost of one request."""

    __slots__ = ("_charging", "_client", "_counted_ns", "_is_produce_counted", "_pause_ms",
                 "_size_bytes", "_spent_ns", "_started_ns")  # fmt: skip

    def __init__(self, charging: Charging, size_bytes: int) -> None:
        """Create the charge when the request starts. `size_bytes` is the size of its frame."""
        self._charging = charging
        self._size_bytes = size_bytes
        self._started_ns = charging.turn_ns()
        self._spent_ns = -1
        """The time that the handler took; -1 while it runs."""
        self._counted_ns = -1
        """The part of the time that was charged; -1 before any was charged."""
        self._client: QuotaClient | None = None
        self._pause_ms = 0
        self._is_produce_counted = False

    def handled(self) -> None:
        """Record that the handler has returned. Time after the answer is charged too, but causes no
        pause."""
        charging = self._charging
        self._spent_ns = charging.turn_ns() - self._started_ns
        if self._counted_ns >= 0 and self._client is not None:
            rest = (self._spent_ns - self._counted_ns) / NS_PER_PERCENT
            charging.quotas.record(REQUEST_SHARE, self._client, rest, charging.clock.monotonic_ms())

    def fetch_bytes_max(self, session: ChargedSession, client_id: str | None) -> float:
        """Return the largest size in bytes of the answer to a Fetch."""
        client = self._client_of(session, client_id)
        return self._charging.quotas.fetch_bytes_max(client)

    def holds_back(self, session: ChargedSession, client_id: str | None, size_bytes: int) -> bool:
        """Charge the answer to a Fetch. Return True if it must be sent without records."""
        client, quotas = self._client_of(session, client_id), self._charging.quotas
        now_ms = self._charging.clock.monotonic_ms()
        pause_ms, is_empty = quotas.record_fetch(client, size_bytes, now_ms)
        share_pause_ms = self._count_share(client, now_ms)
        if share_pause_ms and not is_empty:
            quotas.take_back_fetch(client, size_bytes, now_ms)
            is_empty, pause_ms = True, 0
        self._pause_ms = max(pause_ms, share_pause_ms)
        return is_empty

    def settle(
        self, session: ChargedSession, api_key: int, client_id: str | None, response: Any
    ) -> None:
        """Charge the request, write the pause into its answer, and pause the client."""
        # A client that has not logged in has an empty name.
        if api_key in _NOT_CHARGED or session.rights.user == "":
            return
        if api_key == _PRODUCE:
            pause_ms = self.settle_produce(session, client_id)
        else:
            pause_ms = self._pause_ms
            if self._counted_ns < 0:
                now_ms = self._charging.clock.monotonic_ms()
                pause_ms = self._count_share(self._client_of(session, client_id), now_ms)
            pause_ms = self._pause(session, pause_ms)
        if pause_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, pause_ms)

    def settle_produce(
        self, session: ChargedSession, client_id: str | None, *, is_answered: bool = True
    ) -> int:
        """Charge a Produce, and pause the client. Return the pause in milliseconds for its answer.

        Without an answer (acks=0) only the bytes are charged, as in Kafka.
        """
        self.count_produce(session, client_id)
        if not is_answered:
            return self._pause_ms
        now_ms = self._charging.clock.monotonic_ms()
        share_pause_ms = self._count_share(self._client_of(session, client_id), now_ms)
        if share_pause_ms > self._pause_ms:
            self._pause_ms = self._pause(session, share_pause_ms)
        return self._pause_ms

    def count_produce(self, session: ChargedSession, client_id: str | None) -> None:
        """Charge the bytes of a Produce once, and pause the client. During the pause no later
        request starts."""
        if not self._is_produce_counted:
            self._is_produce_counted = True
            client = self._client_of(session, client_id)
            now_ms = self._charging.clock.monotonic_ms()
            pause_ms = self._charging.quotas.record(PRODUCE_RATE, client, self._size_bytes, now_ms)
            self._pause_ms = self._pause(session, pause_ms)

    def mutate(
        self, session: ChargedSession, client_id: str | None, count: int, *, is_strict: bool
    ) -> int:
        """Count partitions that the request creates or deletes. Return the client's pause, as
        `ClientQuotas.mutate`."""
        client, now_ms = self._client_of(session, client_id), self._charging.clock.monotonic_ms()
        pause_ms = self._charging.quotas.mutate(client, count, now_ms, is_strict=is_strict)
        return min(pause_ms, PAUSE_MS_MAX)

    def give_back(self, session: ChargedSession, client_id: str | None, count: int) -> None:
        """Take back partitions that were not created or deleted."""
        client, now_ms = self._client_of(session, client_id), self._charging.clock.monotonic_ms()
        self._charging.quotas.give_back(client, count, now_ms)

    def _client_of(self, session: ChargedSession, client_id: str | None) -> QuotaClient:
        if self._client is None:
            self._client = QuotaClient(session.rights.user, client_id)
        return self._client

    def _count_share(self, client: QuotaClient, now_ms: int) -> int:
        """Charge the time of the thread so far. Return the client's pause in milliseconds."""
        spent_ns = self._spent_ns
        if spent_ns < 0:
            spent_ns = self._charging.turn_ns() - self._started_ns
        self._counted_ns = spent_ns
        share = spent_ns / NS_PER_PERCENT
        return self._charging.quotas.record(REQUEST_SHARE, client, share, now_ms)

    def _pause(self, session: ChargedSession, pause_ms: int) -> int:
        pause_ms = min(pause_ms, PAUSE_MS_MAX)
        if pause_ms:
            session.throttle(pause_ms)
        return pause_ms
