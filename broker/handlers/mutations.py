"""The quota of a client for the partitions that its requests create and delete (KIP-599).

From some version on a request is refused for each topic above the quota, and the client sends it
again after the pause. Earlier versions do not know this error, so their changes are made, and the
client pauses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from broker.sessions.call import Call
from protocol.errors import ErrorCode

THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class MutationQuota:
    """The partitions that one request creates or deletes, counted against its client's quota."""

    def __init__(self, call: Call, strict_since: int) -> None:
        """`strict_since` is the first version whose clients know the error."""
        self._call = call
        self._is_strict = call.version >= strict_since
        self._pause_ms = 0
        self._counted: dict[Hashable, int] = {}

    def allows(self, topic: Hashable, count: int) -> bool:
        """Count the partitions of a topic. Return False if the topic must be refused."""
        call, charge = self._call, self._call.slot.charge
        if charge is None or count <= 0:
            return True
        pause_ms = charge.mutate(call.session, call.client_id, count, is_strict=self._is_strict)
        self._pause_ms = max(self._pause_ms, pause_ms)
        if self._is_strict and pause_ms:
            return False
        self._counted[topic] = self._counted.get(topic, 0) + count
        return True

    def allowed(
        self, topics: Iterable[T], key_of: Callable[[T], K], count_of: Callable[[T], int]
    ) -> tuple[list[T], list[K]]:
        """Return the topics that are within the quota, and the keys of the others."""
        allowed: list[T] = []
        refused: list[K] = []
        for one in topics:
            key = key_of(one)
            if self.allows(key, count_of(one)):
                allowed.append(one)
            else:
                refused.append(key)
        return allowed, refused

    def not_changed(self, topics: Iterable[Hashable]) -> None:
        """Give back the partitions of topics that were not changed."""
        charge = self._call.slot.charge
        count = sum(self._counted.pop(topic, 0) for topic in topics)
        if charge is not None and count:
            charge.give_back(self._call.session, self._call.client_id, count)

    def settle(self, response: Any) -> None:
        """Write the pause into the answer, and pause the client."""
        if self._pause_ms:
            response.throttle_time_ms = max(response.throttle_time_ms, self._pause_ms)
            self._call.session.throttle(self._pause_ms)
