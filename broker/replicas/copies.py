"""Decides which copies this broker may fetch at a moment, by a rate, a queue, the free disk space,
and pauses.

A copy is a partition on a CATCH_UP link (decision 0131). `followers` fetches it. This module never
delays a partition on DATA, an in-sync replica, or a replica that was caught up a moment ago,
because a leader can wait for it.

- Rate: while the follower's bucket is empty, the listed replicas are left out of requests.
- Queue: a few large copies run at a time (`replication/copy_queue`).
- Room: while the disk is nearly full, no copy runs that lacks much, because a full disk stops all
  partitions. A replica that lacks only a few bytes continues, because it is soon in sync again.
- Pauses: while other partitions are written, a link pauses between two requests
  (`replication/copy_pace`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from broker.replicas.copy_limit import CopyLimit
from broker.replicas.fetch_source import FetchSource
from broker.replicas.replica import Replica
from broker.replication.copy_queue import CopyQueue, QueueMove
from broker.replication.follower_steps import Key, PartitionId
from broker.replication.leader import REPLICA_LAG_TIME_MAX_MS
from broker.replication.tracked import CopyPause
from broker.sessions.peers import LinkKind
from broker.storage.disk import DiskSpace
from broker.world import World
from protocol.log import fields
from protocol.types import TopicPartition

logger = logging.getLogger(__name__)

WATCH_MS = 1_000
"""The time in milliseconds between two checks of the free space, while there are copies."""

ROOM_MIN_BYTES = 1 << 30
ROOM_MIN_SHARE = 20
"""The free space below which copies pause: 1 GiB, or on a small disk a twentieth of it."""

ROOM_COPY_BYTES = 1 << 20
"""The number of missing bytes above which a copy pauses for room."""

ZERO_RATE_CHECK_MS = 500
"""The time in milliseconds after which a copy with the rate 0 checks whether the rate has
changed."""

Placed: TypeAlias = Mapping[PartitionId, tuple[FetchSource, Key]]


@dataclass(frozen=True, slots=True)
class CopyState:
    """The state of one copy, for `/status`."""

    missing_bytes: int | None
    """An estimate of the bytes that the copy lacks; None while a job works on its log."""
    waits_for: CopyPause
    """The reasons why the copy waits; empty if it continues."""


class Copies:
    """The copies of this broker, from all leaders."""

    def __init__(
        self,
        world: World,
        limit: CopyLimit,
        space: Callable[[], DiskSpace | None],
        placed: Placed,
        pump_soon: Callable[[FetchSource], None],
        choose: Callable[[Replica], None],
    ) -> None:
        """`placed` has the source of each partition. `space` returns the space of the disk; None if
        it is unknown. `choose` moves a partition to DATA if it belongs there."""
        self._world = world
        self._limit = limit
        self._space = space
        self._placed = placed
        self._pump_soon = pump_soon
        self._choose = choose
        self._queue = CopyQueue()
        self._free_until_ms: dict[PartitionId, int] = {}
        """For each partition that was caught up a moment ago, the time until which its leader
        possibly waits for it."""
        self.is_out_of_room = False
        """True while copies pause because the disk is nearly full."""
        self._is_watching = False
        self.others_count = 0
        """The number of appends to partitions that are in sync, since the start."""

    @property
    def states(self) -> dict[TopicPartition, CopyState]:
        """The state of each copy."""
        found = {}
        for partition, (source, key) in self._placed.items():
            if source.kind is LinkKind.CATCH_UP:
                lag = source.fetch.lag_of(key)
                found[source.replicas[partition].topic_partition] = CopyState(
                    None if lag is None else lag.missing_bytes, source.fetch.pauses_of(key)
                )
        return found

    def came(self, source: FetchSource, key: Key, *, was_caught_up: bool) -> None:
        """Add a partition that is copied from now on. `was_caught_up` is True if it was fetched on
        DATA before."""
        if was_caught_up:
            now_ms = self._world.clock.monotonic_ms()
            self._free_until_ms[key.partition] = now_ms + REPLICA_LAG_TIME_MAX_MS
        if not self._is_watching:
            self._is_watching = True
            self._world.soon(self._watch)

    def left(self, source: FetchSource, partition: PartitionId) -> None:
        """Remove a partition that is no longer copied from this source."""
        source.throttled.pop(partition, None)
        self._free_until_ms.pop(partition, None)
        self._apply(self._queue.leave(partition))

    def advanced(self, source: FetchSource, key: Key, replica: Replica) -> None:
        """Handle a copy whose received records are all durable."""
        lag = source.fetch.lag_of(key)
        if lag is not None:
            move = self._queue.sized(
                key.partition, lag.missing_bytes, is_internal=replica.is_internal
            )
            self._apply(move)
            if self.is_out_of_room:
                self._pause_for_room(source, key, replica)

    def received(self, source: FetchSource, replica: Replica, size_bytes: int) -> None:
        """Handle the records of a copy in an answer."""
        source.pace.answered(self._world.clock.monotonic_ms())
        if self._is_limited(replica):
            self._limit.take(size_bytes)

    def give_up_places(self, source: FetchSource) -> None:
        """Let other copies run first while the leader of this source does not answer or refuses."""
        has_changed = True
        while has_changed:
            has_changed = False
            for partition in self._queue.running:
                at, key = self._placed[partition]
                if at is source and source.fetch.is_failing(key):
                    self._apply(self._queue.leave(partition))
                    has_changed = True

    def rest_until_ms(self, source: FetchSource) -> int:
        """Return the time before which the source must send no request.

        Call this when a request can be sent. It also pauses and resumes the copies that a rate
        limits.
        """
        now_ms = self._world.clock.monotonic_ms()
        self._throttle(source, now_ms)
        until_ms = source.pace.rest_until_ms(self.others_count, now_ms)
        is_awaited = any(free_ms > now_ms for free_ms in self._free_until_ms.values())
        return now_ms if source.caught_up or is_awaited else until_ms

    def _throttle(self, source: FetchSource, now_ms: int) -> None:
        wait_ms = self._limit.wait_ms()
        limited: dict[PartitionId, Key] = {}
        if wait_ms != 0:
            limited = {
                partition: self._placed[partition][1]
                for partition, replica in source.replicas.items()
                if self._is_limited(replica)
            }
        for partition, key in source.throttled.items():
            if partition not in limited:
                source.fetch.resume(key, CopyPause.THROTTLE)
        for partition, key in limited.items():
            if partition not in source.throttled:
                source.fetch.pause(key, CopyPause.THROTTLE)
        source.throttled = limited
        if limited:
            source.wake_ms = now_ms + (ZERO_RATE_CHECK_MS if wait_ms is None else wait_ms)

    def _is_limited(self, replica: Replica) -> bool:
        return self._limit.is_limited(replica) and not self._is_exempt(replica)

    def _is_exempt(self, replica: Replica) -> bool:
        """Return True if acknowledgements can wait for a replica, so that it must not be
        delayed."""
        until_ms = self._free_until_ms.get(replica.partition_id, 0)
        return replica.is_in_sync or until_ms > self._world.clock.monotonic_ms()

    def _apply(self, move: QueueMove) -> None:
        for partition in move.paused:
            source, key = self._placed[partition]
            source.fetch.pause(key, CopyPause.QUEUE)
        for partition in move.resumed:
            placed = self._placed.get(partition)
            if placed is not None:
                source, key = placed
                source.fetch.resume(key, CopyPause.QUEUE)
                self._pump_soon(source)

    # Once a second, while there are copies.

    def _watch(self) -> None:
        """Check the free space, and the copies that have become in sync while they waited."""
        copies = [
            (source, key, source.replicas[partition])
            for partition, (source, key) in self._placed.items()
            if source.kind is LinkKind.CATCH_UP
        ]
        space = self._space()
        was_out = self.is_out_of_room
        self.is_out_of_room = bool(copies) and space is not None and is_short(space, was_out)
        if self.is_out_of_room != was_out:
            self._log_room(len(copies), space)
        for source, key, replica in copies:
            if replica.is_in_sync:
                self._choose(replica)
            elif self.is_out_of_room:
                self._pause_for_room(source, key, replica)
            elif was_out:
                source.fetch.resume(key, CopyPause.ROOM)
                self._pump_soon(source)
        self._is_watching = bool(copies)
        if copies:
            self._world.later(WATCH_MS, self._watch)

    def _pause_for_room(self, source: FetchSource, key: Key, replica: Replica) -> None:
        lag = source.fetch.lag_of(key)
        if lag is not None and lag.missing_bytes > ROOM_COPY_BYTES and not self._is_exempt(replica):
            source.fetch.pause(key, CopyPause.ROOM)

    def _log_room(self, count: int, space: DiskSpace | None) -> None:
        free_bytes = None if space is None else space.usable_bytes
        about = fields(copies=count, free_bytes=free_bytes)
        if self.is_out_of_room:
            logger.warning("copies pause, because the disk is nearly full", extra=about)
        else:
            logger.info("copies go on", extra=about)


def is_short(space: DiskSpace, was_short: bool) -> bool:
    """Return True if copies must pause. They continue only when a tenth more than the limit is
    free, so that they do not pause and continue all the time."""
    needed = min(ROOM_MIN_BYTES, space.total_bytes // ROOM_MIN_SHARE)
    return space.usable_bytes < (needed + needed // 10 if was_short else needed)
