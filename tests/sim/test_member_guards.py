"""The guards of a broker's cluster membership. Each is removed, and a run over a faulty network
then fails. The numbers refer to `docs/guards.md`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from broker.cluster import liveness_driver
from broker.cluster.lived import LivedAlarm, LivedTime
from broker.cluster.membership import BrokerMembership
from broker.controller import controller
from broker.controller.liveness import SESSION_TIMEOUT_MS, BrokerProbe, Liveness
from broker.controller.registration import register
from broker.metadata.image import MetadataImage
from broker.world import World
from protocol.errors import ErrorCode
from protocol.types import Uuid
from tests.sim import test_members as members
from tests.sim import test_read_barrier as reading

Patch = pytest.MonkeyPatch

SOMEBODY_ELSE = Uuid(int=0xE15E)


def _fresh_sessions(patch: Patch) -> None:
    """Let a new controller end all sessions at once, because it has not received a heartbeat
    yet."""
    took_over = Liveness.took_over

    def overdue(
        self: Liveness, image: MetadataImage, predecessor: int | None, now_ms: int
    ) -> list[BrokerProbe]:
        probes = took_over(self, image, predecessor, now_ms)
        for session in self._sessions.values():
            session.ends_ms = now_ms
        return probes

    patch.setattr(Liveness, "took_over", overdue)


class Monotonic(LivedTime):
    """A clock that also counts the time in which its process was frozen."""

    def at(self, monotonic_ms: int) -> int:
        return monotonic_ms


class Unaware(LivedAlarm):
    """An alarm that lets sessions expire as soon as the process wakes."""

    def __init__(self, world: World, on_time: Callable[[], None]) -> None:
        super().__init__(world, on_time)
        self._lived = Monotonic()


def _stall_rule(patch: Patch) -> None:
    """Remove the rule only from the sessions. Without it in the quorum's timer, too, the controller
    would resign when it wakes. The next controller would then give every broker a new session, and
    hide the fault."""
    patch.setattr(liveness_driver, "LivedAlarm", Unaware)


def _no_lease(patch: Patch) -> None:
    patch.setattr(BrokerMembership, "may_read", lambda self, now_ms: self._lease_ms is not None)


def _stalls_unnoticed(patch: Patch) -> None:
    patch.setattr(BrokerMembership, "stalled", lambda self, now_ms: ())


def _barrier(patch: Patch) -> None:
    """Also remove the lease, because it ends before another broker can lead, and so hides this
    guard."""
    _no_lease(patch)
    _stalls_unnoticed(patch)


def _idempotent_registration(patch: Patch) -> None:
    """Treat a repeated registration as if it came from another process with the same id."""

    def registered(request: Any, image: MetadataImage, config: Any, facts: Any) -> Any:
        known = image.brokers.get(request.broker_id)
        if known is not None:
            other = replace(known, incarnation_id=SOMEBODY_ELSE)
            image = replace(image, brokers={**image.brokers, request.broker_id: other})
        return register(request, image, config, facts)

    patch.setattr(controller, "register", registered)


a_leader_wakes_deposed = partial(
    reading.test_a_leader_that_wakes_deposed_returns_no_old_state,
    reading.FETCH,
    reading.TOPIC,
    reading.fetch_code,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


def a_broker_that_has_lost_its_links_says_again_who_it_is() -> None:
    """A broker registers again after it has lost its links. The controller must accept that,
    because the registration is from the process that already owns the id."""
    cluster = members.settled("says again")
    node, leader = cluster.follower(), cluster.leader()
    cluster.network.lose_links(node.host, leader.host)
    cluster.network.timeline.run_for(SESSION_TIMEOUT_MS)
    assert not cluster.refusals, cluster.refusals
    assert cluster.in_service() == {1, 2, 3}
    assert len(cluster.epochs[node.node_id]) == 1


@dataclass(frozen=True)
class MissedGuard:
    """A guard, a function that removes it, and the sequence of events that then fails."""

    take_out: Callable[[Patch], None]
    course: Callable[[], None]
    complaint: str
    """A pattern for the message of the expected failure."""


GUARDS = {
    "42 fresh sessions": MissedGuard(
        _fresh_sessions, members.test_a_new_controller_fences_only_the_one_that_died, "'fenced'"
    ),
    "43 stall rule": MissedGuard(
        _stall_rule,
        members.test_a_controller_that_was_frozen_fences_no_broker,
        r"\[3, 3, 3\] == \[1, 1, 1\]",
    ),
    "44 barrier after a stall": MissedGuard(
        _barrier, a_leader_wakes_deposed, "assert 0 == <ErrorCode.NOT_LEADER_OR_FOLLOWER"
    ),
    "45 idempotent registration": MissedGuard(
        _idempotent_registration,
        a_broker_that_has_lost_its_links_says_again_who_it_is,
        "must have another broker id",
    ),
}


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_that_is_taken_out_is_missed(name: str, monkeypatch: Patch) -> None:
    missed = GUARDS[name]
    missed.course()
    missed.take_out(monkeypatch)
    with pytest.raises(AssertionError, match=missed.complaint):
        missed.course()


@pytest.mark.parametrize("half", [_no_lease, _stalls_unnoticed])
def test_lease_and_noticed_stall_hide_each_other(
    half: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    """Guard 44 has two parts, and each alone is enough. A noticed stall closes the read barrier,
    and so does the end of the lease."""
    half(monkeypatch)
    a_leader_wakes_deposed()
