"""Makes the next snapshot from a cycle's reading, the history of offsets and the last snapshot.

This module is pure. A cell is one group in one partition. If a source failed, the snapshot keeps
its last values and marks them as old. Cells are then `end_unknown` and keep their last lag. Brokers
are shown as not answering. Parts keep their last details with the time of these details.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from monitor.assembly.cluster_views import broker_views, min_in_sync_of, move_views
from monitor.assembly.readers import Context, Memory, group_view
from monitor.assembly.stale import resting, unread, without_kafka
from monitor.state.progress import ProgressMemory, Work, collector_work, stream_work
from monitor.state.reading import (
    GroupReading,
    KafkaReading,
    PartAnswer,
    Reading,
    SupervisedPart,
    TopicReading,
)
from monitor.state.snapshot import (
    FollowerView,
    GroupView,
    PartitionView,
    PartView,
    Snapshot,
    TopicView,
)
from monitor.state.watches import StillFile
from monitor.views import render
from monitor.views.collectors import judge
from protocol.types import TopicPartition

COLUMNS_FROM = 500
"""The number of cells from which a group is kept in columns even if it is polled often."""


def assemble(
    reading: Reading,
    previous: Snapshot | None,
    memory: Memory,
    progress: ProgressMemory,
    *,
    refresh_ms: int,
    bootstrap_servers: str,
    stream_group: str,
) -> Snapshot:
    """Return the snapshot after this cycle, and add its offsets and the parts' progress to `memory`
    and `progress`.
    """
    base = Snapshot(
        seq=1 if previous is None else previous.seq + 1,
        taken_at_ms=reading.now_ms,
        refresh_ms=refresh_ms,
        bootstrap_servers=bootstrap_servers,
        parts=tuple(
            _supervised(_part(answer, previous, reading.now_ms), reading)
            for answer in reading.parts
        ),
        errors=reading.errors,
        config_problem=reading.supervisor.problem if reading.supervisor else None,
        config_notice=reading.supervisor.notice if reading.supervisor else None,
        round_ended=reading.supervisor.round_ended if reading.supervisor else None,
    )
    if reading.kafka is not None:
        remember(memory, reading.kafka)
        base = _with_kafka(base, reading.kafka, reading.parts, memory, previous, stream_group)
    elif previous is not None:
        base = without_kafka(base, previous)
    stuck = {one.part: one for one in progress.judge(_works(base, stream_group), reading.now_ms)}
    return replace(
        base,
        parts=tuple(replace(part, stuck=stuck.get(part.name)) for part in base.parts),
        disks=reading.disks,
        unparsed_share=_unparsed_share(base, memory),
        still_files=_still_files(base, memory),
    )


def _unparsed_share(base: Snapshot, memory: Memory) -> float | None:
    """Return the share of the last ten minutes' lines that did not parse; None if it is unknown.

    It is computed from the counts of MySQL and of the stream.
    """
    mysql, stream = base.part("mysql"), base.part("stream")
    if mysql is None or stream is None or not (mysql.reachable and stream.reachable):
        return None
    counted = [mysql.details.get(key) for key in ("lines_unparsed", "lines_set_aside")]
    known = [one for one in counted if isinstance(one, int)]
    unparsed = sum(known) if len(known) == len(counted) else None
    return memory.share.share(stream.details.get("lines_total"), unparsed, base.taken_at_ms)


def _still_files(base: Snapshot, memory: Memory) -> tuple[StillFile, ...] | None:
    collector = base.part("collector")
    if collector is None or not collector.reachable:
        return None
    return memory.files.still(render.file_rows(collector), base.taken_at_ms)


def _with_kafka(
    base: Snapshot,
    kafka: KafkaReading,
    parts: tuple[PartAnswer, ...],
    memory: Memory,
    previous: Snapshot | None,
    stream_group: str,
) -> Snapshot:
    sizes, followers = partition_sizes(parts), partition_followers(parts)
    partitions = {
        topic.name: frozenset(part.topic_partition for part in topic.partitions)
        for topic in kafka.topics
    }
    context = Context(kafka, memory, previous, stream_group, partitions)
    groups = _groups(context)
    brokers = broker_views(kafka, parts, previous)
    return replace(
        base,
        cluster_id=kafka.cluster_id,
        kafka_at_ms=kafka.at_ms,
        brokers=brokers,
        moves=move_views(context, parts, brokers),
        topics=tuple(_topic(topic, context, sizes, followers) for topic in kafka.topics),
        groups=groups,
        unseen=kafka.rested - {group.group_id for group in groups},
        quorum=kafka.quorum,
        quorum_error=kafka.quorum_error,
        collectors=None if kafka.collectors is None else judge(kafka.collectors, kafka.at_ms),
    )


def _groups(context: Context) -> tuple[GroupView, ...]:
    """Return all groups.

    Groups that were polled in this cycle have new values, and other groups their last values.
    """
    views = [_looked_at(group, context) for group in context.kafka.groups]
    before = context.previous.groups if context.previous else ()
    views += [resting(group) for group in before if group.group_id in context.kafka.rested]
    return tuple(sorted(views, key=lambda group: group.group_id))


def _looked_at(group: GroupReading, context: Context) -> GroupView:
    """Return a polled group with new values.

    The memory of a large group is packed before the next group is read, so that memory use stays
    low.
    """
    if group.error is not None:
        before = context.previous.group(group.group_id) if context.previous else None
        return unread(group, before, context.kind_of(group.group_id))
    view = group_view(group, context)
    if len(view.cells) < COLUMNS_FROM:
        return view
    context.memory.groups.rest(group.group_id)
    return resting(view)


def _works(snapshot: Snapshot, stream_group: str) -> Iterator[Work]:
    """Yield the unfinished work of each part whose progress can be measured, if it is known."""
    group = snapshot.group(stream_group)
    waits = {
        cell: cell.lag.lag if cell.lag.lag is not None else cell.lag.backlog
        for cell in (group.cells if group is not None else ())
    }
    if snapshot.part("stream") is not None and any(n is not None for n in waits.values()):
        commits = {(cell.topic, cell.partition): cell.committed_offset or 0 for cell in waits}
        where = [cell.topic for cell, lag in waits.items() if lag]
        yield stream_work("stream", commits, sum(filter(None, waits.values())), where)
    collector = snapshot.part("collector")
    if collector is not None and collector.reachable:
        work = collector_work("collector", collector.details, has_problems=bool(collector.problems))
        if work is not None:
            yield work


def remember(memory: Memory, kafka: KafkaReading) -> None:
    """Add a cycle's offsets to the history, and drop the partitions and groups that no longer
    exist.
    """
    for topic_partition, end in kafka.ends.items():
        memory.ends.add(topic_partition, kafka.at_ms, end)
    live = {part.topic_partition for topic in kafka.topics for part in topic.partitions}
    memory.ends.keep_only(live)
    memory.groups.keep({group.group_id for group in kafka.groups} | kafka.rested, kafka.rested)


def partition_sizes(parts: tuple[PartAnswer, ...]) -> dict[TopicPartition, int]:
    """Return bytes on disk by partition, from the statuses of the mill's own brokers."""
    sizes: dict[TopicPartition, int] = {}
    for part in parts:
        listed = part.status.details.get("partition_list") if part.status else None
        for row in listed if isinstance(listed, list) else ():
            if isinstance(row, dict) and isinstance(row.get("size_bytes"), int):
                key = TopicPartition(str(row.get("topic")), int(row.get("partition", -1)))
                sizes[key] = max(sizes.get(key, 0), row["size_bytes"])
    return sizes


