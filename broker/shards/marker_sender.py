"""Sends transaction markers to the brokers that lead the partitions, until they are written.

At most one request to each broker is in flight. Markers that are added in the meantime go with the
next request. A marker that was rejected or got no answer is sent again after a while, as long as
this broker leads its shard and the metadata names the same leader. The waiter gets the same results
as from `markers`: committed, partition deleted, led by another broker, or fenced.

Only the metadata shows that a partition is deleted. A broker that does not know the partition
possibly has older metadata, so its answer does not end the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from broker.purgatory import WaitingOperation
from broker.sessions.peers import LinkKind, Peers
from broker.shards.markers import FENCED, TxnMarker
from broker.world import End, World
from protocol.errors import ErrorCode
from protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.types import TopicPartition

ANSWER_MS_MAX = 1_500
"""The timeout of a request with markers.

A leader answers within a second (`interbroker/transactions`).
"""

AGAIN_MS_MIN = 20
AGAIN_MS_MAX = 640
"""The first and the longest wait before a marker is sent again; it doubles each time."""

REQUEST_MARKERS_MAX = 1_000
"""The largest number of markers in one request. The other markers go with the next request."""


@dataclass(eq=False, slots=True)
class WantedMarker:
    """A marker to write into one partition."""

    partition: TopicPartition
    marker: TxnMarker
    waiter: WaitingOperation
    serves: Callable[[], bool]
    """A function that returns True if this broker still leads the shard that decided the
    transaction.

    If it returns False, the marker must not be sent.
    """
    refused: Callable[[ErrorCode], None]
    """A function that is called whenever the marker could not be written, before the marker is sent
    again."""
    again_ms: int = AGAIN_MS_MIN
    """The wait before the marker is sent again."""


@dataclass(slots=True)
class _BrokerMarkers:
    """The markers that wait for one broker."""

    ready: dict[WantedMarker, None] = field(default_factory=dict)
    resting: dict[WantedMarker, None] = field(default_factory=dict)
    is_asked: bool = False
    """True if a request is in flight or about to be sent."""


class MarkerSender:
    """Sends the markers of this broker's shards for partitions that other brokers lead."""

    def __init__(
        self, world: World, peers: Peers, leader_of: Callable[[TopicPartition], int | None]
    ) -> None:
        """Create a sender.

        `leader_of` returns a partition's leader in the metadata; None for a deleted partition.
        """
        self._world = world
        self._peers = peers
        self._leader_of = leader_of
        self._lines: dict[int, _BrokerMarkers] = {}
        self._is_stopped = False

    def send(self, node_id: int, wanted: WantedMarker) -> None:
        """Send a marker to the partition's leader until it is written.

        The waiter is notified later.
        """
        line = self._lines.setdefault(node_id, _BrokerMarkers())
        line.ready[wanted] = None
        self._ask_soon(node_id, line)

    def moved(self) -> None:
        """Give the markers of partitions that now have another leader back to their waiters,
        because the metadata changed.

        Markers in a request that is in flight stay until the request ends, because the leader can
        still write them.
        """
        for node_id, line in self._lines.items():
            for some in (line.ready, line.resting):
                for wanted in [one for one in some if self._leader_of(one.partition) != node_id]:
                    del some[wanted]
                    self._give_back(wanted)

    def stop(self) -> None:
        """Send no more markers, because the broker stops."""
        self._is_stopped = True

    def _give_back(self, wanted: WantedMarker) -> None:
        is_gone = self._leader_of(wanted.partition) is None
        wanted.waiter.lost(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_gone else ErrorCode.NOT_LEADER_OR_FOLLOWER
        )

    def _ask_soon(self, node_id: int, line: _BrokerMarkers) -> None:
        # Send the request in the next iteration of the event loop, so that it contains all markers
        # of this iteration.
        if line.ready and not line.is_asked:
            line.is_asked = True
            self._world.soon(self._ask, node_id, line)

    def _ask(self, node_id: int, line: _BrokerMarkers) -> None:
        asked = _take(line.ready)
        if not asked or self._is_stopped:
            line.is_asked = False
            return
        self._peers.ask(
            node_id,
            LinkKind.MARKERS,
            _request(asked.values()),
            self._world.clock.monotonic_ms() + ANSWER_MS_MAX,
            partial(self._answered, node_id, line, asked),
            partial(self._failed, node_id, line, asked),
        )

    def _answered(
        self,
        node_id: int,
        line: _BrokerMarkers,
        asked: dict[tuple[int, TopicPartition], WantedMarker],
        answer: WriteTxnMarkersResponse,
    ) -> None:
        codes = {
            (of_producer.producer_id, TopicPartition(topic.name, one.partition_index)): (
                ErrorCode.of(one.error_code)
            )
            for of_producer in answer.markers
            for topic in of_producer.topics
            for one in topic.partitions
        }
        self._ended(
            node_id,
            line,
            [
                (wanted, codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR))
                for key, wanted in asked.items()
            ],
        )

    def _failed(
        self,
        node_id: int,
        line: _BrokerMarkers,
        asked: dict[tuple[int, TopicPartition], WantedMarker],
        end: End,
    ) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT
        self._ended(node_id, line, [(wanted, code) for wanted in asked.values()])

    def _ended(
        self, node_id: int, line: _BrokerMarkers, ends: Sequence[tuple[WantedMarker, ErrorCode]]
    ) -> None:
        line.is_asked = False
        for wanted, code in ends:
            if code is ErrorCode.NONE:
                wanted.waiter.reached()
            elif code in FENCED:
                wanted.waiter.lost(code)
            else:
                self._rest(node_id, line, wanted, code)
        self._ask_soon(node_id, line)

    def _rest(
        self, node_id: int, line: _BrokerMarkers, wanted: WantedMarker, code: ErrorCode
    ) -> None:
        """Send a marker again after a wait, if the same broker still leads the partition then."""
        if not wanted.serves():
            return
        if self._leader_of(wanted.partition) != node_id:
            self._give_back(wanted)
            return
        wanted.refused(code)
        line.resting[wanted] = None
        self._world.later(wanted.again_ms, partial(self._rested, node_id, line, wanted))
        wanted.again_ms = min(2 * wanted.again_ms, AGAIN_MS_MAX)

    def _rested(self, node_id: int, line: _BrokerMarkers, wanted: WantedMarker) -> None:
        if line.resting.pop(wanted, wanted) is None:
            line.ready[wanted] = None
            self._ask_soon(node_id, line)


def _take(ready: dict[WantedMarker, None]) -> dict[tuple[int, TopicPartition], WantedMarker]:
    """Return the markers for the next request and remove them from the queue: at most one per
    producer and partition."""
    taken: dict[tuple[int, TopicPartition], WantedMarker] = {}
    for wanted in list(ready):
        if len(taken) >= REQUEST_MARKERS_MAX:
            break
        key = wanted.marker.producer_id, wanted.partition
        if not wanted.serves():
            del ready[wanted]
        elif key not in taken:
            taken[key] = wanted
            del ready[wanted]
    return taken


def _request(wanted: Iterable[WantedMarker]) -> WriteTxnMarkersRequest:
    """Return the request with these markers, grouped by transaction and topic."""
    grouped: dict[TxnMarker, dict[str, list[int]]] = {}
    for one in wanted:
        topics = grouped.setdefault(one.marker, {})
        topics.setdefault(one.partition.topic, []).append(one.partition.partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
            for marker, topics in grouped.items()
        ]
    )
