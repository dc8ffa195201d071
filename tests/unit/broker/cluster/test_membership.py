"""A broker's own view of its membership: its requests, and when it may answer reads."""

from __future__ import annotations

from typing import Any

import pytest

from broker.cluster.held_id import DUPLICATE_PATIENCE_MS, RETRY_MS_MAX
from broker.cluster.membership import (
    HEARTBEAT_MS,
    READ_LEASE_MS,
    RETRY_MS_MIN,
    STOP_HEARTBEAT_MS,
    STOP_PATIENCE_MS,
    BrokerMembership,
)
from broker.cluster.membership_effects import (
    BrokerFenced,
    BrokerRefused,
    BrokerRegistered,
    BrokerUnfenced,
    Effect,
    MayStop,
    SendRequest,
)
from broker.metadata.broker_image import BrokerImage
from protocol.errors import ErrorCode
from protocol.messages.membership import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    DamagedTopic,
)
from protocol.types import NO_LEADER_EPOCH, NO_NODE, TopicPartition, Uuid

NODE, CONTROLLER, OTHER = 2, 1, 3
INCARNATION = Uuid(int=0xA)
EPOCH = 40


class Scene:
    """A broker, its clock and its requests. The test changes the metadata."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.core = BrokerMembership(
            BrokerRegistrationRequest(broker_id=NODE, incarnation_id=INCARNATION)
        )
        self.asked: SendRequest | None = None
        self.told: list[Effect] = []
        self.end_offset = EPOCH

    def note(self, effects: Any) -> None:
        for effect in effects:
            if isinstance(effect, SendRequest):
                self.asked = effect
            else:
                self.told.append(effect)

    def follows(self, node_id: int = CONTROLLER, epoch: int = 5) -> None:
        self.note(self.core.controller(node_id, epoch, self.now_ms))

    def passes(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.note(self.core.tick(self.now_ms))

    def message(self) -> Any:
        """Return the pending request. Fail if there is none."""
        assert self.asked is not None, "nothing is asked"
        return self.asked.message

    def is_asking(self) -> bool:
        return self.asked is not None

    def answers(self, answer: Any) -> None:
        asked, self.asked = self.asked, None
        assert asked is not None, "nothing is asked"
        self.note(self.core.answered(asked.number, answer, self.now_ms))

    def registers(self, broker_epoch: int = EPOCH) -> None:
        self.answers(BrokerRegistrationResponse(broker_epoch=broker_epoch))

    def beats(self, *, fenced: bool = False, end_offset: int = 0, stop: bool = False) -> None:
        self.answers(
            BrokerHeartbeatResponse(
                is_fenced=fenced, metadata_end_offset=end_offset, should_shut_down=stop
            )
        )

    def fails(self, *, is_late: bool = False) -> None:
        asked, self.asked = self.asked, None
        assert asked is not None
        self.note(self.core.failed(asked.number, is_late, self.now_ms))

    def replays(
        self, *, fenced: bool, epoch: int = EPOCH, stopping: int = 0, others: int = 2
    ) -> None:
        """Replay metadata in which `others` are in service too. The first `stopping` of them are
        shutting down."""
        self.end_offset += 1
        own = BrokerImage(NODE, INCARNATION, epoch, {}, None, is_fenced=fenced)
        known = [
            BrokerImage(
                NODE + 1 + one,
                INCARNATION,
                1,
                {},
                None,
                is_fenced=False,
                is_stopping=one < stopping,
            )
            for one in range(others)
        ]
        self.note(self.core.replayed(self.end_offset, own, known, self.now_ms))

    @property
    def may_read(self) -> bool:
        return self.core.may_read(self.now_ms)

    @property
    def refusal(self) -> str:
        assert isinstance(self.told[-1], BrokerRefused)
        assert self.core.next_deadline_ms is None
        return self.told[-1].text


def in_service() -> Scene:
    """Return a scene whose broker is in service and may answer reads."""
    scene = Scene()
    scene.follows()
    scene.registers()
    scene.beats(fenced=True)
    scene.replays(fenced=True)
    scene.note(scene.core.ready(scene.now_ms))
    scene.beats(fenced=True)
    scene.beats(end_offset=scene.end_offset + 1)
    scene.replays(fenced=False)
    scene.told.clear()
    assert scene.may_read
    return scene


def test_it_registers_replays_and_comes_into_service() -> None:
    scene = Scene()
    scene.passes(10_000)
    assert not scene.is_asking() and scene.core.next_deadline_ms is None
    scene.follows()
    assert isinstance(scene.message(), BrokerRegistrationRequest)
    scene.registers()
    first = scene.message()
    assert isinstance(first, BrokerHeartbeatRequest)
    assert (first.broker_epoch, first.want_fence, first.current_metadata_offset) == (
        EPOCH,
        True,
        -1,
    )
    scene.beats(fenced=True)
    assert not scene.is_asking() and scene.told == []
    # The broker replays its own registration, so it reports this and sends a heartbeat at once.
    scene.replays(fenced=True)
    assert scene.told == [BrokerRegistered(EPOCH)]
    assert scene.message().current_metadata_offset == EPOCH
    # The broker becomes ready while a heartbeat is in flight. So the next heartbeat asks to unfence
    # it.
    scene.note(scene.core.ready(scene.now_ms))
    assert scene.message().want_fence
    scene.beats(fenced=True)
    assert not scene.message().want_fence
    scene.beats()
    scene.replays(fenced=False)
    assert scene.told == [BrokerRegistered(EPOCH), BrokerUnfenced()]
    assert not scene.is_asking()
    scene.passes(HEARTBEAT_MS - 1)
    assert not scene.is_asking()
    scene.passes(1)
    assert isinstance(scene.message(), BrokerHeartbeatRequest)


def test_every_heartbeat_names_what_is_damaged() -> None:
    scene = in_service()
    found = {TopicPartition("b", 0), TopicPartition("a", 3), TopicPartition("a", 1)}
    scene.note(scene.core.damaged(found, scene.now_ms))
    named = [DamagedTopic(name="a", partitions=[1, 3]), DamagedTopic(name="b", partitions=[0])]
    assert scene.message().damaged == named
    scene.beats()
    assert not scene.is_asking()
    # The same partitions, or fewer of them, are not worth an early heartbeat.
    scene.note(scene.core.damaged(found, scene.now_ms))
    scene.note(scene.core.damaged({TopicPartition("b", 0)}, scene.now_ms))
    assert not scene.is_asking()
    scene.passes(HEARTBEAT_MS)
    assert scene.message().damaged == named[1:]


def test_the_metadata_may_be_quicker_than_the_answer() -> None:
    scene = Scene()
    scene.follows()
    scene.replays(fenced=True)
    assert scene.told == []
    scene.registers()
    assert scene.told == [BrokerRegistered(EPOCH)]


@pytest.mark.parametrize("how", ["controller", "link", "refusal", "failure"])
def test_it_registers_again_wherever_its_connection_may_be_unknown(how: str) -> None:
    scene = in_service()
    scene.passes(HEARTBEAT_MS)
    if how == "controller":
        scene.follows(OTHER, 6)
        assert scene.asked is not None and scene.asked.node_id == OTHER
    elif how == "link":
        scene.beats()
        scene.note(scene.core.link_lost(CONTROLLER, scene.now_ms))
    elif how == "refusal":
        scene.answers(BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER))
        scene.passes(RETRY_MS_MIN)
    else:
        scene.fails()
        scene.passes(RETRY_MS_MIN)
    assert isinstance(scene.message(), BrokerRegistrationRequest)
    scene.registers()
    assert isinstance(scene.message(), BrokerHeartbeatRequest)
    assert scene.told == []


def test_a_late_answer_is_no_lost_link_and_that_of_another_time_is_none() -> None:
    scene = in_service()
    scene.passes(HEARTBEAT_MS)
    late = scene.asked
    assert late is not None
    scene.fails(is_late=True)
    scene.passes(RETRY_MS_MIN)
    assert isinstance(scene.message(), BrokerHeartbeatRequest)
    answer = BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    scene.note(scene.core.answered(late.number, answer, scene.now_ms))
    scene.note(scene.core.failed(late.number, False, scene.now_ms))
    assert scene.told == []


def test_the_end_of_a_link_to_somebody_else_is_nothing() -> None:
    scene = in_service()
    scene.note(scene.core.link_lost(OTHER, scene.now_ms))
    assert not scene.is_asking()


def test_it_asks_again_after_waits_that_double() -> None:
    scene = Scene()
    scene.follows()
    wait_ms = RETRY_MS_MIN
    for _ in range(8):
        scene.answers(BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER))
        scene.passes(wait_ms - 1)
        assert not scene.is_asking()
        scene.passes(1)
        assert scene.is_asking()
        wait_ms = min(2 * wait_ms, RETRY_MS_MAX)
    scene.follows(NO_NODE, NO_LEADER_EPOCH)
    scene.asked = None
    scene.passes(60_000)
    assert not scene.is_asking()
    scene.follows(OTHER, 7)
    scene.answers(BrokerRegistrationResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR))
    assert scene.core.next_deadline_ms == scene.now_ms + RETRY_MS_MIN


# Refusals.


@pytest.mark.parametrize("code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REQUEST])
def test_what_waiting_does_not_change_ends_it_with_the_controllers_sentence(
    code: ErrorCode,
) -> None:
    scene = Scene()
    scene.follows()
    scene.answers(BrokerRegistrationResponse(error_code=code, error_message="both sides"))
    assert scene.refusal == "both sides"
    scene.passes(60_000)
    assert not scene.is_asking()


def test_an_id_that_is_held_is_waited_for_and_then_given_up() -> None:
    scene = Scene()
    scene.follows()
    held = BrokerRegistrationResponse(
        error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION, error_message="it lives"
    )
    began_ms = scene.now_ms
    while scene.now_ms - began_ms < DUPLICATE_PATIENCE_MS:
        scene.answers(held)
        assert scene.told == []
        scene.passes(RETRY_MS_MAX)
    # The next controller can give the other process a new session, so this process starts its wait
    # again.
    scene.follows(OTHER, 6)
    scene.answers(held)
    assert scene.told == []
    while scene.told == []:
        scene.passes(RETRY_MS_MAX)
        scene.answers(held)
    assert scene.refusal == "it lives"


def test_a_controller_that_does_not_answer_holds_no_id() -> None:
    """A stalled controller does not expire the session of the former process. So time without
    answers does not count for the broker's patience."""
    scene = Scene()
    scene.follows()
    held = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    scene.answers(held)
    for _ in range(4):
        scene.passes(DUPLICATE_PATIENCE_MS)
        scene.answers(held)
        assert scene.told == []


