"""A client that sends something that is no request: earlier answers are sent, then it is closed."""

import struct
from collections.abc import Iterator

import pytest

from broker.sessions.call import RequestingSession
from broker.sessions.pipeline import Slot
from protocol.errors import WireError
from protocol.messages.api import ApiKey
from tests.unit.broker.sessions.test_session import World, frame

PRODUCE, METADATA = ApiKey.PRODUCE, ApiKey.METADATA

NO_REQUEST = 99
"""The number of a frame that cannot be decoded."""


class FaultyWorld(World):
    """A world with a dispatcher that answers each Metadata at once and decodes no `NO_REQUEST`."""

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, waited_ns: int = 0
    ) -> None:
        key, number = struct.unpack_from(">hi", frame)
        if number == NO_REQUEST:
            raise WireError("made by the test")
        super().start(session, slot, frame, waited_ns)
        if key == METADATA:
            slot.answer = (struct.pack(">i", number),)

    def settle(self) -> None:
        super().settle()
        for key, number in self.started:
            if key == PRODUCE and self.stages and self.slots[number].answer is None:
                self.slots[number].answer = (struct.pack(">i", number),)


@pytest.fixture
def world() -> Iterator[FaultyWorld]:
    world = FaultyWorld()
    yield world
    world.session.close("over", is_logged=False)
    world.loop.close()


def test_an_answer_of_the_same_read_is_sent_before_the_close(world: FaultyWorld) -> None:
    world.arrive(frame(METADATA, 0) + frame(METADATA, NO_REQUEST))
    assert world.sent() == [0]
    assert world.session.is_closed and world.is_aborted()


def test_the_answers_that_a_waiting_frame_follows_are_sent_before_the_close(
    world: FaultyWorld,
) -> None:
    """All later frames wait for the Produce. The last of them is no request."""
    world.arrive(
        frame(PRODUCE, 0) + frame(METADATA, 1) + frame(METADATA, 2) + frame(METADATA, NO_REQUEST)
    )
    assert world.started == [(PRODUCE, 0)]
    world.answer(0)
    assert world.sent() == [0, 1, 2]
    assert world.session.is_closed and world.is_aborted()


def test_a_staged_produce_is_written_and_answered_before_the_close(world: FaultyWorld) -> None:
    world.stages = True
    world.arrive(frame(PRODUCE, 0) + frame(PRODUCE, NO_REQUEST))
    assert world.settled == [1]
    assert world.sent() == [0]
    assert world.session.is_closed


def test_an_answer_behind_one_that_is_not_ready_is_not_sent(world: FaultyWorld) -> None:
    """The client would take it for the answer to the earlier request."""
    world.arrive(frame(PRODUCE, 0) + frame(PRODUCE, 1))
    world.slots[1].answer = (struct.pack(">i", 1),)
    world.arrive(frame(PRODUCE, NO_REQUEST))
    assert world.session.is_closed
    assert world.sent() == []
