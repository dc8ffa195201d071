"""Reads the cluster for the plan of a user's change, and carries the plan out.

One change runs at a time, with its own client and a time limit, so the sampler never waits for a
change. `operations` computes the plans; this module sends the requests.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from monitor.admin.operations import (
    GroupStanding,
    Led,
    Plan,
    TopicLogs,
    alteration,
    creation,
    deletion,
    election,
    resetting,
    rows_of,
)
from monitor.admin.orders import (
    AlterTopic,
    CreateTopic,
    DeleteRecords,
    ElectLeaders,
    Order,
    ResetOffsets,
)
from monitor.asking.brokers import FAILURES, say
from protocol.client.admin import Admin
from protocol.client.admin_types import ConfigResource, ConfigSource
from protocol.client.cluster import Cluster
from protocol.client.election_admin import ElectionType, elect_leaders
from protocol.client.group_offset_reset import Bounds, bounds_of, execute, partitions_of
from protocol.client.log_admin import delete_records
from protocol.client.security import cluster_of
from protocol.client.topic_details import TopicDetails, describe_topics, list_topics
from protocol.errors import ApiError, ErrorCode
from protocol.security.cluster_security import ClusterEntry
from protocol.types import TopicPartition

TIMEOUT_S = 15.0
REQUEST_TIMEOUT_MS = 5_000
Reader = tuple[str, int, int]
"""A group, a partition and the group's committed offset there."""


class OperationFailed(Exception):
    """A request to the cluster failed. The text says why, and whether the change can have been
    made.
    """


class Orders(Protocol):
    """An object that makes plans and carries them out: `Operator`, or a test's script."""

    async def look(self, order: Order, readers: Iterable[Reader]) -> Plan:
        """Return the plan for an order with the cluster's present state. Raise OperationFailed."""
        ...

    async def carry_out(self, plan: Plan) -> str:
        """Carry a plan out and return the outcome. Raise OperationFailed."""
        ...


