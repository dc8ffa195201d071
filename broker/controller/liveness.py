"""Decides which brokers are alive: sessions, closed connections, probes and heartbeats.

This module is pure. Its state is not in the metadata log. When this node becomes the leader of the
quorum, it starts with a new `Liveness`. All times are *lived* ms, without the stalls of the
controller's own event loop. So a stall of the controller's own process makes no broker look dead.
The driver provides lived time, and reads all sockets before it asks for a decision.

A broker counts as dead when `suspicion` says so after its connection has closed, or when its
session ends because no heartbeat came. An address that accepts a probe is probed again until the
broker has come back, because Linux often closes the connections of a killed process before its
listeners.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from broker.config import BrokerConfig
from broker.controller.alter_partition import check_broker_epoch
from broker.controller.outcome import ControllerDecision
from broker.controller.registration import distrust, fence, leads_nothing, stop, unfence
from broker.controller.suspicion import RECONNECT_MS, ProbeVerdict, Suspicion
from broker.metadata.broker_image import BrokerImage
from broker.metadata.image import MetadataImage
from broker.metadata.records import MetadataRecord, NoOpRecord
from protocol.errors import ApiError, ErrorCode
from protocol.messages.membership import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.types import NO_OFFSET, Uuid

SESSION_TIMEOUT_MS = 9_000
"""The default of Kafka's `broker.session.timeout.ms`."""

LOOK_AGAIN_MS = 20
"""The wait before an address that accepted a connection is probed again. The wait doubles, up to
`RECONNECT_MS`."""


@dataclass(frozen=True, slots=True)
class BrokerProbe:
    """A probe to make. The caller always reports its verdict to `probed`."""

    number: int
    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class DeadBroker:
    """A registration whose broker is dead by the rules of this module. The broker must be fenced,
    unless its epoch has changed by then."""

    node_id: int
    broker_epoch: int


@dataclass(slots=True)
class BrokerSession:
    """The session of one incarnation of a broker. `link` is the id of its newest connection; None
    if there is none."""

    incarnation_id: Uuid
    broker_epoch: int
    ends_ms: int
    unfenced_ms: int | None = None
    link: int | None = None
    suspicion: Suspicion = field(default_factory=Suspicion)
    closed_ms: int | None = None
    """The time since when the broker has no connection; None while it has one."""
    look_again_ms: int | None = None
    """The time at which to probe an address that accepted a connection, unless the broker has come
    back."""
    look_after_ms: int = LOOK_AGAIN_MS
    metadata_offset: int = NO_OFFSET
    stop_offset: int | None = None
    """The metadata offset that all other brokers must have replayed before this broker may stop."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The result of a heartbeat: the records, and the broker's state once they are applied."""

    records: Sequence[MetadataRecord]
    is_fenced: bool
    may_stop: bool = False


