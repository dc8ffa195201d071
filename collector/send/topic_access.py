"""Create the topics that are missing and read their limits, as far as the collector's user may."""

from collections.abc import Collection, Mapping, Sequence

from collector.config.limits import DEFAULT_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from collector.send.rights import creation_denied, denial_of, topic_denied
from protocol.client.admin import Admin
from protocol.client.admin_types import ConfigResource, TopicSpec
from protocol.client.cluster import Cluster
from protocol.errors import ApiError, ErrorCode

START_TIMEOUT_MS = 10_000


class TopicAccess:
    """The topics of one collector. `positions` is the topic that it also reads."""

    def __init__(self, cluster: Cluster, admin: Admin, user: str | None, positions: str):
        self.limits: dict[str, int] = {}
        """The batch limits of the topics that exist."""
        self._cluster = cluster
        self._admin = admin
        self._user = user
        self._positions = positions

    async def ensure(self, specs: Sequence[TopicSpec]) -> dict[str, str]:
        """Create the topics that are missing. Return the topics that are not accessible, each with
        the reason. Raises ClientError or ApiError."""
        try:
            await self._admin.ensure_topics(specs, timeout_ms=START_TIMEOUT_MS)
        except ApiError as error:
            if denial_of(error) is None:
                raise
            if len(specs) == 1:
                return {specs[0].name: await self._why_denied(specs[0])}
            # One topic without rights must not keep the collector from the others.
            denied: dict[str, str] = {}
            for spec in specs:
                denied |= await self.ensure([spec])
            return denied
        return {}

    async def _why_denied(self, spec: TopicSpec) -> str:
        found = await self._cluster.metadata([spec.name], timeout_ms=START_TIMEOUT_MS)
        if found.topics[spec.name].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return creation_denied(self._user, spec.name, spec.partitions)
        operations = "read,write" if spec.name == self._positions else "write"
        return topic_denied(self._user, spec.name, operations)

    async def read_limits(self, names: Collection[str]) -> dict[str, int]:
        """Store the batch limits of topics, and return the limits that are defaults. A topic whose
        settings the collector may not read keeps the limit that is Kafka's default."""
        unset: dict[str, int] = {}
        try:
            limits, unset = await batch_limits(self._admin, names, START_TIMEOUT_MS)
        except ApiError as error:
            if denial_of(error) is None:
                raise
            if len(names) > 1:
                for name in names:
                    unset |= await self.read_limits([name])
            return unset
        self.limits |= limits
        return unset


async def batch_limits(
    admin: Admin, names: Collection[str], timeout_ms: int | None = None
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the batch limits of topics, and those of them that are defaults. Raises ApiError."""
    resources = [ConfigResource.topic(name) for name in names]
    found = await admin.describe_configs(resources, [MAX_MESSAGE_BYTES], timeout_ms=timeout_ms)
    limits: dict[str, int] = {}
    unset: dict[str, int] = {}
    for resource, entries in found.items():
        entry = entries.get(MAX_MESSAGE_BYTES)
        value = DEFAULT_MESSAGE_BYTES if entry is None else int(entry.value or 0)
        limits[resource.name] = value
        if entry is not None and entry.is_default:
            unset[resource.name] = value
    return limits, unset


async def set_batch_limits(
    admin: Admin, limits: Mapping[str, int], timeout_ms: int | None = None
) -> None:
    """Set the batch limits of topics. Raises ClientError and ApiError."""
    changes = {
        ConfigResource.topic(topic): {MAX_MESSAGE_BYTES: str(limit)}
        for topic, limit in limits.items()
    }
    await admin.alter_configs(changes, timeout_ms=timeout_ms)