class Operator:
    """Makes and carries out plans on the brokers of a cluster."""

    def __init__(self, entry: ClusterEntry, stream_group: str) -> None:
        self._entry = entry
        self._stream_group = stream_group
        self._one_at_a_time = asyncio.Lock()

    async def look(self, order: Order, readers: Iterable[Reader]) -> Plan:
        """Return the plan for an order with the cluster's present state. Raise OperationFailed."""
        async with self._cluster() as cluster:
            match order:
                case CreateTopic():
                    refused = await _refusal(
                        Admin(cluster).create_topics([order.spec], validate_only=True)
                    )
                    return creation(order, refused)
                case AlterTopic():
                    return await _look_at_settings(cluster, order)
                case DeleteRecords():
                    return deletion(order, await _logs(cluster, order), readers)
                case ResetOffsets():
                    return resetting(order, await _standing(cluster, order), self._stream_group)
                case ElectLeaders():
                    return election(order, await _led(cluster, order.topic))

    async def carry_out(self, plan: Plan) -> str:
        """Carry a plan out and return the outcome. Raise OperationFailed."""
        async with self._cluster() as cluster:
            admin = Admin(cluster)
            match plan.order:
                case CreateTopic(spec):
                    await admin.create_topics([spec])
                case AlterTopic(topic, changes, partitions):
                    if changes:
                        await admin.alter_configs({ConfigResource.topic(topic): changes})
                    if partitions is not None:
                        await admin.create_partitions({topic: partitions})
                case DeleteRecords():
                    return _outcomes(await delete_records(cluster, plan.offsets))
                case ResetOffsets(group_id, _, _):
                    await execute(cluster, group_id, plan.offsets)
                case ElectLeaders():
                    rows = rows_of(plan)
                    return _outcomes(await elect_leaders(cluster, ElectionType.PREFERRED, rows))
        return "done"

    @asynccontextmanager
    async def _cluster(self) -> AsyncIterator[Cluster]:
        """Return a client for one plan. Raise OperationFailed for every error that the brokers
        return.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S), self._one_at_a_time:
                cluster = cluster_of(
                    self._entry,
                    client_id="millrace-monitor-admin",
                    request_timeout_ms=REQUEST_TIMEOUT_MS,
                )
                try:
                    await cluster.start(deadline_ms=REQUEST_TIMEOUT_MS)
                    yield cluster
                finally:
                    await cluster.close()
        except TimeoutError as error:
            raise OperationFailed(
                f"the cluster has not answered within {TIMEOUT_S:.0f} s: check whether the change"
                " was made"
            ) from error
        except FAILURES as error:
            raise OperationFailed(say(error)) from error


async def _refusal(check: Awaitable[None]) -> str | None:
    """Return the brokers' reason to refuse a request that they only validate; None if they would
    accept it.
    """
    try:
        await check
    except ApiError as error:
        return error.message
    return None


async def _topic(cluster: Cluster, name: str) -> TopicDetails | None:
    """Return a topic; None if it does not exist. Raise ApiError."""
    found = (await describe_topics(cluster, [name]))[name]
    if found.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        return None
    if found.error:
        raise ApiError(found.error, f"topic {name!r}: {found.error.description}")
    return found


async def _settings(cluster: Cluster, topic: str) -> dict[str, tuple[str | None, str]]:
    resource = ConfigResource.topic(topic)
    entries = (await Admin(cluster).describe_configs([resource])).get(resource, {})
    return {
        name: (None if one.is_sensitive else one.value, _source(one.source))
        for name, one in entries.items()
    }


def _source(number: int) -> str:
    try:
        return ConfigSource(number).name
    except ValueError:
        return ConfigSource.UNKNOWN.name


async def _look_at_settings(cluster: Cluster, order: AlterTopic) -> Plan:
    topic = await _topic(cluster, order.topic)
    if topic is None:
        return alteration(order, None, {}, None)
    current = await _settings(cluster, order.topic)
    refused = None
    if order.changes:
        refused = await _refusal(
            Admin(cluster).alter_configs(
                {ConfigResource.topic(order.topic): order.changes}, validate_only=True
            )
        )
    return alteration(order, len(topic.partitions), current, refused)


async def _logs(cluster: Cluster, order: DeleteRecords) -> TopicLogs:
    topic = await _topic(cluster, order.topic)
    if topic is None:
        return TopicLogs(None)
    rows = [TopicPartition(order.topic, one.partition) for one in topic.partitions]
    policy, _ = (await _settings(cluster, order.topic)).get("cleanup.policy", (None, ""))
    is_compacted = "delete" not in (policy or "delete")
    try:
        bounds = await bounds_of(cluster, None, rows, order.below)
    except ApiError as error:
        unknown = {row.partition: Bounds(0, 0, None) for row in rows}
        return TopicLogs(unknown, is_compacted, (error.message,))
    return TopicLogs({row.partition: one for row, one in bounds.items()}, is_compacted)


async def _standing(cluster: Cluster, order: ResetOffsets) -> GroupStanding:
    described = (await Admin(cluster).describe_groups([order.group_id]))[order.group_id]
    if described.error:
        raise ApiError(described.error, f"group {order.group_id!r}: {described.error.description}")
    members = tuple(
        f"{one.client_id} at {one.client_host.removeprefix('/')}" for one in described.members
    )
    try:
        rows = await partitions_of(
            cluster, order.group_id, order.topics, all_topics=not order.topics
        )
        bounds = await bounds_of(cluster, order.group_id, rows, order.target)
    except (ApiError, ValueError) as error:
        return GroupStanding(described.state, members, {}, say(error))
    return GroupStanding(described.state, members, bounds)


async def _led(cluster: Cluster, topic: str | None) -> list[Led] | None:
    if topic is not None and await _topic(cluster, topic) is None:
        return None
    details = await list_topics(cluster)
    return [
        Led(TopicPartition(name, one.partition), one.leader_id, one.replicas, one.in_sync_replicas)
        for name, found in sorted(details.items())
        if topic in (None, name)
        for one in found.partitions
    ]


def _outcomes(found: Mapping[TopicPartition, object]) -> str:
    """Return a sentence with the outcome of each partition: done, or refused with the reason."""
    errors = {
        row: outcome
        for row, outcome in found.items()
        if isinstance(outcome, Exception)
        and not (isinstance(outcome, ApiError) and outcome.code is ErrorCode.ELECTION_NOT_NEEDED)
    }
    if not errors:
        return "done"
    told = "; ".join(f"{row}: {say(error)}" for row, error in sorted(errors.items())[:5])
    raise OperationFailed(
        f"{len(found) - len(errors)} of {len(found)} partitions are done; refused: {told}"
    )
