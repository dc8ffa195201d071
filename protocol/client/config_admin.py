"""Reads and changes settings of topics and brokers."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from protocol.client.admin_types import ConfigEntry, ConfigResource, ConfigSynonym, ResourceType
from protocol.client.errors import raise_for
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster

_SET = 0
_DELETE = 1


async def describe_configs(
    cluster: "Cluster",
    resources: Collection[ConfigResource],
    names: Collection[str] | None = None,
    *,
    with_synonyms: bool = False,
    timeout_ms: int | None = None,
) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    """Return the settings in effect (`names` None: all).

    Raises ApiError for the first resource that the broker refuses.
    """

    async def attempt(left_ms: int) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
        for node_id, group in _by_node(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None if names is None else list(names),
                    )
                    for resource in group
                ],
                include_synonyms=with_synonyms,
            )
            response: DescribeConfigsResponse = await cluster.request(
                node_id, request, timeout_ms=left_ms
            )
            for result in response.results:
                resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
                raise_for(result.error_code, _named(resource, result.error_message))
                found[resource] = {
                    entry.name: ConfigEntry(
                        entry.name,
                        entry.value,
                        entry.config_source,
                        entry.read_only,
                        entry.is_sensitive,
                        tuple(
                            ConfigSynonym(one.name, one.value, one.source) for one in entry.synonyms
                        ),
                    )
                    for entry in result.configs
                }
        return found

    return await cluster.repeat(attempt, timeout_ms)


async def alter_configs(
    cluster: "Cluster",
    changes: Mapping[ConfigResource, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> None:
    """Change settings; None restores the default. Settings that are not named do not change.

    Raises ApiError for the first resource that the broker refuses.
    """

    async def attempt(left_ms: int) -> None:
        for node_id, group in _by_node(changes).items():
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            AlterableConfig(
                                name=name,
                                config_operation=_DELETE if value is None else _SET,
                                value=value,
                            )
                            for name, value in changes[resource].items()
                        ],
                    )
                    for resource in group
                ],
                validate_only=validate_only,
            )
            response: IncrementalAlterConfigsResponse = await cluster.request(
                node_id, request, timeout_ms=left_ms
            )
            for result in response.responses:
                resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
                raise_for(result.error_code, _named(resource, result.error_message))

    await cluster.repeat(attempt, timeout_ms)


def _by_node(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Group resources by the broker to ask.

    The settings of a broker are requested from that broker, all others from any broker.
    """
    by_node: dict[int | None, list[ConfigResource]] = defaultdict(list)
    for resource in resources:
        own = resource.type != ResourceType.TOPIC and resource.name.isdecimal()
        by_node[int(resource.name) if own else None].append(resource)
    return by_node


def _named(resource: ConfigResource, message: str | None) -> str | None:
    return f"{resource.type.name.lower()} {resource.name}: {message}" if message else None
