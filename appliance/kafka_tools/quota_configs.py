"""Client quotas in `kafka-configs`, in Kafka's spelling."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from appliance.kafka.records import java_text
from appliance.kafka_tools.base import UsageFault
from appliance.output import CommandError, Exit, out
from protocol.client.cluster import Cluster
from protocol.client.quota_admin import alter_quotas, any_name, describe_quotas, exactly
from protocol.errors import ApiError
from protocol.security.quota import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_RATE,
    IP,
    USER,
    QuotaEntity,
    entity_of,
)

QUOTA_KEYS = frozenset(CLIENT_KEYS)
"""Kafka's keys of quotas for users and clients."""

IP_KEYS = frozenset({CONNECTION_RATE})

USERS, CLIENTS, IPS = "users", "clients", "ips"

KINDS = {USERS: USER, CLIENTS: CLIENT_ID, IPS: IP}
SHOWN = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}

Named = Sequence[tuple[str, str | None]]
"""The entity types in a command, each with a name. An empty name is the default, and None stands
for all names."""


async def describe(cluster: Cluster, named: Named) -> None:
    """Print the quotas of the entities that have exactly the named types."""
    components = [
        any_name(KINDS[kind]) if name is None else exactly(KINDS[kind], name or None)
        for kind, name in named
    ]
    try:
        found = await describe_quotas(cluster, components, is_strict=True)
    except ApiError as error:
        raise CommandError(error.message, Exit.FAILED) from error
    for entity, values in sorted(found.items(), key=repr):
        shown = ", ".join(
            f"{key}={java_text(Decimal(repr(value)))}" for key, value in sorted(values.items())
        )
        out(f"Quota configs for {_entity_text(entity)} are {shown}")


def _entity_text(entity: QuotaEntity) -> str:
    names = dict(entity)
    return ", ".join(
        f"the default {SHOWN[kind]}" if names[kind] is None else f"{SHOWN[kind]} '{names[kind]}'"
        for kind in SHOWN
        if kind in names
    )


def quota_changes(changes: Mapping[str, str | None]) -> dict[str, float | None]:
    """Return the new values of quotas; None removes one. Raises UsageFault."""
    found: dict[str, float | None] = {}
    for key, value in changes.items():
        try:
            found[key] = None if value is None else float(value)
        except ValueError as error:
            raise UsageFault(
                f"Cannot parse quota configuration value for {key}: {value}"
            ) from error
    return found


def refuse_others(kind: str, changes: Mapping[str, str | None]) -> None:
    """Raise UsageFault for settings that are no quotas of this kind of entity."""
    known, quota = (IP_KEYS, "connection quota") if kind == IPS else (QUOTA_KEYS, "quota")
    others = [key for key in changes if key not in known]
    if others:
        done = "deleted" if all(changes[key] is None for key in others) else "added"
        raise UsageFault(
            f"Only {quota} configs can be {done} for '{kind}' using --bootstrap-server. Unexpected"
            f" config names: {', '.join(others)}"
        )


async def alter(cluster: Cluster, named: Named, changes: Mapping[str, float | None]) -> None:
    """Change the quotas of one entity."""
    entity = entity_of((KINDS[kind], name or None) for kind, name in named)
    try:
        present = await describe_quotas(
            cluster, [exactly(kind, name) for kind, name in entity], is_strict=True
        )
        missing = [
            key
            for key, value in changes.items()
            if value is None and key not in present.get(entity, {})
        ]
        if missing:
            raise CommandError(f"Invalid config(s): {','.join(missing)}", Exit.FAILED)
        await alter_quotas(cluster, entity, changes)
    except ApiError as error:
        raise CommandError(error.message, Exit.FAILED) from error
    kind, name = named[0]
    if name:
        out(f"Completed updating config for {kind.removesuffix('s')} {name}.")
    else:
        out(f"Completed updating default config for {kind} in the cluster.")