class Liveness:
    """The sessions of all brokers, by node id, as one controller knows them."""

    def __init__(self, own_id: int, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        """`own_id` is the controller's own node, which is never probed."""
        self._own_id = own_id
        self._session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, BrokerSession] = {}
        self._deciding: set[int] = set()
        """The ids of brokers whose registration is being decided."""
        self._probes = 0

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the time at which the caller must call `dead` and `probes_due`; None if there are
        no sessions."""
        sessions = self._sessions.values()
        ends = [_deadline_ms(one) for one in sessions]
        looks = [one.look_again_ms for one in sessions if one.look_again_ms is not None]
        return min(ends + looks, default=None)

    def took_over(
        self, image: MetadataImage, predecessor: int | None, now_ms: int
    ) -> list[BrokerProbe]:
        """Start a full session for every broker, and return the probes to make, the former leader's
        first.

        The controller cannot know how long a broker has been silent, because it has not seen the
        broker's earlier connections and heartbeats. A fenced broker keeps its id like the others,
        because it can have registered just now.
        """
        for broker in image.brokers.values():
            self.registered(broker, now_ms)
            if broker.is_stopping and not broker.is_fenced:
                self._sessions[broker.node_id].stop_offset = image.end_offset - 1
        others = [node_id for node_id in self._sessions if node_id != self._own_id]
        others.sort(key=lambda node_id: (node_id != predecessor, node_id))
        return [self._probe(node_id) for node_id in others]

    def decides(self, node_id: int) -> bool:
        """Record that a broker's registration is being decided. Return False if another
        registration for this id is being decided.

        Once the registration is granted, its epoch is in the newest image before the commit, and
        the broker has a session. In the meantime a second process can register with the same id. It
        must not get the id, because it can already be dead, with its last request still in the
        socket.
        """
        if node_id in self._deciding:
            return False
        self._deciding.add(node_id)
        return True

    def decided(self, node_id: int) -> None:
        """Record that the registration of a broker was committed or refused."""
        self._deciding.discard(node_id)

    def registered(self, broker: BrokerImage, now_ms: int) -> None:
        """Record a committed registration. If the broker's session already has this epoch, the
        session stays as it is."""
        known = self._sessions.get(broker.node_id)
        if known is not None and known.broker_epoch == broker.broker_epoch:
            return
        self._sessions[broker.node_id] = BrokerSession(
            broker.incarnation_id,
            broker.broker_epoch,
            ends_ms=now_ms + self._session_timeout_ms,
            unfenced_ms=None if broker.is_fenced else now_ms,
            closed_ms=now_ms,
        )

    def connected(self, node_id: int, incarnation_id: Uuid, link: int) -> None:
        """Record that a broker has identified itself on a connection, by a registration or a
        heartbeat.

        The ids of connections (`link`) rise. A request that arrives late on an older connection is
        ignored, because it does not show that the broker is alive.
        """
        session = self._sessions.get(node_id)
        if session is not None and session.incarnation_id == incarnation_id:
            if session.link is not None and link < session.link:
                return
            session.link = link
            session.suspicion.end()
            session.closed_ms = session.look_again_ms = None

    def closed(self, node_id: int, link: int, now_ms: int) -> BrokerProbe | None:
        """Record that a connection ended. Return a probe if it was the newest connection of the
        broker's session."""
        session = self._sessions.get(node_id)
        if session is None or session.link != link:
            return None
        session.link = None
        session.closed_ms = now_ms
        session.suspicion.begin(now_ms)
        session.look_after_ms = LOOK_AGAIN_MS
        return self._probe(node_id)

    def probed(self, probe: BrokerProbe, verdict: ProbeVerdict, now_ms: int) -> DeadBroker | None:
        """Record the verdict of a probe. Return the broker if the verdict proves that it is dead.

        The verdict is ignored if the broker has come back in the meantime.
        """
        session = self._sessions.get(probe.node_id)
        if session is None or session.suspicion.probe != probe.number:
            return None
        if session.suspicion.probed(probe.number, verdict, now_ms):
            return self._dead(probe.node_id)
        if verdict is ProbeVerdict.ACCEPTED:
            session.look_again_ms = now_ms + session.look_after_ms
            session.look_after_ms = min(2 * session.look_after_ms, RECONNECT_MS)
        return None

    def probes_due(self, now_ms: int) -> list[BrokerProbe]:
        """Return the probes to repeat, because the address accepted a connection and the broker has
        not come back."""
        due = sorted(
            node_id
            for node_id, session in self._sessions.items()
            if session.look_again_ms is not None and now_ms >= session.look_again_ms
        )
        return [self._probe(node_id) for node_id in due]

    def dead(self, now_ms: int) -> list[DeadBroker]:
        """Return the brokers that are dead by the rules of this module, and end their sessions.

        The caller fences `to_be_fenced`.
        """
        lapsed = [
            node_id
            for node_id, session in self._sessions.items()
            if now_ms >= _deadline_ms(session)
        ]
        return [self._dead(node_id) for node_id in sorted(lapsed)]

    def is_live(self, node_id: int, now_ms: int) -> bool:
        """Return True if the registered incarnation can still be running, so that no other process
        may take its id. An incarnation without a connection for `RECONNECT_MS` does not keep the
        id. If the incarnation comes back, it is refused because of its old epoch."""
        session = self._sessions.get(node_id)
        if session is None or now_ms >= session.ends_ms:
            return False
        return session.closed_ms is None or now_ms < session.closed_ms + RECONNECT_MS

    def unfenced_for_ms(self, node_id: int, now_ms: int) -> int:
        """Return how long a broker has been in service, as far as this controller knows."""
        session = self._sessions.get(node_id)
        if session is None or session.unfenced_ms is None:
            return 0
        return now_ms - session.unfenced_ms

    def heartbeat(
        self,
        request: BrokerHeartbeatRequest,
        image: MetadataImage,
        config: BrokerConfig,
        link: int,
        now_ms: int,
    ) -> ControllerDecision[BrokerHeartbeatResponse]:
        """Handle BrokerHeartbeat: extend the session, and tell the broker its state.

        Raises the errors of `check_broker_epoch`; a heartbeat of another epoch extends no session.
        A late heartbeat on an older connection can ask for a state that the broker does not want
        any more, so it gets NETWORK_EXCEPTION.
        """
        broker = check_broker_epoch(request.broker_id, request.broker_epoch, image)
        self.registered(broker, now_ms)
        session = self._sessions[broker.node_id]
        if session.link is not None and link < session.link:
            raise ApiError(
                ErrorCode.NETWORK_EXCEPTION,
                "the heartbeat came on an old connection: the broker already has a newer one",
            )
        self.connected(broker.node_id, broker.incarnation_id, link)
        session.ends_ms = now_ms + self._session_timeout_ms
        session.metadata_offset = max(session.metadata_offset, request.current_metadata_offset)
        is_caught_up = session.metadata_offset >= broker.broker_epoch
        if request.want_shut_down or broker.is_stopping:
            step = self._stopping(broker, session, image, config)
        elif broker.is_fenced and is_caught_up and not request.want_fence:
            # Unfence the broker and distrust its damaged logs in one batch, so that no damaged log
            # is in sync in between.
            distrusted = distrust(broker.node_id, request.damaged, image, config)
            step = _Step([*unfence(broker.node_id, image, config), *distrusted], is_fenced=False)
        elif not broker.is_fenced and request.want_fence:
            step = _Step(fence(broker.node_id, image, config), is_fenced=True)
        elif not broker.is_fenced:
            step = _Step(distrust(broker.node_id, request.damaged, image, config), is_fenced=False)
        else:
            step = _Step((), is_fenced=True)
        if step.is_fenced:
            session.unfenced_ms = None
        elif session.unfenced_ms is None:
            session.unfenced_ms = now_ms
        response = BrokerHeartbeatResponse(
            is_caught_up=is_caught_up,
            is_fenced=step.is_fenced,
            should_shut_down=step.may_stop,
            metadata_end_offset=image.end_offset + len(step.records),
        )
        return ControllerDecision(step.records, response)

    def _stopping(
        self,
        broker: BrokerImage,
        session: BrokerSession,
        image: MetadataImage,
        config: BrokerConfig,
    ) -> _Step:
        """Handle the heartbeat of a stopping broker.

        The broker may stop when it leads no partition and all other brokers have replayed the
        metadata records that say so.
        """
        node_id = broker.node_id
        if broker.is_fenced:
            return _Step((), is_fenced=True, may_stop=True)
        if not broker.is_stopping:
            records = stop(node_id, image, config)
            session.stop_offset = image.end_offset + len(records) - 1
            return _Step(records, is_fenced=False)
        if session.stop_offset is None:
            session.stop_offset = image.end_offset - 1
        if leads_nothing(node_id, image) and self._have_passed(session.stop_offset, node_id):
            return _Step(fence(node_id, image, config), is_fenced=True, may_stop=True)
        return _Step((), is_fenced=False)

    def _have_passed(self, offset: int, but: int) -> bool:
        """Return True if all brokers in service, except `but`, have replayed the record at an
        offset."""
        return all(
            session.metadata_offset >= offset
            for node_id, session in self._sessions.items()
            if node_id != but and session.unfenced_ms is not None
        )

    def _probe(self, node_id: int) -> BrokerProbe:
        self._probes += 1
        session = self._sessions[node_id]
        session.suspicion.probe = self._probes
        session.look_again_ms = None
        return BrokerProbe(self._probes, node_id, session.broker_epoch)

    def _dead(self, node_id: int) -> DeadBroker:
        return DeadBroker(node_id, self._sessions.pop(node_id).broker_epoch)


