"""Parses client quotas in the words of a command."""

import math
from collections.abc import Iterable

from appliance.output import CommandError, Exit
from protocol.client.cluster import Cluster
from protocol.client.quota_admin import describe_quotas, exactly
from protocol.security.quota import (
    CLIENT_ID,
    CONNECTION_RATE,
    FETCH_RATE,
    IP,
    MUTATION_RATE,
    PRODUCE_RATE,
    REQUEST_SHARE,
    USER,
    QuotaEntity,
    entity_of,
    entity_text,
)
from protocol.units import format_size_bytes, parse_size_bytes

WORDS = {
    "produce": PRODUCE_RATE,
    "consume": FETCH_RATE,
    "requests": REQUEST_SHARE,
    "mutations": MUTATION_RATE,
    "connections": CONNECTION_RATE,
}
"""The words for quotas in a command, and the key of Kafka for each."""

EXPECTED = (
    "produce=SIZE, consume=SIZE, requests=PERCENT, mutations=NUMBER or connections=NUMBER, such as"
    " produce=20MiB requests=50"
)


def entity_named(
    user: str | None = None,
    default_user: bool = False,
    client_id: str | None = None,
    default_client_id: bool = False,
    ip: str | None = None,
    default_ip: bool = False,
) -> QuotaEntity:
    """Return the entity that the options of a command name. Raises CommandError."""
    parts: list[tuple[str, str | None]] = []
    for kind, name, is_default in (
        (USER, user, default_user),
        (CLIENT_ID, client_id, default_client_id),
        (IP, ip, default_ip),
    ):
        if name is not None and is_default:
            raise CommandError(
                f"found both --{kind} and --default-{kind}, expected only one of them", Exit.USAGE
            )
        if name is not None or is_default:
            parts.append((kind, name))
    if not parts:
        raise CommandError(
            "found no option that says whose quota it is, expected --user, --default-user, "
            "--client-id, --default-client-id, --ip or --default-ip",
            Exit.USAGE,
        )
    return entity_of(parts)


def values_of(words: Iterable[str]) -> dict[str, float | None]:
    """Return the values by Kafka's key of words such as `produce=20MiB`. Raises CommandError."""
    found: dict[str, float | None] = {}
    for word in words:
        name, separator, text = word.partition("=")
        key = WORDS.get(name)
        if key is None or not separator:
            raise CommandError(f"found {word!r}, expected {EXPECTED}", Exit.USAGE)
        found[key] = _value(key, name, text)
    return found


def _value(key: str, name: str, text: str) -> float:
    try:
        is_size = key in (PRODUCE_RATE, FETCH_RATE)
        value = float(parse_size_bytes(text)) if is_size else float(text)
    except ValueError as error:
        raise CommandError(f"{name}: {error}", Exit.USAGE) from error
    if not math.isfinite(value) or value <= 0:
        raise CommandError(f"{name}: found {text}, expected more than 0", Exit.USAGE)
    return value


def keys_of(words: Iterable[str]) -> list[str]:
    """Return Kafka's keys of words such as `produce`; all keys without words. Raises
    CommandError."""
    words = list(words) or list(WORDS)
    for word in words:
        if word not in WORDS:
            raise CommandError(f"found {word!r}, expected {', '.join(WORDS)}", Exit.USAGE)
    return [WORDS[word] for word in words]


async def quotas_of(cluster: Cluster, entity: QuotaEntity) -> dict[str, float]:
    """Return the quotas of exactly this entity. Quotas of other entities that apply to it are not
    included."""
    components = [exactly(kind, name) for kind, name in entity]
    found = await describe_quotas(cluster, components, is_strict=True)
    return dict(found.get(entity, {}))


def row_of(entity: QuotaEntity, values: dict[str, float]) -> dict[str, object]:
    """Return one entity with its quotas as a row of a table."""
    row: dict[str, object] = {"for": entity_text(entity)}
    for word, key in WORDS.items():
        value = values.get(key)
        row[word] = None if value is None else shown(key, value)
    return row


def shown(key: str, value: float) -> str:
    """Return a quota with its unit."""
    if key == REQUEST_SHARE:
        return f"{value:g}%"
    if key in (CONNECTION_RATE, MUTATION_RATE):
        return f"{value:g}/s"
    return f"{format_size_bytes(int(value))}/s"
