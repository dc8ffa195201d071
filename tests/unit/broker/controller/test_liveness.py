"""The controller fences dead brokers. Broker 1 is the controller.

Times are in ms of the monotonic clock, without the time in which the controller's process stalled.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from broker.controller.liveness import (
    SESSION_TIMEOUT_MS,
    BrokerProbe,
    DeadBroker,
    Liveness,
    to_be_fenced,
)
from broker.controller.registration import register
from broker.controller.registration_checks import RegistrationFacts
from broker.controller.suspicion import RECONNECT_MS, ProbeVerdict
from broker.metadata.image import MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.membership import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    DamagedTopic,
)
from tests.unit.broker.controller.kit import (
    CLUSTER,
    CONFIG,
    NODES,
    ONE,
    THREE,
    TWO,
    after,
    image_of,
    incarnation,
    one_of,
    partition,
    registration,
)

LINK = 1


class Scene:
    """The controller on broker 1, and brokers that send requests to it. The test answers the
    probes."""

    def __init__(self, image: MetadataImage | None = None) -> None:
        self.now_ms = 0
        self.image = image or image_of(partition())
        self.liveness = Liveness(ONE)
        self.probes = self.liveness.took_over(self.image, None, self.now_ms)
        self.links = dict.fromkeys(NODES, LINK)

    def connected(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.links[node_id] += 1
            known = self.image.brokers[node_id].incarnation_id
            self.liveness.connected(node_id, known, self.links[node_id])

    def beats(
        self,
        node_id: int,
        *,
        offset: int | None = None,
        fence: bool = False,
        stop: bool = False,
        damaged: Sequence[DamagedTopic] = (),
    ) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=node_id,
            broker_epoch=self.image.brokers[node_id].broker_epoch,
            current_metadata_offset=self.image.end_offset - 1 if offset is None else offset,
            want_fence=fence,
            want_shut_down=stop,
            damaged=list(damaged),
        )
        outcome = self.liveness.heartbeat(
            request, self.image, CONFIG, self.links[node_id], self.now_ms
        )
        self.image = after(self.image, outcome.records)
        return outcome.reply

    def closed(self, node_id: int) -> BrokerProbe:
        probe = self.liveness.closed(node_id, self.links[node_id], self.now_ms)
        assert probe is not None
        return probe

    def dead_at(self, now_ms: int) -> list[int]:
        self.now_ms = now_ms
        return [one.node_id for one in self.liveness.dead(now_ms)]


def connected_scene() -> Scene:
    scene = Scene()
    scene.connected(*NODES)
    return scene


def test_a_session_lasts_from_heartbeat_to_heartbeat() -> None:
    scene = connected_scene()
    scene.now_ms = SESSION_TIMEOUT_MS - 1
    scene.beats(ONE)
    scene.beats(TWO)
    assert scene.dead_at(SESSION_TIMEOUT_MS - 1) == []
    assert scene.liveness.next_deadline_ms == SESSION_TIMEOUT_MS
    assert scene.dead_at(SESSION_TIMEOUT_MS) == [THREE]
    assert scene.dead_at(2 * SESSION_TIMEOUT_MS - 2) == []
    assert scene.dead_at(2 * SESSION_TIMEOUT_MS - 1) == [ONE, TWO]
    assert scene.liveness.next_deadline_ms is None


def test_a_refused_address_is_dead_there_and_then() -> None:
    scene = connected_scene()
    probe = scene.closed(TWO)
    broker_epoch = scene.image.brokers[TWO].broker_epoch
    assert scene.liveness.probed(probe, ProbeVerdict.REFUSED, 1) == DeadBroker(TWO, broker_epoch)
    assert not scene.liveness.is_live(TWO, 1)
    assert scene.dead_at(SESSION_TIMEOUT_MS - 1) == []


@pytest.mark.parametrize("verdict", [ProbeVerdict.SILENT, ProbeVerdict.UNREACHABLE, None])
def test_who_gives_no_sign_has_half_a_second_to_come_back(verdict: ProbeVerdict | None) -> None:
    scene = connected_scene()
    scene.now_ms = 100
    probe = scene.closed(TWO)
    if verdict is not None:
        assert scene.liveness.probed(probe, verdict, 200) is None
    assert scene.liveness.next_deadline_ms == 100 + RECONNECT_MS
    assert scene.dead_at(99 + RECONNECT_MS) == []
    assert scene.dead_at(100 + RECONNECT_MS) == [TWO]


@pytest.mark.parametrize("verdict", [ProbeVerdict.ACCEPTED, ProbeVerdict.UNRESOLVED])
def test_an_open_listener_and_a_name_unknown_leave_it_to_the_session(verdict: ProbeVerdict) -> None:
    scene = connected_scene()
    probe = scene.closed(TWO)
    assert scene.liveness.probed(probe, verdict, 1) is None
    scene.beats(ONE)
    assert scene.dead_at(SESSION_TIMEOUT_MS - 1) == []
    assert TWO in scene.dead_at(SESSION_TIMEOUT_MS)


def test_an_address_that_accepts_is_probed_again_until_it_refuses() -> None:
    """Linux may close the connections of a killed process before its listeners. So an address that
    accepts does not prove that the process lives."""
    scene = connected_scene()
    probe, now_ms, waited_ms = scene.closed(TWO), 0, []
    for _ in range(7):
        assert scene.liveness.probed(probe, ProbeVerdict.ACCEPTED, now_ms) is None
        due_ms = scene.liveness.next_deadline_ms
        assert due_ms is not None
        assert scene.liveness.probes_due(due_ms - 1) == []
        (again,) = scene.liveness.probes_due(due_ms)
        assert scene.liveness.probes_due(due_ms) == []
        assert again.number > probe.number
        waited_ms.append(due_ms - now_ms)
        probe, now_ms = again, due_ms
    assert waited_ms == [20, 40, 80, 160, 320, RECONNECT_MS, RECONNECT_MS]
    assert scene.liveness.probed(probe, ProbeVerdict.REFUSED, now_ms) is not None


def test_who_has_come_back_is_not_probed_again() -> None:
    scene = connected_scene()
    scene.liveness.probed(scene.closed(TWO), ProbeVerdict.ACCEPTED, 0)
    scene.connected(TWO)
    assert scene.liveness.probes_due(SESSION_TIMEOUT_MS) == []


@pytest.mark.parametrize("comes_back", ["connected", "beats"])
@pytest.mark.parametrize("verdict", ProbeVerdict)
def test_no_verdict_counts_once_the_broker_is_back(comes_back: str, verdict: ProbeVerdict) -> None:
    scene = connected_scene()
    probe = scene.closed(TWO)
    scene.links[TWO] += 1
    getattr(scene, comes_back)(TWO)
    assert scene.liveness.probed(probe, verdict, 1) is None
    assert scene.dead_at(RECONNECT_MS) == []


def test_another_incarnation_does_not_come_back_for_the_first() -> None:
    scene = connected_scene()
    scene.closed(TWO)
    scene.liveness.connected(TWO, incarnation(TWO, 5), 9)
    assert scene.dead_at(RECONNECT_MS) == [TWO]


def test_the_end_of_an_older_connection_says_nothing() -> None:
    scene = connected_scene()
    older = scene.links[TWO]
    scene.connected(TWO)
    assert scene.liveness.closed(TWO, older, 0) is None
    assert scene.dead_at(RECONNECT_MS) == []


def test_a_verdict_of_an_older_probe_says_nothing() -> None:
    scene = connected_scene()
    first = scene.closed(TWO)
    scene.connected(TWO)
    second = scene.closed(TWO)
    assert scene.liveness.probed(first, ProbeVerdict.REFUSED, 0) is None
    assert scene.liveness.probed(second, ProbeVerdict.REFUSED, 0) is not None


def test_a_new_controller_probes_its_predecessor_first_and_itself_never() -> None:
    liveness = Liveness(ONE)
    probes = liveness.took_over(image_of(partition()), THREE, 0)
    assert [probe.node_id for probe in probes] == [THREE, TWO]


def test_a_new_controller_gives_everybody_a_full_session() -> None:
    """Otherwise a change of controllers would fence a healthy cluster (guard 42)."""
    scene = Scene()
    for probe in scene.probes:
        assert scene.liveness.probed(probe, ProbeVerdict.ACCEPTED, 50) is None
    assert scene.dead_at(SESSION_TIMEOUT_MS - 1) == []


def test_a_new_controller_holds_the_id_of_who_has_registered_but_is_not_in_service_yet() -> None:
    """Otherwise a request of a killed process, read by the new controller, could take the id from
    its successor.

    A refused probe frees the id immediately. A probe without an answer frees it after the usual
    time.
    """
    scene = Scene(image_of(partition(), active=(ONE, TWO)))
    assert scene.liveness.is_live(THREE, RECONNECT_MS - 1)
    assert not scene.liveness.is_live(THREE, RECONNECT_MS)
    assert scene.liveness.unfenced_for_ms(THREE, 70) == 0
    gone = [one for one in scene.probes if one.node_id == THREE]
    assert scene.liveness.probed(gone[0], ProbeVerdict.REFUSED, 1) == DeadBroker(THREE, THREE - 1)
    assert not scene.liveness.is_live(THREE, 1)


def test_a_new_controller_fences_who_does_not_answer() -> None:
    scene = Scene()
    two, three = scene.probes
    assert scene.liveness.probed(two, ProbeVerdict.REFUSED, 20) is not None
    assert scene.liveness.probed(three, ProbeVerdict.UNREACHABLE, 30) is None
    assert scene.dead_at(29 + RECONNECT_MS) == []
    assert scene.dead_at(30 + RECONNECT_MS) == [THREE]


def test_an_id_is_held_while_its_connection_is_open_or_a_moment_closed() -> None:
    scene = connected_scene()
    assert scene.liveness.is_live(TWO, SESSION_TIMEOUT_MS - 1)
    assert not scene.liveness.is_live(TWO, SESSION_TIMEOUT_MS)
    probe = scene.closed(TWO)
    # The listener that accepts can be that of the broker's next process, which must get the id
    # soon.
    scene.liveness.probed(probe, ProbeVerdict.ACCEPTED, 1)
    assert scene.liveness.is_live(TWO, RECONNECT_MS - 1)
    assert not scene.liveness.is_live(TWO, RECONNECT_MS)


def test_only_the_dead_that_are_still_registered_so_are_fenced() -> None:
    image = image_of(partition(), active=(ONE, TWO))
    dead = [DeadBroker(ONE, 0), DeadBroker(TWO, 0), DeadBroker(THREE, 2), DeadBroker(4, 3)]
    assert to_be_fenced(dead, image) == [DeadBroker(ONE, 0)]


def test_a_registered_broker_is_unfenced_when_it_has_replayed_its_registration() -> None:
    scene = connected_scene()
    facts = RegistrationFacts(CLUSTER, is_live=False, voter_directory=None)
    scene.image = after(
        scene.image, register(registration(TWO), scene.image, CONFIG, facts).records
    )
    broker_epoch = scene.image.brokers[TWO].broker_epoch
    behind = scene.beats(TWO, offset=broker_epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    waiting = scene.beats(TWO, offset=broker_epoch, fence=True)
    assert (waiting.is_caught_up, waiting.is_fenced) == (True, True)
    ready = scene.beats(TWO, offset=broker_epoch)
    assert (ready.is_fenced, scene.image.brokers[TWO].is_fenced) == (False, False)
    assert scene.liveness.unfenced_for_ms(TWO, 70) == 70


def test_what_comes_late_on_an_older_connection_is_not_heard() -> None:
    """The broker can have sent this request before it was ready, so the request would fence the
    broker again."""
    scene = connected_scene()
    old = scene.links[TWO]
    scene.connected(TWO)
    scene.links[TWO] = old
    with pytest.raises(ApiError) as refused:
        scene.beats(TWO, fence=True)
    assert refused.value.code is ErrorCode.NETWORK_EXCEPTION
    scene.liveness.connected(TWO, scene.image.brokers[TWO].incarnation_id, old)
    assert not scene.image.brokers[TWO].is_fenced
    # Only the end of the newer connection starts a probe.
    assert scene.liveness.closed(TWO, old, 0) is None
    assert scene.liveness.closed(TWO, old + 1, 0) is not None


def test_a_broker_may_ask_to_be_fenced() -> None:
    scene = connected_scene()
    assert scene.beats(ONE, fence=True).is_fenced
    assert scene.image.brokers[ONE].is_fenced
    assert one_of(scene.image).leader == TWO
    assert scene.liveness.unfenced_for_ms(ONE, 70) == 0


def test_whose_logs_are_damaged_stays_in_service_and_loses_these() -> None:
    scene = connected_scene()
    damaged = [DamagedTopic(name="logs", partitions=[0])]
    answer = scene.beats(ONE, damaged=damaged)
    assert not answer.is_fenced
    assert answer.metadata_end_offset == scene.image.end_offset
    assert one_of(scene.image).leader == TWO
    assert ONE not in one_of(scene.image).in_sync_replicas
    # A fenced broker leads no partition and is in no ISR, so its report changes nothing.
    scene.beats(TWO, fence=True)
    before = scene.image
    scene.beats(TWO, fence=True, damaged=damaged)
    assert scene.image == before
    # The broker must start its damaged log again. So it is unfenced together with a new leader
    # epoch.
    assert not scene.beats(TWO, damaged=damaged).is_fenced
    assert one_of(scene.image).leader == THREE
    assert one_of(scene.image).leader_epoch == one_of(before).leader_epoch + 1


@pytest.mark.parametrize(
    ("offset", "code"),
    [(-1, ErrorCode.STALE_BROKER_EPOCH), (1, ErrorCode.NOT_CONTROLLER)],
)
def test_a_heartbeat_of_another_registration_renews_nothing(offset: int, code: ErrorCode) -> None:
    scene = connected_scene()
    request = BrokerHeartbeatRequest(
        broker_id=TWO, broker_epoch=scene.image.brokers[TWO].broker_epoch + offset
    )
    with pytest.raises(ApiError) as refused:
        scene.liveness.heartbeat(request, scene.image, CONFIG, LINK, SESSION_TIMEOUT_MS - 1)
    assert refused.value.code is code
    assert TWO in scene.dead_at(SESSION_TIMEOUT_MS)


def test_a_broker_stops_when_it_leads_nothing_and_all_others_know() -> None:
    scene = connected_scene()
    for node_id in NODES:
        scene.beats(node_id)
    first = scene.beats(ONE, stop=True)
    assert (first.is_fenced, first.should_shut_down) == (False, False)
    assert one_of(scene.image).leader == TWO
    known = scene.image.end_offset - 1
    scene.beats(TWO, offset=known)
    scene.beats(THREE, offset=known - 1)
    assert not scene.beats(ONE, stop=True).should_shut_down
    scene.beats(THREE, offset=known)
    last = scene.beats(ONE, stop=True)
    assert (last.is_fenced, last.should_shut_down) == (True, True)
    assert scene.image.brokers[ONE].is_fenced
    assert scene.beats(ONE, stop=True).should_shut_down


def test_a_new_controller_lets_a_stopping_broker_go_once_all_know_what_it_knows() -> None:
    image = image_of(partition(isr=(TWO, THREE), leader=TWO))
    stopping = replace(image.brokers[ONE], is_stopping=True)
    scene = Scene(replace(image, brokers={**image.brokers, ONE: stopping}))
    assert not scene.beats(ONE, stop=True).should_shut_down
    scene.beats(TWO)
    scene.beats(THREE)
    assert scene.beats(ONE, stop=True).should_shut_down


def test_a_dead_broker_does_not_keep_another_from_stopping() -> None:
    scene = connected_scene()
    scene.beats(ONE, stop=True)
    scene.beats(TWO)
    probe = scene.closed(THREE)
    assert not scene.beats(ONE, stop=True).should_shut_down
    scene.liveness.probed(probe, ProbeVerdict.REFUSED, 0)
    assert scene.beats(ONE, stop=True).should_shut_down