def test_whoever_was_registered_waits_for_no_other_process() -> None:
    scene = in_service()
    scene.note(scene.core.link_lost(CONTROLLER, scene.now_ms))
    scene.answers(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    assert scene.refusal == "DUPLICATE_BROKER_REGISTRATION"
    assert not scene.may_read


def test_a_stale_epoch_ends_it() -> None:
    scene = in_service()
    scene.passes(HEARTBEAT_MS)
    scene.answers(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert "Only one process may run under an id" in scene.refusal


def test_a_later_registration_in_the_metadata_ends_it() -> None:
    scene = in_service()
    scene.replays(fenced=True, epoch=EPOCH + 9)
    assert "Only one process may run under an id" in scene.refusal


def test_whoever_was_taken_out_ends() -> None:
    scene = in_service()
    scene.note(scene.core.replayed(99, None, [], scene.now_ms))
    assert "taken out of the cluster" in scene.refusal
    scene = in_service()
    scene.note(scene.core.link_lost(CONTROLLER, scene.now_ms))
    scene.registers(EPOCH + 20)
    assert "restart it" in scene.refusal


# Stopping.


def test_it_stops_when_the_controller_lets_it() -> None:
    scene = in_service()
    scene.note(scene.core.stop(scene.now_ms))
    assert scene.message().want_shut_down
    scene.beats()
    scene.passes(STOP_HEARTBEAT_MS)
    scene.beats(fenced=True, stop=True)
    assert scene.told == [MayStop()]
    scene.replays(fenced=True)
    assert scene.told == [MayStop(), BrokerFenced()]
    scene.beats(fenced=True, stop=True)
    assert scene.told == [MayStop(), BrokerFenced()]


def test_it_stops_at_once_when_nobody_could_take_over() -> None:
    for others, stopping in ((0, 0), (2, 2)):
        scene = in_service()
        scene.replays(fenced=False, others=others, stopping=stopping)
        if scene.is_asking():
            scene.beats()
        scene.note(scene.core.stop(scene.now_ms))
        assert scene.told == [MayStop()]
    scene = in_service()
    scene.replays(fenced=False)
    scene.note(scene.core.stop(scene.now_ms))
    assert scene.told == []
    scene.replays(fenced=False, others=0)
    assert scene.told == [MayStop()], "the last of the others has gone meanwhile"


def test_it_stops_without_a_controller_when_none_is_heard_of_for_long() -> None:
    scene = in_service()
    scene.replays(fenced=False)
    began_ms = scene.now_ms
    scene.note(scene.core.stop(scene.now_ms))
    scene.fails()
    while scene.told == []:
        deadline_ms = scene.core.next_deadline_ms
        assert deadline_ms is not None
        scene.now_ms = max(deadline_ms, scene.now_ms)
        scene.note(scene.core.tick(scene.now_ms))
        if scene.is_asking():
            scene.fails()
    assert scene.told == [MayStop()]
    assert scene.now_ms - began_ms == STOP_PATIENCE_MS
    # The broker sends heartbeats until its process ends.
    assert scene.core.next_deadline_ms is not None


def test_an_answer_renews_the_patience_of_one_that_stops() -> None:
    scene = in_service()
    scene.replays(fenced=False)
    scene.note(scene.core.stop(scene.now_ms))
    for _ in range(2 * STOP_PATIENCE_MS // STOP_HEARTBEAT_MS):
        scene.beats()
        scene.passes(STOP_HEARTBEAT_MS)
    assert scene.told == []


def test_whoever_is_in_service_no_more_stops_at_once() -> None:
    scene = in_service()
    scene.replays(fenced=True)
    scene.told.clear()
    scene.note(scene.core.stop(scene.now_ms))
    assert scene.told == [MayStop()]


def test_others_say_at_once_that_they_have_heard_of_a_stop() -> None:
    scene = in_service()
    scene.replays(fenced=False, stopping=1)
    assert scene.message().current_metadata_offset == scene.end_offset - 1
    scene.beats()
    scene.replays(fenced=False, stopping=1)
    assert not scene.is_asking()


# The barrier.


def test_reads_are_answered_for_a_lease_from_the_sending() -> None:
    scene = in_service()
    scene.passes(HEARTBEAT_MS)
    sent_ms = scene.now_ms
    scene.now_ms += 1_500
    scene.beats()
    scene.now_ms = sent_ms + READ_LEASE_MS - 1
    assert scene.may_read
    scene.now_ms += 1
    assert not scene.may_read


def test_reads_wait_for_all_that_the_controller_knew() -> None:
    scene = in_service()
    scene.now_ms += READ_LEASE_MS
    scene.note(scene.core.tick(scene.now_ms))
    scene.beats(end_offset=scene.end_offset + 2)
    assert not scene.may_read
    scene.replays(fenced=False)
    assert not scene.may_read
    scene.replays(fenced=False)
    assert scene.may_read


def test_an_older_heartbeat_opens_while_a_newer_one_waits() -> None:
    scene = in_service()
    for ahead in (1, 5):
        scene.now_ms += HEARTBEAT_MS
        scene.note(scene.core.tick(scene.now_ms))
        scene.beats(end_offset=scene.end_offset + ahead)
    scene.now_ms += 600
    assert not scene.may_read
    scene.replays(fenced=False)
    assert scene.may_read


def test_a_heartbeat_of_one_that_is_fenced_opens_nothing() -> None:
    scene = in_service()
    scene.now_ms += READ_LEASE_MS
    scene.note(scene.core.tick(scene.now_ms))
    scene.beats(fenced=True)
    assert not scene.may_read


def test_after_a_stall_only_what_was_sent_behind_it_counts() -> None:
    scene = in_service()
    scene.passes(HEARTBEAT_MS)
    scene.now_ms += 700
    scene.note(scene.core.stalled(scene.now_ms))
    assert not scene.may_read
    scene.beats()
    assert not scene.may_read
    # The heartbeat answered above was sent before the stall. The answer below is to a heartbeat
    # that was sent after it.
    scene.beats()
    assert scene.may_read


def test_whoever_is_taken_for_dead_says_that_it_lives_and_does_not_read_until_heard() -> None:
    scene = in_service()
    scene.replays(fenced=True)
    assert scene.told == [BrokerFenced()]
    assert not scene.may_read
    assert not scene.message().want_fence
    scene.beats()
    scene.replays(fenced=False)
    assert scene.told == [BrokerFenced(), BrokerUnfenced()]
    assert scene.may_read
