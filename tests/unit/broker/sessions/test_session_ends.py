"""A connection whose client has closed, and a connection that is not read for a while.

`Wire` plays the kernel between the two ends. It delivers sent bytes only while the connection
reads, many times in a row as libuv does. The end of the client's stream comes after all bytes.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
import uvloop

from broker.budget import TURN_GAP_NS
from protocol.messages.api import ApiKey
from protocol.wire.frame import READ_BYTES
from tests.harness.seed import seeded
from tests.unit.broker.sessions.test_session import World, frame, sweep

PRODUCE, FETCH, METADATA = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA

READS_IN_A_ROW = 32


class Wire(World):
    """A world in which the client's bytes wait in the kernel until they are read."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.kernel = b""
        self.has_client_ended = False
        self.is_silent = False
        """True if each request completes without an answer when its data is written."""
        self.reads_in_a_turn = 0
        self._done_count = 0

    def settle(self) -> None:
        super().settle()
        if self.is_silent:
            for _, number in self.started[self._done_count :]:
                self.slots[number].answer = ()
            self._done_count = len(self.started)

    def poll(self) -> None:
        """Poll the socket once, then run the deferred work."""
        self.reads_in_a_turn = 0
        while self.is_reading() and self.kernel and self.reads_in_a_turn < READS_IN_A_ROW:
            room = self.link.get_buffer(-1)
            data, self.kernel = self.kernel[: len(room)], self.kernel[len(room) :]
            room[: len(data)] = data
            self.reads_in_a_turn += 1
            self.link.buffer_updated(len(data))
        if self.is_reading() and not self.kernel and self.has_client_ended:
            self.has_client_ended = False
            self.transport.is_reading = False
            if not self.link.eof_received():
                self.link.connection_lost(None)
        self.turn()

    def send(self, data: bytes, *, ends: bool = False) -> None:
        """Send bytes, and optionally close the client's side."""
        self.kernel += data
        self.has_client_ended = ends
        self.go_on()

    def go_on(self) -> None:
        """Run the loop until nothing changes any more."""
        state: object = None
        while state != (state := (len(self.kernel), len(self.started), self.has_client_ended)):
            self.poll()

    def numbers(self) -> list[int]:
        return [number for _, number in self.started]

    def is_gone(self) -> bool:
        """Return True if the connection is closed and has no memory left."""
        held = self.sessions
        assert self.session.is_closed == (self.session not in held.open)
        assert not self.session.is_closed or held.buffer_bytes == 0
        return self.session.is_closed


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.session.close("over", is_logged=False)
    wire.loop.close()


def produces(count: int) -> bytes:
    return b"".join(frame(PRODUCE, number) for number in range(count))


# The end of a client.


@pytest.mark.parametrize("count", [1, 64, 65, 20_000])
def test_a_client_that_sends_and_ends_loses_nothing(wire: Wire, count: int) -> None:
    wire.stages = wire.is_silent = True
    wire.send(produces(count), ends=True)
    assert wire.numbers() == list(range(count))
    assert wire.is_gone()