def _deadline_ms(session: BrokerSession) -> int:
    doubted_ms = session.suspicion.deadline_ms
    return session.ends_ms if doubted_ms is None else min(session.ends_ms, doubted_ms)


def to_be_fenced(dead: Iterable[DeadBroker], image: MetadataImage) -> list[DeadBroker]:
    """Return those of the dead brokers that are not fenced in the image yet and still have the same
    broker epoch."""
    return [
        one
        for one in dead
        if (broker := image.brokers.get(one.node_id)) is not None
        and broker.broker_epoch == one.broker_epoch
        and not broker.is_fenced
    ]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A BrokerHeartbeat with the id of its connection (`link`) and its time in lived ms.

    With `must_commit`, the heartbeat is answered only after a later record is committed, because a
    deposed controller must not answer.
    """

    request: BrokerHeartbeatRequest
    liveness: Liveness
    link: int
    now_ms: int
    must_commit: bool


def decide_heartbeat(
    heartbeat: Heartbeat, image: MetadataImage, config: BrokerConfig
) -> ControllerDecision[BrokerHeartbeatResponse]:
    """Decide one heartbeat. Raises the errors of `Liveness.heartbeat`."""
    outcome = heartbeat.liveness.heartbeat(
        heartbeat.request, image, config, heartbeat.link, heartbeat.now_ms
    )
    if outcome.records or not heartbeat.must_commit:
        return outcome
    return ControllerDecision([NoOpRecord()], outcome.reply)


def fence_dead(
    dead: DeadBroker, image: MetadataImage, config: BrokerConfig
) -> ControllerDecision[None]:
    """Fence a dead broker, unless it is already fenced or has registered again."""
    if not to_be_fenced([dead], image):
        return ControllerDecision([], None)
    return ControllerDecision(fence(dead.node_id, image, config), None)
