"""The names of client quotas and of their entities, as in Kafka.

This module is pure. An entity is a set of types with a name each. The name None stands for the
default, which is for every name without a quota of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""The types of an entity. A user and a client id can be combined."""

PRODUCE_RATE = "producer_byte_rate"
FETCH_RATE = "consumer_byte_rate"
REQUEST_SHARE = "request_percentage"
CONNECTION_RATE = "connection_creation_rate"
"""The quota of addresses: new connections per second (KIP-612)."""
MUTATION_RATE = "controller_mutation_rate"
"""The quota for partitions that are created or deleted per second (KIP-599)."""

CLIENT_KEYS: Mapping[str, bool] = MappingProxyType(
    {PRODUCE_RATE: True, FETCH_RATE: True, REQUEST_SHARE: False, MUTATION_RATE: False}
)
"""The quotas of users and client ids: bytes per second, per cent of one thread, and partitions per
second. True if the value must be whole."""

EXACT, DEFAULT, ANY_NAME = 0, 1, 2
"""The ways in which a filter matches the names of a type: one name, the default, or all
(KIP-546).
"""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""An entity: its types in alphabetic order, each with its name."""


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity with these types and names, in whatever order they come."""
    return tuple(sorted(parts, key=lambda part: part[0]))


def entity_text(entity: QuotaEntity) -> str:
    """Return an entity as people read it, such as `user shop, default client-id`."""
    return ", ".join(
        f"default {kind}" if name is None else f"{kind} {name}" for kind, name in reversed(entity)
    )