def test_nothing_is_lost_when_the_turn_ends_before_the_frames(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = count_turns(wire, monkeypatch, 15_000_000)
    wire.stages = wire.is_silent = True
    wire.send(produces(100), ends=True)
    assert wire.numbers() == list(range(100))
    assert wire.is_gone()
    assert now_ns[0] == 100 * 15_000_000


def test_what_waits_in_line_is_done_and_answered(wire: Wire) -> None:
    wire.send(frame(PRODUCE, 0) + frame(METADATA, 1) + frame(PRODUCE, 2), ends=True)
    assert wire.numbers() == [0]
    for number in range(3):
        assert not wire.is_gone()
        wire.answer(number)
        assert wire.sent() == [number]
    assert wire.is_gone()


def test_who_wants_to_hear_of_the_end_hears_it_once_and_before_the_last_request(wire: Wire) -> None:
    heard: list[list[int]] = []
    wire.session.on_end(lambda: heard.append(wire.numbers()))
    wire.send(frame(METADATA, 0))
    assert heard == []
    # Request 0 is still being served, but the end of its client is reported at once.
    wire.send(frame(METADATA, 1), ends=True)
    assert heard == [[0]]
    assert wire.session.has_ended
    wire.answer(0)
    wire.answer(1)
    assert wire.is_gone()
    assert len(heard) == 1


def test_an_end_from_this_side_is_told_as_well(wire: Wire) -> None:
    heard: list[bool] = []
    wire.session.on_end(lambda: heard.append(wire.session.has_ended))
    wire.session.close("over", is_logged=False)
    assert heard == [True]


def test_half_a_frame_at_the_end_is_no_request(wire: Wire) -> None:
    wire.send(frame(METADATA, 0)[:9], ends=True)
    assert wire.is_gone()
    assert wire.started == []


def test_half_a_frame_behind_whole_ones_waits_for_nothing(wire: Wire) -> None:
    wire.send(frame(PRODUCE, 0) + frame(METADATA, 1)[:9], ends=True)
    # The rest of the second frame never comes. The connection is open only for the first answer.
    assert not sweep(wire, 100_000)
    wire.answer(0)
    assert wire.sent() == [0]
    assert wire.is_gone()


def test_a_client_that_ends_at_rest_is_gone_at_once(wire: Wire) -> None:
    wire.send(frame(METADATA, 0))
    wire.answer(0)
    wire.send(b"", ends=True)
    assert wire.is_gone()


def test_a_reset_takes_nothing_back(wire: Wire) -> None:
    wire.send(frame(PRODUCE, 0) + frame(METADATA, 1) + frame(METADATA, 2))
    wire.link.connection_lost(ConnectionResetError())
    assert not wire.is_gone()
    for number in range(3):
        assert not wire.is_gone()
        wire.answer(number)
    assert wire.numbers() == [0, 1, 2]
    assert wire.is_gone()
    assert wire.sent() == []


@pytest.mark.parametrize("count", [3, 1_000])
def test_requests_are_done_though_nobody_takes_their_answers(wire: Wire, count: int) -> None:
    wire.client.close()
    wire.kernel = produces(count)
    wire.has_client_ended = True
    wire.go_on()
    for number in range(count):
        assert not wire.is_gone()
        wire.answer(number)
        wire.go_on()
    assert wire.numbers() == list(range(count))
    assert wire.is_gone()


def test_a_parked_fetch_does_not_keep_the_connection(wire: Wire) -> None:
    wire.parks_fetches = True
    wire.send(frame(METADATA, 0) + frame(FETCH, 1))
    wire.answer(0)
    parked = wire.session.parked_fetch
    wire.send(b"", ends=True)
    assert wire.forgotten == [parked]
    assert wire.is_gone()
    assert wire.sent() == [0]


def test_what_stands_behind_a_dropped_fetch_is_done_and_not_answered(wire: Wire) -> None:
    wire.parks_fetches = True
    wire.send(
        frame(METADATA, 0) + frame(FETCH, 1) + frame(FETCH, 2) + frame(METADATA, 3)
        + frame(METADATA, 4),
        ends=True,
    )  # fmt: skip
    wire.answer(0)
    # Fetches that would be parked after the end of the client are dropped too.
    assert wire.numbers() == [0, 1, 2, 3]
    assert len(wire.forgotten) == 2
    wire.answer(3)
    assert wire.numbers() == [0, 1, 2, 3, 4]
    wire.answer(4)
    assert wire.is_gone()
    # No later answer is sent, because the client would take it for the answer to request 1.
    assert wire.sent() == [0]


def test_a_half_closed_client_that_takes_no_answer_is_closed_in_the_end() -> None:
    wire = Wire(connection_max_unread_bytes=100_000_000)
    wire.send(frame(METADATA, 0) + frame(METADATA, 1), ends=True)
    wire.slots[0].answer = (bytes(5_000_000),)
    wire.session.answered()
    wire.turn()
    wire.answer(1)
    assert not sweep(wire, 600_000)
    assert sweep(wire, 1)
    assert wire.is_gone()
    wire.loop.close()


def test_a_half_closed_client_gets_a_large_answer_to_its_end(wire: Wire) -> None:
    wire.send(frame(METADATA, 0), ends=True)
    wire.slots[0].answer = (bytes(5_000_000),)
    wire.session.answered()
    received = 0
    while not wire.is_gone():
        wire.turn()
        received += len(wire.client.recv(1 << 20))
    while received < 5_000_000:
        received += len(wire.client.recv(1 << 20))
    assert received == 5_000_000


def test_a_connection_counts_until_its_work_is_done() -> None:
    wire = Wire(max_connections=1)
    wire.send(frame(PRODUCE, 0), ends=True)
    assert wire.sessions.admit(wire.session, 0) == "max.connections 1 is reached"
    wire.answer(0)
    assert wire.is_gone()
    assert wire.sessions.admit(wire.session, 0) == ""
    wire.loop.close()


def test_a_broker_that_stops_finishes_what_it_has_read() -> None:
    wire = Wire(connection_max_requests_in_flight=2)
    wire.stages = wire.is_silent = True
    wire.kernel = produces(10)
    room = wire.link.get_buffer(-1)
    room[: len(wire.kernel)] = wire.kernel
    wire.link.buffer_updated(len(wire.kernel))
    wire.session.stop_reading()
    assert wire.numbers() == [0, 1]
    while not wire.session.is_idle:
        wire.turn()
    assert wire.numbers() == list(range(10))
    # The session does not resume reading.
    assert not wire.is_reading()
    wire.session.close("the broker stops")
    assert wire.is_gone()
    wire.loop.close()


def test_a_stopping_broker_lets_an_ended_connection_end(wire: Wire) -> None:
    wire.send(frame(PRODUCE, 0), ends=True)
    wire.session.stop_reading()
    assert not wire.session.is_idle
    wire.answer(0)
    assert wire.is_gone()


def test_a_refused_connection_has_nothing_to_end(wire: Wire) -> None:
    refused, link = wire.another(max_connections=1)
    link.connection_made(wire.transport)  # type: ignore[arg-type]  # all it asks of
    assert refused.is_closed
    assert not link.eof_received()
    link.connection_lost(None)
    assert list(wire.sessions.open) == [wire.session]


# Turns, and what stops the reading.


def count_turns(wire: Wire, monkeypatch: pytest.MonkeyPatch, each_ns: int) -> list[int]:
    """Let every request take `each_ns`. Return a list that holds the current time."""
    now_ns = [0]
    begin = wire.start

    def starts(*args: Any) -> None:
        now_ns[0] += each_ns
        begin(*args)

    wire.read_ns = lambda: now_ns[0]
    monkeypatch.setattr(wire, "start", starts)
    return now_ns


@pytest.mark.parametrize(("each_ns", "a_turn"), [(15_000_000, 2), (4_000_000, 6), (50_000_000, 1)])
def test_nothing_is_read_between_the_end_of_a_turn_and_the_next(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, each_ns: int, a_turn: int
) -> None:
    """Each read brings one large request. The time of all these requests counts for one turn."""
    count_turns(wire, monkeypatch, each_ns)
    wire.stages = wire.is_silent = True
    size_bytes = 16 << 10
    wire.kernel = b"".join(frame(PRODUCE, number, size_bytes - 4) for number in range(40))
    seen = 0
    while seen < 40:
        wire.reads_in_a_turn = 0
        while wire.is_reading() and wire.kernel and wire.reads_in_a_turn < READS_IN_A_ROW:
            room = wire.link.get_buffer(-1)[:size_bytes]
            data, wire.kernel = wire.kernel[: len(room)], wire.kernel[len(room) :]
            room[:] = data
            wire.reads_in_a_turn += 1
            wire.link.buffer_updated(len(data))
        started = len(wire.started) - seen
        assert 0 < started <= a_turn
        assert not wire.is_reading() or not wire.kernel
        seen += started
        wire.turn()
    # No request is left, so the session reads again.
    assert wire.is_reading()


def test_short_turns_pause_nothing(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = count_turns(wire, monkeypatch, 15_000_000)
    calls: list[str] = []
    monkeypatch.setattr(wire.transport, "pause_reading", lambda: calls.append("pause"))
    monkeypatch.setattr(wire.transport, "resume_reading", lambda: calls.append("resume"))
    monkeypatch.setattr(wire.loop, "call_soon", lambda *args: calls.append("later"))
    wire.stages = wire.is_silent = True
    for number in range(100):
        wire.arrive(frame(PRODUCE, number))
        # The loop has served other connections in between.
        now_ns[0] += TURN_GAP_NS
    # One call renews the budget in the next turn of the loop. Reading is not paused.
    assert calls == ["later"]
    monkeypatch.undo()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_real_loop_reads_nothing_between_two_turns(
    monkeypatch: pytest.MonkeyPatch, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    monkeypatch.setattr(asyncio, "new_event_loop", new_loop)
    wire = Wire()
    count_turns(wire, monkeypatch, 15_000_000)
    wire.stages = wire.is_silent = True
    count, size_bytes = 300, 16 << 10
    _, link = wire.another()
    most_between = 0

    async def blast() -> None:
        nonlocal most_between
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        await loop.connect_accepted_socket(lambda: link, ours)
        data = b"".join(frame(PRODUCE, number, size_bytes) for number in range(count))
        sending = asyncio.create_task(loop.sock_sendall(theirs, data))
        while len(wire.started) < count:
            seen = len(wire.started)
            await asyncio.sleep(0)
            most_between = max(most_between, len(wire.started) - seen)
        await sending
        theirs.close()
        while len(wire.sessions.open) > 1:
            await asyncio.sleep(0)

    wire.loop.run_until_complete(asyncio.wait_for(blast(), 60))
    assert wire.numbers() == list(range(count))
    # Between two steps of this task there are at most two turns with two requests each: a turn for
    # the rest, and a turn of a read.
    assert 0 < most_between <= 4
    wire.session.close("over", is_logged=False)
    wire.loop.close()


def test_the_buffer_does_not_grow_with_what_is_left_in_it(wire: Wire) -> None:
    """Small requests without answers free their slots immediately. A read starts 64 of them at a
    time."""
    wire.stages = wire.is_silent = True
    wire.kernel = produces(200_000)
    largest_bytes = 0
    while len(wire.started) < 200_000:
        wire.poll()
        largest_bytes = max(largest_bytes, wire.sessions.buffer_bytes)
    assert wire.numbers() == list(range(200_000))
    assert largest_bytes <= READ_BYTES


def test_reading_pauses_for_a_reason_and_goes_on_without() -> None:
    random = seeded("reading pauses")
    for _ in range(60):
        run_program(random)


def run_program(random: Random) -> None:
    """Run requests of all kinds with answers of all sizes. The client reads at random times and
    closes."""
    wire = Wire(connection_max_requests_in_flight=random.choice([1, 3, 8]))
    wire.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    wire.client.setblocking(False)
    count = random.randint(1, 60)
    keys = [random.choice([PRODUCE, PRODUCE, PRODUCE, METADATA, FETCH]) for _ in range(count)]
    data = b"".join(
        frame(key, number, random.choice([10, 1_000, 30_000])) for number, key in enumerate(keys)
    )
    received = answered_bytes = 0
    while True:
        step = random.random()
        if step < 0.3 and data:
            size = random.randint(1, len(data))
            wire.kernel += data[:size]
            data = data[size:]
            wire.has_client_ended = not data
        elif step < 0.7:
            open_slots = [slot for slot in wire.slots.values() if slot.answer is None]
            if open_slots:
                answer = bytes(random.choice([0, 10, 50_000]))
                answered_bytes += len(answer)
                random.choice(open_slots).answer = (answer,)
                wire.session.answered()
        else:
            with suppress(BlockingIOError):
                received += len(wire.client.recv(random.choice([100, 1 << 20])))
        wire.poll()
        if wire.is_gone():
            break
        assert not (wire.is_reading() and wire.session.is_stalled)
        assert wire.is_reading() != wire.session.is_paused
    assert wire.numbers() == list(range(count))
    while received < answered_bytes:
        received += len(wire.client.recv(1 << 20))
    wire.loop.close()


@pytest.mark.parametrize("behind", [METADATA, PRODUCE, FETCH])
def test_a_waiting_fetch_makes_way_when_nothing_more_is_read_behind_it(behind: ApiKey) -> None:
    """Otherwise the broker would not even see the end of the connection, and the fetch would keep
    its slot."""
    world = World(connection_max_requests_in_flight=3)
    world.parks_fetches = True
    world.arrive(frame(FETCH, 0) + frame(behind, 1))
    assert (world.is_reading(), world.in_the_way) == (True, [])
    world.arrive(frame(METADATA, 2) + frame(METADATA, 3))
    assert (world.is_reading(), set(world.in_the_way)) == (False, {0})
    world.session.parked_fetch = None
    for number in range(3):
        world.answer(number)
    assert world.started[-1] == (METADATA, 3)
    assert world.is_reading()
    world.loop.close()


def test_a_fetch_that_takes_all_bytes_in_flight_makes_way() -> None:
    world = World(connection_max_bytes_in_flight=1_000)
    world.parks_fetches = True
    world.arrive(frame(FETCH, 0, 1_000))
    assert (world.is_reading(), set(world.in_the_way)) == (False, {0})
    world.loop.close()
