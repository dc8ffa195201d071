"""Answers fetches of clients: at once if there is enough data, else when enough data has arrived or
the wait has ended.

`reading` reads the logs, and this module decides when to answer. A parked fetch blocks all later
requests of its connection. It is completed early if a later request is a ListOffsets for one of its
partitions, or if the read buffer is full. But it stays parked for `EARLY_AFTER_MS` first, because
otherwise an idle consumer that sends ListOffsets between its fetches would fetch in a tight loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from random import Random

from broker.config import BROKER_LISTENER, InForce
from broker.fetch.reading import FetchReading, ReadingPorts
from broker.metrics.metrics import Metrics
from broker.purgatory import FirstReached, OffsetKey, Purgatory
from broker.replicas.replica import READ_COMMITTED, READ_UNCOMMITTED, Replica
from broker.replicas.replicas import Replicas
from broker.replication.fetch_session import FetchSession, FetchSessions
from broker.sessions.call import Call
from broker.world import Clock
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.api import ApiKey
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.headers import decode_request_header
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.security.acl import AclOperation, AclResource
from protocol.types import TopicPartition

EARLY_AFTER_MS = 5
"""The shortest time in milliseconds that a fetch stays parked before a later request can end its
wait."""


class ParkedFetch:
    """A fetch that waits for data."""

    __slots__ = (
        "_fetches",
        "call",
        "deadline_ms",
        "entry",
        "is_hastened",
        "parked_ms",
        "partitions",
        "request",
        "seen_count",
        "session",
        "thresholds",
    )

    def __init__(
        self,
        fetches: Fetches,
        call: Call,
        request: FetchRequest,
        session: FetchSession | None,
        parked_ms: int,
    ) -> None:
        self._fetches = fetches
        self.call = call
        self.request = request
        self.session = session
        self.parked_ms = parked_ms
        self.deadline_ms = parked_ms + request.max_wait_ms
        self.is_hastened = False
        self.seen_count = 0
        """The number of later frames of the connection that were searched for a ListOffsets. These
        frames stay in the buffer while the fetch waits."""
        self.partitions: tuple[Replica, ...] = ()
        self.thresholds: dict[OffsetKey, int] = {}
        self.entry: FirstReached | None = None

    def reached(self) -> None:
        """Read again, because one of the fetch's partitions has more to read."""
        self._fetches.try_again(self)

    def lost(self, code: ErrorCode) -> None:
        """Answer with the available data, because the wait has timed out or this broker no longer
        leads one of the partitions."""
        self._fetches.end(self, code)

    def hasten(self, behind: Iterable[bytes]) -> None:
        """End the wait early if one of the later frames is a ListOffsets for a partition of the
        fetch.

        Spark's connector sends such requests (decision 0055). Every other request after a Fetch
        waits for the answer of the Fetch, as in Kafka. Fetches of followers are not ended early.
        """
        if self.is_hastened or self.call.listener_name == BROKER_LISTENER:
            return
        for frame in islice(behind, self.seen_count, None):
            self.seen_count += 1
            if _lists_offsets_of(self, frame):
                self.make_way()
                return

    def make_way(self) -> None:
        """End the wait early."""
        if not self.is_hastened:
            self._fetches.hasten(self)

    def forget(self) -> None:
        """Remove the fetch, because its connection is closed."""
        self._fetches.forget(self)

    def drop(self) -> None:
        """Remove the fetch without an answer, so that the connection can continue with its next
        request."""
        self._fetches.forget(self)
        self.call.answer_nothing()


