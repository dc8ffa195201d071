"""Asks brokers and parts, once a cycle; the monitor's only network file beside its own pages.

Commits are read before starts and ends, so that a race can only overstate a lag. Every question
has a deadline, and what fails leaves a reason behind instead of stopping the cycle.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil

from monitor.config import split_address
from monitor.reading import (
    Commit,
    GroupReading,
    KafkaReading,
    MemberReading,
    NodeReading,
    PartAnswer,
    PartitionReading,
    Reading,
    SupervisedPart,
    SupervisorAnswer,
    TopicReading,
)
from monitor.snapshot import SourceError
from protocol.client.admin import Admin
from protocol.client.admin_types import GroupDescription
from protocol.client.assignment import decode_assignment
from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError
from protocol.client.group import OffsetAndMetadata, fetch_offsets_of_groups
from protocol.client.group_requests import PROTOCOL_TYPE
from protocol.control import NoSupervisor, ask
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.status import PartState, PartStatus, StatusUnavailable, fetch_status
from protocol.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ZERO_UUID,
    TopicPartition,
    uuid_to_base64,
)
from protocol.wire.records import iterate_batches
from sinks.config import SinksSettings
from sinks.errors import SinkUnavailable
from sinks.read import ask_mysql, ask_redis

PART_TIMEOUT_S = 1.5
KAFKA_TIMEOUT_MS = 2_000
CYCLE_TIMEOUT_S = 8.0
TIMESTAMP_LOOKUPS_MAX = 64
TIMESTAMPS_KEPT_MAX = 10_000
GROUPS_MAX = 500
SUPERVISOR_TIMEOUT_S = 1.5

Answer = TypeVar("Answer")
GroupOffsets = Mapping[TopicPartition, OffsetAndMetadata] | ApiError | ClientError
FAILURES = (ApiError, ClientError, WireError, OSError, TimeoutError)


class Collector:
    """Reads the mill; `read()` never raises for a source that is away."""

    def __init__(
        self,
        bootstrap_servers: str,
        parts: Mapping[str, str],
        sinks: SinksSettings | None = None,
        supervisor: str | None = None,
    ) -> None:
        self._supervisor = None if supervisor is None else Path(supervisor)
        self._bootstrap_servers = bootstrap_servers
        self._sinks = sinks or SinksSettings()
        self._parts = {
            name: split_address(url.removeprefix("http://")) for name, url in parts.items()
        }
        self._cluster: Cluster | None = None
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="status")
        self._timestamps: dict[tuple[TopicPartition, int], int] = {}
        self._last_commits: dict[tuple[str, TopicPartition], int] = {}

    async def read(self, now_ms: int) -> Reading:
        """One cycle over all parts and all brokers."""
        parts, kafka, supervisor = await asyncio.gather(
            self._read_parts(), self._read_kafka(now_ms), self._read_supervisor()
        )
        errors: tuple[SourceError, ...] = ()
        if isinstance(kafka, str):
            errors = (SourceError("brokers", kafka),)
        return Reading(now_ms, parts, None if isinstance(kafka, str) else kafka, errors, supervisor)

    async def close(self) -> None:
        """Leave the brokers and let the threads end."""
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

    async def _read_kafka(self, now_ms: int) -> KafkaReading | str:
        try:
            return await asyncio.wait_for(self._ask_cluster(now_ms), CYCLE_TIMEOUT_S)
        except FAILURES as error:
            return f"{self._bootstrap_servers}: {_say(error)}"

    async def _ask_cluster(self, now_ms: int) -> KafkaReading:
        if self._cluster is None:
            cluster = Cluster(
                self._bootstrap_servers,
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
        metadata = await cluster.metadata(refresh=True)
        groups = await self._read_groups(cluster, admin)
        topics = tuple(
            TopicReading(
                name=name,
                topic_id=None if topic.topic_id == ZERO_UUID else uuid_to_base64(topic.topic_id),
                internal=topic.is_internal,
                partitions=tuple(
                    PartitionReading(
                        TopicPartition(name, index),
                        None if part.leader_id < 0 else part.leader_id,
                        tuple(part.replicas),
                        tuple(part.isr),
                    )
                    for index, part in sorted(topic.partitions.items())
                ),
            )
            for name, topic in sorted(metadata.topics.items())
        )
        rows = [part.topic_partition for topic in topics for part in topic.partitions]
        starts, _ = await self._offsets(admin, rows, EARLIEST_TIMESTAMP)
        ends, errors = await self._offsets(admin, rows, LATEST_TIMESTAMP)
        nodes = await asyncio.gather(
            *(
                self._ask_node(cluster, node.node_id, f"{node.host}:{node.port}")
                for node in metadata.brokers.values()
            )
        )
        return KafkaReading(
            at_ms=now_ms,
            cluster_id=metadata.cluster_id,
            controller_id=metadata.controller_id,
            nodes=tuple(nodes),
            topics=topics,
            groups=groups,
            starts=starts,
            ends=ends,
            partition_errors=errors,
            record_timestamps=await self._record_timestamps(cluster, groups, starts, ends),
        )

    async def _ask_node(self, cluster: Cluster, node_id: int, address: str) -> NodeReading:
        """Listed is not alive: a broker counts as alive when it answers itself."""
        error = await _reason(cluster.request(node_id, ApiVersionsRequest(), timeout_ms=1_000))
        return NodeReading(node_id, address, error)

    async def _read_groups(self, cluster: Cluster, admin: Admin) -> tuple[GroupReading, ...]:
        listed = await admin.list_groups(timeout_ms=KAFKA_TIMEOUT_MS)
        known = {group.group_id: group for group in listed.groups}
        ids = sorted(known)[:GROUPS_MAX]
        offsets, described = await asyncio.gather(
            fetch_offsets_of_groups(cluster, ids, timeout_ms=KAFKA_TIMEOUT_MS),
            admin.describe_groups(ids, timeout_ms=KAFKA_TIMEOUT_MS),
        )
        return tuple(
            group_reading(group_id, known[group_id].state, offsets, described.get(group_id))
            for group_id in ids
        )

    async def _offsets(
        self, admin: Admin, rows: list[TopicPartition], which: int
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        answers = await admin.list_offsets(dict.fromkeys(rows, which), timeout_ms=KAFKA_TIMEOUT_MS)
        found = {row: at.offset for row, at in answers.items() if at.error is ErrorCode.NONE}
        errors = {
            row: at.error.name for row, at in answers.items() if at.error is not ErrorCode.NONE
        }
        return found, errors

    async def _record_timestamps(
        self,
        cluster: Cluster,
        groups: Iterable[GroupReading],
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[tuple[TopicPartition, int], int]:
        """Timestamps of the records at which readers stand still, each read once.

        A moving reader's age comes from the offsets' history, to within a cycle; reading a record
        for it each cycle would cost a batch per partition for nothing.
        """
        wanted: set[tuple[TopicPartition, int]] = set()
        commits: dict[tuple[str, TopicPartition], int] = {}
        for group in groups:
            for row, commit in group.commits.items():
                commits[group.group_id, row] = commit.offset
                offset = max(commit.offset, starts.get(row, 0))
                stands = self._last_commits.get((group.group_id, row)) == commit.offset
                if stands and offset < ends.get(row, -1):
                    wanted.add((row, offset))
        self._last_commits = commits
        known = {key: ts for key, ts in self._timestamps.items() if key in wanted}
        for row, offset in sorted(wanted - known.keys())[:TIMESTAMP_LOOKUPS_MAX]:
            timestamp_ms = await self._timestamp_at(cluster, row, offset)
            if timestamp_ms is not None:
                known[row, offset] = timestamp_ms
        self._timestamps = dict(list(known.items())[-TIMESTAMPS_KEPT_MAX:])
        return known

    async def _timestamp_at(self, cluster: Cluster, row: TopicPartition, offset: int) -> int | None:
        """First timestamp of the batch that holds `offset`; None where it cannot be read."""
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1,
            topics=[
                FetchTopic(
                    topic=row.topic,
                    partitions=[
                        FetchPartition(
                            partition=row.partition, fetch_offset=offset, partition_max_bytes=1
                        )
                    ],
                )
            ],
        )
        try:
            leader = await cluster.leader(row)
            answer = await cluster.request(leader, request)
        except FAILURES:
            return None
        for topic in answer.responses:
            for part in topic.partitions:
                for header, _ in iterate_batches(part.records or b""):
                    if header.last_offset >= offset:
                        return header.base_timestamp
        return None


def group_reading(
    group_id: str,
    state: str,
    offsets: Mapping[str, GroupOffsets],
    described: GroupDescription | None,
) -> GroupReading:
    """One group of what was asked of its coordinator; what was not answered is None."""
    found = offsets.get(group_id, {})
    if isinstance(found, Exception):
        return GroupReading(group_id, state or "Unknown", None, {}, _say(found))
    commits = {row: Commit(commit.offset, commit.metadata) for row, commit in found.items()}
    if described is None or described.error is not ErrorCode.NONE:
        return GroupReading(group_id, state or "Unknown", None, commits)
    members = tuple(
        MemberReading(
            member.member_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            member.group_instance_id,
            _assignment(described.protocol_type, member.assignment),
        )
        for member in described.members
    )
    return GroupReading(
        group_id,
        described.state or state or "Unknown",
        members,
        commits,
        coordinator=described.coordinator_id if described.coordinator_id >= 0 else None,
        assignor=described.protocol or None,
    )


def _assignment(protocol_type: str, assignment: bytes) -> frozenset[TopicPartition]:
    """What a member reads; nothing where the group's protocol is not that of consumers."""
    if protocol_type != PROTOCOL_TYPE:
        return frozenset()
    try:
        return decode_assignment(assignment)
    except (WireError, ValueError):
        return frozenset()


