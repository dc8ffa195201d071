"""Describe and change settings of topics, brokers and groups."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from appliance.output import CommandError, Exit
from protocol.client.admin import Admin
from protocol.client.admin_types import ConfigEntry, ConfigResource, ConfigSource, ResourceType
from protocol.client.cluster import Cluster
from protocol.client.group_admin import list_groups
from protocol.client.topic_details import describe_topics, list_topics
from protocol.errors import ApiError, ErrorCode

DEFAULT_NAME = ""
"""The resource name that stands for the default of all brokers."""

DYNAMIC_SOURCES = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ResourceType.BROKER_LOGGER: ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    ResourceType.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    ResourceType.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
}

_SETTING = re.compile(r"(?P<name>[^=,]+)=(?:\[(?P<list>[^\]]*)\]|(?P<value>[^,]*))(?:,|\Z)")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one resource, sorted by name."""

    resource: ConfigResource
    entries: tuple[ConfigEntry, ...]


async def names_of(cluster: Cluster, kind: ResourceType) -> list[str]:
    """Return the names of all resources of a kind.

    For brokers the list includes the empty name, which is the cluster-wide default.
    """
    if kind is ResourceType.TOPIC:
        return sorted(await list_topics(cluster))
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        brokers = (await cluster.metadata((), refresh=True)).brokers
        ids = [str(node_id) for node_id in sorted(brokers)]
        return [*ids, DEFAULT_NAME] if kind is ResourceType.BROKER else ids
    if kind is ResourceType.GROUP:
        return [one.group_id for one in (await list_groups(cluster)).groups]
    return []


async def describe(cluster: Cluster, resource: ConfigResource, *, all_sources: bool) -> Settings:
    """Return the settings that were set for the resource itself or, with `all_sources`, all
    settings in effect for it.

    Raises CommandError for a topic or broker that does not exist, and ApiError if the broker
    rejects the request.
    """
    await _refuse_missing(cluster, resource, "doesn't exist and doesn't have dynamic config")
    found = await Admin(cluster).describe_configs([resource], with_synonyms=True)
    source = source_of(resource)
    entries = found.get(resource, {}).values()
    return Settings(
        resource,
        tuple(
            sorted(
                (one for one in entries if all_sources or one.source == source),
                key=lambda one: one.name,
            )
        ),
    )


def source_of(resource: ConfigResource) -> ConfigSource:
    """Return the source of settings that were set for the resource itself."""
    if resource.type is ResourceType.BROKER and resource.name == DEFAULT_NAME:
        return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return DYNAMIC_SOURCES[resource.type]


async def _refuse_missing(cluster: Cluster, resource: ConfigResource, words: str) -> None:
    """Raise CommandError for a topic or broker that does not exist.

    Without this check the client would retry until its timeout, because a broker can briefly report
    a new topic as missing.
    """
    name = resource.name
    if resource.type is ResourceType.TOPIC:
        details = (await describe_topics(cluster, [name]))[name]
        if details.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommandError(f"The topic '{name}' {words}.", Exit.NOT_FOUND)
        if details.error:
            raise ApiError(details.error, f"topic {name!r}: {details.error.description}")
    is_broker = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
    if is_broker and name != DEFAULT_NAME:
        if not name.isdecimal():
            raise CommandError(f"found broker {name!r}, expected a number", Exit.USAGE)
        if int(name) not in (await cluster.metadata((), refresh=True)).brokers:
            raise CommandError(f"The broker '{name}' {words}.", Exit.NOT_FOUND)


async def alter(
    cluster: Cluster,
    resource: ConfigResource,
    changes: Mapping[str, str | None],
    *,
    validate_only: bool = False,
) -> None:
    """Change settings. The value None removes a setting. Raises the same errors as `describe`."""
    await _refuse_missing(cluster, resource, "does not exist")
    await Admin(cluster).alter_configs({resource: changes}, validate_only=validate_only)


def parse_settings(text: str) -> dict[str, str]:
    """Parse `k1=v1,k2=[a,b]` into names and values. Raises CommandError."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _SETTING.match(text, position)
        if match is None:
            expected = "expected key=value, or key=[a,b] for a list, and commas between"
            raise CommandError(f"found {text[position:]!r}, {expected}", Exit.USAGE)
        value = match["list"] if match["list"] is not None else match["value"]
        found[match["name"].strip()] = value.strip()
        position = match.end()
    return found


def source_name(number: int) -> str:
    """Return Kafka's name of the source of a setting."""
    try:
        return ConfigSource(number).name
    except ValueError:
        return ConfigSource.UNKNOWN.name