Followers = Mapping[TopicPartition, tuple[FollowerView, ...]]


def partition_followers(parts: tuple[PartAnswer, ...]) -> Followers:
    """Return how far each follower is behind, as reported by the mill's own brokers."""
    found: dict[TopicPartition, tuple[FollowerView, ...]] = {}
    for part in parts:
        listed = part.status.details.get("partition_list") if part.status else None
        for row in listed if isinstance(listed, list) else ():
            if isinstance(row, dict) and row.get("role") == "leader" and row.get("followers"):
                key = TopicPartition(str(row.get("topic")), int(row.get("partition", -1)))
                found[key] = tuple(
                    FollowerView(one["node_id"], one.get("lag"), one.get("caught_up_ago_ms"))
                    for one in row["followers"]
                )
    return found


def _part(answer: PartAnswer, previous: Snapshot | None, now_ms: int) -> PartView:
    status = answer.status
    if status is not None:
        return PartView(
            name=answer.name,
            address=answer.address,
            reachable=True,
            state=str(status.state),
            ready=status.ready,
            error=None,
            answered_at_ms=now_ms,
            started_at_ms=status.started_at_ms or _server_start(status.details, now_ms),
            pid=status.pid or None,
            problems=tuple(problem.text for problem in status.problems),
            details=status.details,
            version=status.version,
        )
    before = previous.part(answer.name) if previous else None
    if before is None:
        return PartView(
            answer.name,
            answer.address,
            False,
            "down",
            False,
            answer.error,
            None,
            None,
            None,
            away_since_ms=now_ms,
        )
    return replace(
        before,
        reachable=False,
        state="down",
        ready=False,
        error=answer.error,
        pid=None,
        problems=(),
        away_since_ms=before.away_since_ms or now_ms,
    )