class Fetches:
    """All fetches of clients between their arrival and their answer."""

    def __init__(
        self,
        settings: InForce,
        clock: Clock,
        purgatory: Purgatory,
        chance: Random,
        metrics: Metrics,
        replicas: Replicas,
    ) -> None:
        self._clock = clock
        self._purgatory = purgatory
        self._metrics = metrics
        self._parked: dict[ParkedFetch, None] = {}
        config = settings.config
        self.sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots,
            config.max_incremental_fetch_session_cache_partitions,
            chance,
        )
        self._ports = ReadingPorts(replicas, metrics, settings, self.sessions)

    def start(self, call: Call, request: FetchRequest) -> FetchResponse | None:
        """Return the answer, or None if the fetch was parked."""
        now_ms = self._clock.monotonic_ms()
        try:
            session = self.sessions.open(
                request.session_id,
                request.session_epoch,
                request.topics,
                request.forgotten_topics_data,
                now_ms,
                call.session.rights.user,
            )
        except ApiError as error:
            return FetchResponse(error_code=error.code)
        reading = FetchReading(self._ports, call, request, session)
        if request.max_wait_ms <= 0 or reading.is_enough():
            return reading.finish(now_ms)
        self._park(ParkedFetch(self, call, request, session, now_ms), reading)
        return None

    def _park(self, parked: ParkedFetch, reading: FetchReading) -> None:
        parked.call.session.parked_fetch = parked
        is_committed = parked.request.isolation_level == READ_COMMITTED
        isolation_level = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        parked.partitions = tuple(reading.partitions)
        parked.thresholds = {}
        for one in parked.partitions:
            key = one.readable[isolation_level]
            # Wait until one more record is readable. With an offset below the mark, the wait would
            # end at once, and it would begin and end again without a pause.
            parked.thresholds[key] = max(key.mark, one.readable_end(isolation_level)) + 1
        self._enter(parked)

    def _enter(self, parked: ParkedFetch) -> None:
        self._parked[parked] = None
        parked.entry = self._purgatory.await_first(parked.thresholds, parked, parked.deadline_ms)

    def try_again(self, parked: ParkedFetch) -> None:
        """Answer a fetch if there is enough data now, else park it again."""
        reading = self._read(parked)
        if reading.is_enough():
            self._complete(parked, reading)
        else:
            self._park(parked, reading)

    def end(self, parked: ParkedFetch, code: ErrorCode) -> None:
        """Answer a fetch with the available data."""
        if parked.is_hastened and code is ErrorCode.REQUEST_TIMED_OUT:
            self._metrics.fetches_completed_early += 1
        self._complete(parked, self._read(parked))

    @property
    def parked_count(self) -> int:
        """The number of fetches that wait for data."""
        return len(self._parked)

    def hasten(self, parked: ParkedFetch) -> None:
        """End the wait of a fetch as soon as it has been parked for `EARLY_AFTER_MS`."""
        now_ms = self._clock.monotonic_ms()
        deadline_ms = max(now_ms, parked.parked_ms + EARLY_AFTER_MS)
        if deadline_ms < parked.deadline_ms:
            parked.is_hastened = True
            parked.deadline_ms = deadline_ms
            self.forget(parked)
            self._enter(parked)

    def forget(self, parked: ParkedFetch) -> None:
        """Remove a fetch whose connection is closed."""
        self._parked.pop(parked, None)
        if parked.entry is not None:
            self._purgatory.withdraw(parked.entry)

    def rights_changed(self) -> None:
        """Answer the fetches of clients that may no longer read one of the partitions."""
        for parked in list(self._parked):
            may = parked.call.may
            if not all(
                may(AclOperation.READ, AclResource.TOPIC, one.topic, is_logged=False)
                for one in parked.partitions
            ):
                self.forget(parked)
                self._complete(parked, self._read(parked))

    def complete_all(self) -> None:
        """Answer every fetch with the available data, because the broker stops."""
        for parked in sorted(self._parked, key=lambda one: one.deadline_ms):
            self.forget(parked)
            self._complete(parked, self._read(parked))

    def _read(self, parked: ParkedFetch) -> FetchReading:
        return FetchReading(self._ports, parked.call, parked.request, parked.session)

    def _complete(self, parked: ParkedFetch, reading: FetchReading) -> None:
        self._parked.pop(parked, None)
        parked.call.session.parked_fetch = None
        parked.call.answer(reading.finish(self._clock.monotonic_ms()))


def _lists_offsets_of(parked: ParkedFetch, frame: bytes) -> bool:
    """Return True if a frame is a ListOffsets for a partition of the fetch."""
    try:
        header, position = decode_request_header(frame)
        if header.request_api_key != ApiKey.LIST_OFFSETS:
            return False
        request, _ = ListOffsetsRequest.decode(frame, header.request_api_version, position)
    except WireError:
        # This frame gets its error when it is handled.
        return False
    read = {replica.topic_partition for replica in parked.partitions}
    return any(
        TopicPartition(topic.name, one.partition_index) in read
        for topic in request.topics
        for one in topic.partitions
    )
