"""Polls the brokers and the other parts of the mill once a cycle, for all pages.

Commits are read before log starts and ends, so that a record that arrives in between can only
overstate a lag. Every request has a deadline. A failure leaves its reason in the reading and does
not stop the cycle.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from monitor.asking.brokers import (
    FAILURES,
    NodeAnswer,
    address_of,
    ask_nodes,
    ask_quorum,
    node_readings,
    quorum_view,
    say,
    voter_addresses,
)
from monitor.asking.collectors import CollectorReports
from monitor.asking.disks import ask_disks
from monitor.asking.group_answers import group_reading
from monitor.asking.record_times import RecordTimes
from monitor.asking.supervised import ask_supervisor
from monitor.asking.topics import topic_readings
from monitor.asking.turns import Turns
from monitor.config.settings import split_address
from monitor.state.reading import (
    ConfigValue,
    GroupReading,
    KafkaReading,
    NodeReading,
    PartAnswer,
    Reading,
    SupervisorAnswer,
)
from monitor.state.snapshot import DiskView, SourceError
from protocol.client.admin import Admin
from protocol.client.admin_types import ConfigResource
from protocol.client.cluster import Cluster
from protocol.client.group import fetch_offsets_of_groups
from protocol.client.metadata import ClusterMetadata
from protocol.client.quorum_admin import QuorumInfo
from protocol.client.reassignment_admin import Reassignment, list_reassignments
from protocol.client.security import cluster_of
from protocol.errors import ErrorCode
from protocol.log import fields
from protocol.security.cluster_security import ClusterEntry
from protocol.status import PartState, PartStatus, StatusUnavailable, fetch_status
from protocol.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    TopicPartition,
)
from sinks.config import SinksSettings
from sinks.errors import SinkUnavailable
from sinks.read import ask_mysql, ask_redis

PART_TIMEOUT_S = 1.5
KAFKA_TIMEOUT_MS = 2_000
SILENT_TIMEOUT_MS = 500
"""The time-out of the remaining requests of a cycle after a broker did not answer."""

CYCLE_TIMEOUT_S = 8.0
GROUPS_MAX = 500
CONFIGS_EVERY_MS = 60_000
CONFIG_TOPICS_MAX = 500
CONFIG_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}

logger = logging.getLogger(__name__)


class Poller:
    """The source of readings. `read` raises no error if a broker or a part does not answer."""

    def __init__(
        self,
        entry: ClusterEntry,
        parts: Mapping[str, str],
        sinks: SinksSettings | None = None,
        supervisor: str | None = None,
        disks: Mapping[str, Path] | None = None,
        stream_group: str = "",
    ) -> None:
        """Poll the group `stream_group` in every cycle, unless its name is empty."""
        self._disks = disks or {}
        self._supervisor = None if supervisor is None else Path(supervisor)
        self._entry = entry
        self._sinks = sinks or SinksSettings()
        self._parts = {
            name: split_address(url.removeprefix("http://")) for name, url in parts.items()
        }
        self._cluster: Cluster | None = None
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="status")
        self._stream_group = stream_group
        self._turns = Turns()
        self._rested: frozenset[str] = frozenset()
        self._times = RecordTimes()
        self._reports = CollectorReports()
        self._moving: Mapping[TopicPartition, Reassignment] = {}
        self._configs: Mapping[str, Mapping[str, ConfigValue]] = {}
        self._configs_at_ms = 0
        self._nodes: dict[int, str] = {}
        """The last address of each broker, including brokers that were taken out of service."""
        self._group_ids: tuple[str, ...] = ()
        self._left_out = 0
        self._timeout_ms = KAFKA_TIMEOUT_MS

    async def read(self, now_ms: int) -> Reading:
        """Poll all parts and all brokers once."""
        parts, kafka, supervisor, disks = await asyncio.gather(
            self._read_parts(),
            self._read_kafka(now_ms),
            self._read_supervisor(),
            self._read_disks(),
        )
        errors: tuple[SourceError, ...] = ()
        if isinstance(kafka, str):
            errors = (SourceError("brokers", kafka),)
        found = None if isinstance(kafka, str) else kafka
        return Reading(now_ms, parts, found, errors, supervisor, disks)

    async def close(self) -> None:
        """Close the connections to the brokers and let the threads end."""
        await self._reports.close()
        if self._cluster is not None:
            await self._cluster.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _read_parts(self) -> tuple[PartAnswer, ...]:
        loop = asyncio.get_running_loop()
        asked = [
            loop.run_in_executor(self._threads, _ask_part, name, host, port)
            for name, (host, port) in self._parts.items()
        ]
        if (mysql := self._sinks.mysql) is not None:
            address = f"{mysql.host}:{mysql.port}"
            asked.append(
                loop.run_in_executor(
                    self._threads, _ask_sink, "mysql", address, partial(ask_mysql, mysql)
                )
            )
        if (redis := self._sinks.redis) is not None:
            address = f"{redis.host}:{redis.port}"
            asked.append(
                loop.run_in_executor(
                    self._threads, _ask_sink, "redis", address, partial(ask_redis, redis)
                )
            )
        return tuple(await asyncio.gather(*asked))

    async def _read_supervisor(self) -> SupervisorAnswer | None:
        if self._supervisor is None:
            return None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, ask_supervisor, self._supervisor)

    async def _read_disks(self) -> tuple[DiskView, ...]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, ask_disks, self._disks)

    async def _read_kafka(self, now_ms: int) -> KafkaReading | str:
        try:
            return await asyncio.wait_for(self._ask_cluster(now_ms), CYCLE_TIMEOUT_S)
        except FAILURES as error:
            # No broker answered, so all lags are unknown and all groups must be polled again.
            self._turns.forget()
            return f"{self._entry}: {say(error)}"

    async def _ask_cluster(self, now_ms: int) -> KafkaReading:
        if self._cluster is None:
            cluster = cluster_of(
                self._entry,
                client_id="millrace-monitor",
                request_timeout_ms=KAFKA_TIMEOUT_MS,
            )
            try:
                await cluster.start(deadline_ms=KAFKA_TIMEOUT_MS)
            except BaseException:
                await cluster.close()
                raise
            self._cluster = cluster
        return await self._ask_kafka(self._cluster, now_ms)

    async def _ask_kafka(self, cluster: Cluster, now_ms: int) -> KafkaReading:
        admin = Admin(cluster)
        # Ask whether brokers are alive first, because this closes the connections to brokers that
        # do not answer. The requests below then go to other brokers.
        silent = await ask_nodes(cluster, self._nodes)
        is_any_silent = any(one.error for one in silent.values())
        self._timeout_ms = SILENT_TIMEOUT_MS if is_any_silent else KAFKA_TIMEOUT_MS
        metadata = await cluster.metadata(refresh=True)
        quorum = await ask_quorum(cluster, self._timeout_ms)
        self._heard(isinstance(quorum, QuorumInfo))
        topics = topic_readings(metadata, await self._reassignments(cluster))
        widest = sum(len(topic.partitions) for topic in topics if not topic.internal)
        # Read the commits before the ends, so that a record that arrives in between can only
        # overstate a lag.
        groups = await self._read_groups(cluster, admin, widest, now_ms)
        rows = [part.topic_partition for topic in topics for part in topic.partitions]
        starts, _ = await self._offsets(admin, rows, EARLIEST_TIMESTAMP)
        ends, errors = await self._offsets(admin, rows, LATEST_TIMESTAMP)
        widths = {topic.name: len(topic.partitions) for topic in topics}
        self._turns.note(groups, widths, errors.keys(), now_ms)
        times = await self._times.read(cluster, groups, self._group_ids, starts, ends)
        return KafkaReading(
            at_ms=now_ms,
            cluster_id=metadata.cluster_id,
            controller_id=metadata.controller_id,
            nodes=await self._read_nodes(cluster, metadata, quorum, silent),
            topics=topics,
            groups=groups,
            starts=starts,
            ends=ends,
            partition_errors=errors,
            record_timestamps=times,
            only_markers=self._times.only_markers,
            topic_configs=await self._topic_configs(
                admin, [topic.name for topic in topics], now_ms
            ),
            quorum=None if isinstance(quorum, str) else quorum_view(quorum, now_ms),
            quorum_error=quorum if isinstance(quorum, str) else None,
            rested=self._rested,
            collectors=await self._reports.read(cluster, starts, ends),
        )

    async def _reassignments(self, cluster: Cluster) -> Mapping[TopicPartition, Reassignment]:
        """Return the reassignments under way; without an answer, the last known ones."""
        with suppress(*FAILURES):
            self._moving = await list_reassignments(cluster, timeout_ms=self._timeout_ms)
        return self._moving

    async def _read_nodes(
        self,
        cluster: Cluster,
        metadata: ClusterMetadata,
        quorum: QuorumInfo | str,
        asked: dict[int, NodeAnswer],
    ) -> tuple[NodeReading, ...]:
        """Return every broker that metadata, a partition or the quorum names. `asked` has the
        answers of the brokers that were known before this cycle.
        """
        listed = {one.node_id: address_of(one) for one in metadata.brokers.values()}
        new = {node_id: at for node_id, at in listed.items() if self._nodes.get(node_id) != at}
        answers = asked | await ask_nodes(cluster, new)
        named = {
            node_id
            for topic in metadata.topics.values()
            for one in topic.partitions.values()
            for node_id in one.replicas
        }
        addresses = self._nodes | listed
        if not isinstance(quorum, str):
            named |= {one.node_id for one in (*quorum.voters, *quorum.observers)}
            addresses = voter_addresses(quorum) | addresses
        nodes = node_readings(metadata.brokers, answers, addresses, named)
        # Forget a broker that neither metadata, a partition nor the quorum names, because it was
        # removed.
        self._nodes = {
            one.node_id: one.address for one in nodes if one.is_listed or one.node_id in self._nodes
        }
        return nodes

    async def _topic_configs(
        self, admin: Admin, names: list[str], now_ms: int
    ) -> Mapping[str, Mapping[str, ConfigValue]]:
        """Return the topics' settings, which are read once a minute. If a read fails, return the
        last ones.
        """
        if now_ms - self._configs_at_ms < CONFIGS_EVERY_MS and self._configs:
            return self._configs
        resources = [ConfigResource.topic(name) for name in names[:CONFIG_TOPICS_MAX]]
        try:
            found = await admin.describe_configs(resources, timeout_ms=self._timeout_ms)
        except FAILURES:
            return self._configs
        self._configs_at_ms = now_ms
        self._configs = {
            resource.name: {
                entry.name: ConfigValue(
                    None if entry.is_sensitive else entry.value,
                    CONFIG_SOURCES.get(entry.source, f"source {entry.source}"),
                )
                for entry in entries.values()
            }
            for resource, entries in found.items()
        }
        return self._configs

    async def _read_groups(
        self, cluster: Cluster, admin: Admin, rows_at_most: int, now_ms: int
    ) -> tuple[GroupReading, ...]:
        listed = await admin.list_groups(timeout_ms=self._timeout_ms)
        states = {group.group_id: group.state for group in listed.groups}
        self._heard(not listed.failures)
        if listed.failures:
            # If a coordinator does not answer, its groups still exist, so keep the known ids.
            states = dict.fromkeys(self._group_ids, "") | states
        self._group_ids = watched(states, self._stream_group)
        if (left_out := len(states) - len(self._group_ids)) != self._left_out:
            self._left_out = left_out
            logger.warning("too many groups, so some are not polled", extra=fields(count=left_out))
        ids = self._turns.due(
            self._group_ids, now_ms, rows_at_most=rows_at_most, always=self._stream_group
        )
        self._rested = frozenset(self._group_ids) - frozenset(ids)
        offsets, described = await asyncio.gather(
            fetch_offsets_of_groups(cluster, ids, timeout_ms=self._timeout_ms),
            admin.describe_groups(ids, timeout_ms=self._timeout_ms),
        )
        return tuple(
            group_reading(group_id, states[group_id], offsets, described.get(group_id))
            for group_id in ids
        )

    async def _offsets(
        self, admin: Admin, rows: list[TopicPartition], which: int
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        answers = await admin.list_offsets(dict.fromkeys(rows, which), timeout_ms=self._timeout_ms)
        found = {row: at.offset for row, at in answers.items() if at.error is ErrorCode.NONE}
        errors = {
            row: at.error.name for row, at in answers.items() if at.error is not ErrorCode.NONE
        }
        self._heard(ErrorCode.NETWORK_EXCEPTION.name not in errors.values())
        return found, errors

    def _heard(self, is_whole: bool) -> None:
        """Shorten the time-out of the next requests if a broker did not answer this one."""
        if not is_whole:
            self._timeout_ms = SILENT_TIMEOUT_MS


def watched(group_ids: Collection[str], always: str) -> tuple[str, ...]:
    """Return the groups to poll in order: the first ones up to the limit, and `always` if that
    group exists.
    """
    found = sorted(group_ids)[:GROUPS_MAX]
    if always in group_ids and always not in found:
        found[-1] = always
    return tuple(found)


def _ask_part(name: str, host: str, port: int) -> PartAnswer:
    address = f"{host}:{port}"
    try:
        return PartAnswer(name, address, fetch_status(host, port, PART_TIMEOUT_S))
    except StatusUnavailable as error:
        return PartAnswer(name, address, None, str(error))


def _ask_sink(name: str, address: str, ask: Callable[[], Mapping[str, object]]) -> PartAnswer:
    """Ask MySQL or Redis, which have no `/status`: the server is up if it answers a query."""
    now_ms = time.time_ns() // 1_000_000
    try:
        details = ask()
    except SinkUnavailable as error:
        return PartAnswer(name, address, None, error.reason)
    status = PartStatus(
        name, PartState.RUNNING, ready=True, started_at_ms=0, now_ms=now_ms, details=details, pid=0
    )
    return PartAnswer(name, address, status)