def ask_supervisor(path: Path) -> SupervisorAnswer | None:
    """What the supervisor says; None where none answers, as in a mill that is going down."""
    try:
        found = ask(path, {"command": "status"}, SUPERVISOR_TIMEOUT_S)
    except (NoSupervisor, OSError, json.JSONDecodeError):
        return None
    return SupervisorAnswer(
        problem=found.get("config_problem"),
        notice=found.get("config_notice"),
        parts={
            str(one["part"]): SupervisedPart(
                state=str(one["state"]),
                reason=str(one.get("reason") or ""),
                words=one.get("words"),
                restarts=int(one.get("restarts") or 0),
                uptime_ms=one.get("uptime_ms"),
                pid=one.get("pid"),
                memory_bytes=_memory_of(one.get("pid")),
            )
            for one in found.get("parts", ())
        },
    )


def _memory_of(pid: int | None) -> int | None:
    """Resident bytes of a part and of what it started."""
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        return sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))
    except psutil.Error:
        return None


def _ask_part(name: str, host: str, port: int) -> PartAnswer:
    address = f"{host}:{port}"
    try:
        return PartAnswer(name, address, fetch_status(host, port, PART_TIMEOUT_S))
    except StatusUnavailable as error:
        return PartAnswer(name, address, None, str(error))


def _ask_sink(name: str, address: str, ask: Callable[[], Mapping[str, object]]) -> PartAnswer:
    """A server that is not ours has no `/status`: it is up when a reader gets an answer."""
    now_ms = time.time_ns() // 1_000_000
    try:
        details = ask()
    except SinkUnavailable as error:
        return PartAnswer(name, address, None, error.reason)
    status = PartStatus(
        name, PartState.RUNNING, ready=True, started_at_ms=0, now_ms=now_ms, details=details, pid=0
    )
    return PartAnswer(name, address, status)


async def _reason(question: Awaitable[Answer]) -> str | None:
    try:
        await question
    except FAILURES as error:
        return _say(error)
    return None


def _say(error: BaseException) -> str:
    return str(error) or type(error).__name__
