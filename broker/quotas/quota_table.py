"""Selects the quota of one client, by Kafka's order of precedence.

This module is pure. A client has a user and a client id. Only the quota of the most specific entity
applies. All clients that share a quota share one rate: a quota that names a client id has one rate
per client id, a quota without a client id has one rate for all clients of the user together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from protocol.security.quota import CLIENT_ID, USER, QuotaEntity

CACHED_MAX = 10_000
"""The largest number of cached look-ups."""


class ClientQuota(NamedTuple):
    """The quota that applies to a client. `scope` is the user and the client id whose clients share
    its rate; either can be empty."""

    value: float
    scope: tuple[str, str]


class QuotaTable:
    """All quotas at one offset of the metadata log. A table never changes."""

    def __init__(self, values: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self.values = values
        self._cached: dict[tuple[str, str, str], ClientQuota | None] = {}

    def of_client(self, key: str, user: str, client_id: str) -> ClientQuota | None:
        """Return the quota of a client; None if the client has no quota."""
        asked = (key, user, client_id)
        if asked not in self._cached:
            if len(self._cached) >= CACHED_MAX:
                self._cached.clear()
            self._cached[asked] = self._find(key, user, client_id)
        return self._cached[asked]

    def _find(self, key: str, user: str, client_id: str) -> ClientQuota | None:
        # Try the entities in the order of Kafka's DefaultQuotaCallback.
        both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
        for entity, scope in (
            (((CLIENT_ID, client_id), (USER, user)), both),
            (((CLIENT_ID, None), (USER, user)), both),
            (((USER, user),), of_user),
            (((CLIENT_ID, client_id), (USER, None)), both),
            (((CLIENT_ID, None), (USER, None)), both),
            (((USER, None),), of_user),
            (((CLIENT_ID, client_id),), of_client),
            (((CLIENT_ID, None),), of_client),
        ):
            value = self.values.get(entity, {}).get(key)
            if value is not None:
                return ClientQuota(value, scope)
        return None


NO_QUOTAS = QuotaTable({})
