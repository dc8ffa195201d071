"""Fetch sessions of consumers: the partitions that a consumer reads, and their last answers
(KIP-227).

This module is pure. A consumer names all of its partitions once, in a full request with epoch 0,
and gets a session. Later requests name only changes, with epochs 1, 2, … (1 follows 2147483647).
Their responses contain only partitions with records, with an error, or with a moved high watermark
or log start offset. Session id 0 in a response means that there is no session. Every client accepts
this, so the broker never has to keep a session.

Sessions are ordered by their last use. If the number of sessions is at its limit, a new session
replaces the session that was unused for the longest time, provided that it was unused for at least
two minutes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from random import Random

from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic, PartitionData

NO_SESSION = 0
FULL_EPOCH = 0
"""The epoch of a full request that asks for a session."""

FINAL_EPOCH = -1
"""The epoch of a full request that asks for no session and closes the session that it names."""

EPOCH_MAX = 2**31 - 1
EVICTABLE_AFTER_MS = 120_000

Key = tuple[str, int]
"""The topic and the partition index."""


class CachedPartition:
    """One partition of a session: the request for it, and the offsets in its last answer."""

    __slots__ = ("asked", "high_watermark", "log_start_offset", "topic")

    def __init__(self, topic: str, asked: FetchPartition) -> None:
        self.topic = topic
        self.asked = asked
        self.high_watermark = -1
        self.log_start_offset = -1

    def is_news(self, answer: PartitionData) -> bool:
        """Return True if an incremental response must contain this partition."""
        return bool(
            answer.records
            or answer.error_code
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.diverging_epoch is not None
        )

    def told(self, answer: PartitionData) -> None:
        """Record the answer for this partition. After an error, the next response contains the
        partition again."""
        is_odd = answer.error_code or answer.diverging_epoch is not None
        self.high_watermark = -1 if is_odd else answer.high_watermark
        self.log_start_offset = answer.log_start_offset


class FetchSession:
    """The partitions of one consumer, in the order in which they are served. `owner` is the user
    that opened the session; None without a login."""

    __slots__ = ("last_used_ms", "next_epoch", "owner", "partitions", "session_id")

    def __init__(self, session_id: int, now_ms: int, owner: str | None = None) -> None:
        self.session_id = session_id
        self.owner = owner
        self.next_epoch = 1
        self.last_used_ms = now_ms
        self.partitions: dict[Key, CachedPartition] = {}

    def told(self, topic: str, answer: PartitionData) -> None:
        """Record the answer for a partition. A partition with records goes to the end, so that no
        partition starves."""
        key = (topic, answer.partition_index)
        cached = self.partitions.get(key)
        if cached is None:
            return
        cached.told(answer)
        if answer.records:
            del self.partitions[key]
            self.partitions[key] = cached


class FetchSessions:
    """All fetch sessions of a broker.

    `partition_count_max` limits the partitions of all sessions together.
    """

    def __init__(self, session_count_max: int, partition_count_max: int, random: Random) -> None:
        self._session_count_max = session_count_max
        self._partition_count_max = partition_count_max
        self._random = random
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        """The sessions by id, the least recently used first."""
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        session_id: int,
        session_epoch: int,
        topics: Iterable[FetchTopic],
        forgotten: Iterable[ForgottenTopic],
        now_ms: int,
        owner: str | None = None,
    ) -> FetchSession | None:
        """Return the session of an incremental request; None for a full request.

        A full request closes the session that it names. Raises ApiError for an unknown session and
        for an epoch out of order. After the error the client sends a full request. A session of
        another user is treated as unknown.
        """
        session = self._sessions.get(session_id)
        if session is not None and session.owner != owner:
            session = None
        if session_epoch in (FULL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self.close(session_id)
            return None
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session_epoch != session.next_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"found fetch session epoch {session_epoch}, expected {session.next_epoch}",
            )
        session.next_epoch = 1 if session_epoch == EPOCH_MAX else session_epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        self._change(session, topics, forgotten)
        return session

    def _change(
        self,
        session: FetchSession,
        topics: Iterable[FetchTopic],
        forgotten: Iterable[ForgottenTopic],
    ) -> None:
        partitions = session.partitions
        before = len(partitions)
        for topic, asked in _each(topics):
            known = partitions.get((topic, asked.partition))
            if known is None:
                partitions[topic, asked.partition] = CachedPartition(topic, asked)
            else:
                known.asked = asked
        for gone in forgotten:
            for index in gone.partitions:
                partitions.pop((gone.topic, index), None)
        self.partition_count += len(partitions) - before
        if not partitions:
            self.close(session.session_id)
            session.session_id = NO_SESSION
        elif self.partition_count > self._partition_count_max:
            self.close(session.session_id)
            raise ApiError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                "all fetch sessions together have too many partitions, so this session was closed",
            )

    def create(
        self,
        topics: Iterable[FetchTopic],
        answers: Iterable[tuple[str, PartitionData]],
        now_ms: int,
        owner: str | None = None,
    ) -> int:
        """Create a session for a full request. Return its id, or 0 if there is no room."""
        session = FetchSession(NO_SESSION, now_ms, owner)
        for topic, asked in _each(topics):
            session.partitions[topic, asked.partition] = CachedPartition(topic, asked)
        count = len(session.partitions)
        if not count or not self._make_room(count, now_ms):
            return NO_SESSION
        session.session_id = self._new_id()
        for topic, answer in answers:
            session.told(topic, answer)
        self._sessions[session.session_id] = session
        self.partition_count += count
        return session.session_id

    def _make_room(self, partition_count: int, now_ms: int) -> bool:
        if partition_count > self._partition_count_max or not self._session_count_max:
            return False
        while (
            len(self._sessions) >= self._session_count_max
            or self.partition_count + partition_count > self._partition_count_max
        ):
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.last_used_ms <= EVICTABLE_AFTER_MS:
                return False
            self.close(oldest.session_id)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._random.randrange(1, 2**31)
            if session_id not in self._sessions:
                return session_id

    def close(self, session_id: int) -> None:
        """Remove a session. An unknown id is ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)


def _each(topics: Iterable[FetchTopic]) -> Iterator[tuple[str, FetchPartition]]:
    for topic in topics:
        for asked in topic.partitions:
            yield topic.topic, asked