def _server_start(details: Mapping[str, object], now_ms: int) -> int | None:
    """Return when a database server started; None if it does not report its uptime."""
    uptime_s = details.get("uptime_s")
    return now_ms - uptime_s * 1000 if isinstance(uptime_s, int) else None


def _supervised(part: PartView, reading: Reading) -> PartView:
    """Return the part with the supervisor's report about it.

    If the part gave no start time, the start time of that report is used.
    """
    known: SupervisedPart | None = None
    if reading.supervisor is not None:
        known = reading.supervisor.parts.get(part.name)
    if known is None:
        return part
    started_at_ms = part.started_at_ms
    if started_at_ms is None and part.reachable and known.uptime_ms is not None:
        started_at_ms = reading.now_ms - known.uptime_ms
    return replace(
        part,
        started_at_ms=started_at_ms,
        pid=known.pid or part.pid,
        restarts=known.restarts,
        words=known.words,
        supervised=known.state,
        turn=known.reason or None if known.awaits_its_turn else None,
        memory_bytes=known.memory_bytes,
    )


def _topic(
    topic: TopicReading,
    context: Context,
    sizes: Mapping[TopicPartition, int],
    followers: Followers,
) -> TopicView:
    kafka = context.kafka
    min_in_sync = min_in_sync_of(topic.name, kafka)
    rows = [
        PartitionView(
            topic=topic.name,
            partition=part.topic_partition.partition,
            leader=part.leader,
            replicas=part.replicas,
            in_sync_replicas=part.in_sync_replicas,
            log_start_offset=kafka.starts.get(part.topic_partition),
            log_end_offset=kafka.ends.get(part.topic_partition),
            size_bytes=sizes.get(part.topic_partition),
            write_rate=context.write_rate(part.topic_partition),
            error=kafka.partition_errors.get(part.topic_partition),
            min_in_sync=min_in_sync,
            followers=followers.get(part.topic_partition, ()),
            adding_replicas=part.adding_replicas,
            removing_replicas=part.removing_replicas,
        )
        for part in topic.partitions
    ]
    config = {
        key: (entry.value, entry.source)
        for key, entry in kafka.topic_configs.get(topic.name, {}).items()
    }
    return TopicView(topic.name, topic.topic_id, topic.internal, tuple(rows), config)
