"""One connection without a broker: which requests may overlap, which must not, and when reading
pauses.

The other end is a real socket. The test starts and answers the requests.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import pytest

from broker.budget import TurnBudget
from broker.config import InForce
from broker.metrics.warnings import Warnings
from broker.real.connection import SocketLink
from broker.sessions.call import Call, RequestingSession
from broker.sessions.pipeline import Slot
from broker.sessions.reception import Reception
from broker.sessions.session import Session
from broker.sessions.sessions import Sessions
from protocol.messages.api import ApiKey
from protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from tests.unit.storage.kit import broker_config

PRODUCE, FETCH, METADATA = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA
NEVER_COLD: Any = SimpleNamespace(is_cold=lambda region: False)
NO_SHORT_WAY: Any = SimpleNamespace(start=lambda *frame: False)


class Transport:
    """The part of asyncio's transport that a connection uses."""

    def __init__(self, ours: socket.socket) -> None:
        self.socket = ours
        self.is_reading = True
        self.is_aborted = False

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 1), "socket": self.socket}[name]

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def abort(self) -> None:
        self.is_aborted = True


class ParkedFetch:
    """A Fetch that waits for data, identified by its number."""

    def __init__(self, world: "World", slot: Slot | None, number: object) -> None:
        self.world = world
        self.slot = slot
        self.number = number

    def hasten(self, behind: Iterable[bytes]) -> None:
        numbers = [struct.unpack_from(">hi", frame)[1] for frame in behind]
        self.world.hastened.append((self.number, numbers))

    def make_way(self) -> None:
        self.world.in_the_way.append(self.number)

    def forget(self) -> None:
        self.world.forgotten.append(self)

    def drop(self) -> None:
        self.forget()
        assert self.slot is not None
        self.slot.answer = ()


class World:
    """A connection, its listener, its dispatcher, and the client's end of the socket."""

    name = "HOST"

    def __init__(self, **settings: object) -> None:
        self.loop = asyncio.new_event_loop()
        self.now_ms = 1_000
        config = broker_config({key.replace("_", "."): value for key, value in settings.items()})
        self.settings = InForce(config)
        self.sessions = Sessions(self.settings)
        self.hastened: list[object] = []
        self.in_the_way: list[object] = []
        self.forgotten: list[object] = []
        self.read_ns: Callable[[], int] = perf_counter_ns
        self.started: list[tuple[int, int]] = []
        """The key and the number of each request that was started."""
        self.slots: dict[int, Slot] = {}
        self.stages = False
        """True if each started request stages data that must be written at the end of the read."""
        self.settled: list[int] = []
        """The number of requests that had been started at each of these writes."""
        self.parks_fetches = False
        """True if every Fetch waits for data."""
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.settimeout(5)
        self.transport = Transport(ours)
        self.reception = Reception(
            "HOST",
            self.settings,
            SimpleNamespace(monotonic_ms=lambda: self.now_ms),
            lambda: self.read_ns(),
            lambda *call: self.loop.call_soon(*call),
            lambda delay_ms, call: self.loop.call_later(delay_ms / 1000, call),
            TurnBudget(lambda: self.read_ns(), lambda *call: self.loop.call_soon(*call), 2**62),
            self.sessions,
            self,
            NO_SHORT_WAY,
            lambda: self.settle(),
            lambda refusal: None,
            Warnings(SimpleNamespace(monotonic_ms=lambda: self.now_ms)),
        )
        self.session, self.link = self.another()
        self.link.connection_made(self.transport)  # type: ignore[arg-type]  # all it asks of

    def another(self, **settings: object) -> tuple[Session, SocketLink]:
        """Return another session that is not connected yet, with other settings of the broker."""
        if settings:
            values = {key.replace("_", "."): value for key, value in settings.items()}
            self.settings.config = broker_config(values)
        session = Session(self.reception)
        config = self.settings.config
        link = SocketLink(
            self.loop,
            session,
            NEVER_COLD,
            config.socket_request_max_bytes,
            config.connection_max_unread_bytes,
        )
        return session, link

    # The dispatcher, as the session sees it.

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, waited_ns: int = 0
    ) -> None:
        key, number = struct.unpack_from(">hi", frame)
        self.started.append((key, number))
        self.slots[number] = slot
        session.has_staged = session.has_staged or self.stages
        if self.parks_fetches and key == FETCH:
            session.parked_fetch = ParkedFetch(self, slot, number)

    def settle(self) -> None:
        self.settled.append(len(self.started))

    # What the test does.

    def arrive(self, data: bytes) -> None:
        """Deliver one read of the loop."""
        while data:
            assert self.is_reading(), "nothing is read from who is paused"
            room = self.link.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.link.buffer_updated(count)
            data = data[count:]

    def answer(self, number: int) -> None:
        """Complete the request."""
        self.slots[number].answer = (struct.pack(">i", number),)
        self.session.answered()
        self.turn()

    def turn(self) -> None:
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))

    def is_reading(self) -> bool:
        return self.transport.is_reading

    def is_aborted(self) -> bool:
        return self.transport.is_aborted

    def sent(self) -> list[int]:
        """Return the numbers of the sent answers, in order."""
        self.client.setblocking(False)
        try:
            data = self.client.recv(1 << 16)
        except BlockingIOError:
            data = b""
        return list(struct.unpack(f">{len(data) // 4}i", data))


def frame(key: int, number: int, size_bytes: int = 20) -> bytes:
    return struct.pack(">ihi", size_bytes, key, number) + bytes(size_bytes - 6)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.session.close("over", is_logged=False)
    world.loop.close()


def test_produce_overlaps_produce_and_is_answered_in_order(world: World) -> None:
    world.arrive(b"".join(frame(PRODUCE, number) for number in range(3)))
    assert world.started == [(PRODUCE, 0), (PRODUCE, 1), (PRODUCE, 2)]
    world.answer(1)
    world.answer(2)
    assert world.sent() == []
    world.answer(0)
    assert world.sent() == [0, 1, 2]


@pytest.mark.parametrize(
    ("first", "second"),
    [(PRODUCE, METADATA), (PRODUCE, FETCH), (METADATA, PRODUCE), (FETCH, PRODUCE),
     (METADATA, METADATA), (FETCH, FETCH), (FETCH, METADATA)],
)  # fmt: skip
def test_nothing_else_overlaps(world: World, first: ApiKey, second: ApiKey) -> None:
    world.arrive(frame(first, 0) + frame(second, 1))
    world.arrive(frame(second, 2))
    assert world.started == [(first, 0)]
    world.answer(0)
    assert world.sent() == [0]
    assert world.started[1] == (second, 1)
    # Of the two waiting requests, the second starts with the first only if both are Produce.
    assert len(world.started) == (3 if second is PRODUCE else 2)


def test_produce_does_not_overtake_what_waits(world: World) -> None:
    world.arrive(frame(PRODUCE, 0) + frame(METADATA, 1) + frame(PRODUCE, 2))
    assert world.started == [(PRODUCE, 0)]
    world.answer(0)
    assert world.started == [(PRODUCE, 0), (METADATA, 1)]
    world.answer(1)
    assert world.started == [(PRODUCE, 0), (METADATA, 1), (PRODUCE, 2)]


def test_a_produce_that_takes_turns_holds_up_its_own_connection(world: World) -> None:
    world.arrive(frame(PRODUCE, 0))
    before_bytes = world.sessions.buffer_bytes
    world.session.hold(world.slots[0])
    world.arrive(frame(PRODUCE, 1, 5_000))
    assert world.started == [(PRODUCE, 0)]
    # The copies of both requests count as buffer memory.
    assert world.sessions.buffer_bytes == before_bytes + 20 + 5_000
    world.session.let_go(world.slots[0])
    world.turn()
    assert world.started == [(PRODUCE, 0), (PRODUCE, 1)]
    assert world.sessions.buffer_bytes == before_bytes
    world.answer(1)
    assert world.sent() == []
    world.answer(0)
    assert world.sent() == [0, 1]


def test_a_connection_that_ended_meanwhile_lets_go_of_nothing(world: World) -> None:
    world.arrive(frame(PRODUCE, 0))
    world.session.hold(world.slots[0])
    world.session.close("over", is_logged=False)
    world.session.let_go(world.slots[0])
    world.turn()
    assert world.sessions.buffer_bytes == 0


@pytest.mark.parametrize("behind", [METADATA, PRODUCE, FETCH])
def test_a_waiting_fetch_hears_of_what_comes_behind_it(world: World, behind: ApiKey) -> None:
    world.arrive(frame(FETCH, 0))
    world.session.parked_fetch = ParkedFetch(world, None, 0)
    world.arrive(frame(behind, 1))
    assert world.hastened[-1] == (0, [1])
    world.arrive(frame(METADATA, 2))
    assert world.hastened[-1] == (0, [1, 2])
    # The Fetch is hastened but not answered, so the requests behind it do not start yet.
    assert world.started == [(FETCH, 0)]
    world.session.parked_fetch = None


def test_a_fetch_that_has_waited_itself_hears_of_what_came_before_it_was_parked(
    world: World,
) -> None:
    world.parks_fetches = True
    world.arrive(frame(FETCH, 0) + frame(FETCH, 1) + frame(FETCH, 2) + frame(METADATA, 3))
    for number in range(3):
        assert world.started[-1] == (FETCH, number)
        assert world.hastened[-1] == (number, list(range(number + 1, 4)))
        world.session.parked_fetch = None
        world.answer(number)
    assert world.started[-1] == (METADATA, 3)


def test_requests_in_flight_have_a_limit() -> None:
    world = World(connection_max_requests_in_flight=3)
    world.arrive(b"".join(frame(PRODUCE, number) for number in range(5)))
    assert [number for _, number in world.started] == [0, 1, 2]
    assert not world.is_reading()
    world.answer(0)
    # One place is free, so the next frame in the buffer takes it.
    assert [number for _, number in world.started] == [0, 1, 2, 3]
    assert not world.is_reading()
    for number in (1, 2, 3, 4):
        world.answer(number)
    assert world.sent() == [0, 1, 2, 3, 4]
    assert world.is_reading()
    world.loop.close()


def test_bytes_in_flight_have_a_limit() -> None:
    world = World(connection_max_bytes_in_flight=1_000)
    world.arrive(frame(METADATA, 0, 600))
    assert world.is_reading()
    # The bytes of a waiting request count as bytes in flight.
    world.arrive(frame(METADATA, 1, 600))
    assert not world.is_reading()
    world.answer(0)
    assert world.is_reading()
    world.loop.close()


def test_answers_that_nobody_reads_have_a_limit() -> None:
    world = World(connection_max_unread_bytes=100_000)
    world.arrive(frame(METADATA, 0) + frame(METADATA, 1))
    world.slots[0].answer = (bytes(50_000),)
    world.session.answered()
    world.turn()
    assert not world.is_aborted()
    world.slots[1].answer = (bytes(5_000_000),)
    world.session.answered()
    world.turn()
    assert world.is_aborted()
    world.loop.close()


def test_unfinished_requests_of_all_have_a_limit() -> None:
    world = World(queued_max_request_bytes=1 << 20, connection_max_bytes_in_flight=1 << 30)
    world.arrive(frame(FETCH, 0))
    assert not world.is_aborted()
    world.arrive(b"".join(frame(METADATA, number, 100_000) for number in range(1, 12)))
    assert world.is_aborted()
    assert world.sessions.buffer_bytes == 0
    world.loop.close()


def test_a_frame_above_the_limit_is_not_read() -> None:
    world = World(socket_request_max_bytes=2_000)
    world.arrive(frame(METADATA, 0, 2_000))
    assert not world.is_aborted()
    world.answer(0)
    world.arrive(frame(METADATA, 1, 2_001)[:4])
    assert world.is_aborted()
    world.loop.close()


def test_what_was_staged_before_the_end_of_a_connection_is_written(world: World) -> None:
    """The offsets of a staged batch are assigned. Segment rolls and retention wait until the batch
    is written."""
    world.stages = True
    world.arrive(frame(PRODUCE, 1) + frame(PRODUCE, 2) + struct.pack(">i", 2**30))
    assert world.is_aborted()
    assert world.settled == [2]
    assert not world.session.has_staged


def test_a_connection_with_much_to_do_lets_others_have_their_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 0

    def starts(*args: Any) -> None:
        nonlocal now_ns
        now_ns += 15_000_000
        World.start(world, *args)

    world.read_ns = lambda: now_ns
    monkeypatch.setattr(world, "start", starts)
    world.arrive(b"".join(frame(PRODUCE, number) for number in range(5)))
    # The first two requests take more than the 20 ms of a turn. The others start in later turns.
    assert len(world.started) == 2
    assert not world.is_reading()
    world.turn()
    assert [number for _, number in world.started] == [0, 1, 2, 3, 4]
    world.arrive(frame(PRODUCE, 5))
    world.turn()
    assert [number for _, number in world.started] == [0, 1, 2, 3, 4, 5]
    # The same holds for requests that have waited behind another one.
    world.arrive(frame(METADATA, 6) + b"".join(frame(PRODUCE, number) for number in range(7, 12)))
    for number in range(6):
        world.slots[number].answer = (struct.pack(">i", number),)
    world.session.answered()
    world.turn()
    world.answer(6)
    world.turn()
    for number in range(7, 12):
        world.answer(number)
    assert world.sent() == list(range(12))


# What the sweep does, second by second.


def sweep(world: World, after_ms: int) -> bool:
    """Let time pass. Return True if the connection was closed."""
    world.now_ms += after_ms
    world.sessions.sweep(world.now_ms)
    return world.session.is_closed


def test_a_first_byte_is_waited_for_only_so_long_and_its_lack_is_no_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert not sweep(world, 10_000)
    assert sweep(world, 1)
    assert not caplog.records


def test_a_frame_is_waited_for_only_so_long_however_often_a_byte_comes(world: World) -> None:
    data = frame(METADATA, 0)
    world.arrive(data[:1])
    for byte in data[1:11]:
        assert not sweep(world, 3_000)
        world.arrive(bytes([byte]))
    assert sweep(world, 1)


def test_whoever_is_not_read_from_is_not_blamed_for_it() -> None:
    world = World(connection_max_requests_in_flight=1)
    world.arrive(frame(METADATA, 0) + frame(METADATA, 1)[:7])
    assert not world.is_reading()
    assert not sweep(world, 100_000)
    world.answer(0)
    assert world.is_reading()
    assert not sweep(world, 30_000)
    assert sweep(world, 1)
    world.loop.close()


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(world: World) -> None:
    world.arrive(frame(FETCH, 0))
    assert not sweep(world, 700_000)
    world.answer(0)
    assert sweep(world, 700_000)


def test_a_peer_that_takes_no_answer_is_closed_also_below_the_limit() -> None:
    """All requests of the peer are answered, so none of them times out. Without this limit, its
    unread bytes would stay in memory."""
    world = World(connection_max_unread_bytes=100_000_000)
    world.arrive(frame(METADATA, 0))
    world.slots[0].answer = (bytes(5_000_000),)
    world.session.answered()
    world.turn()
    assert not sweep(world, 600_000)
    assert sweep(world, 1)
    world.loop.close()


def test_a_silent_connection_gives_its_buffer_back(world: World) -> None:
    world.arrive(frame(METADATA, 0))
    world.answer(0)
    assert world.sessions.buffer_bytes > 0
    assert not sweep(world, 5_001)
    assert world.sessions.buffer_bytes == 0


def test_an_answer_that_cannot_be_written_ends_its_own_connection_only(world: World) -> None:
    world.arrive(frame(METADATA, 1))
    call = Call(world.session, world.slots[1], METADATA, 1, 1, None)
    # A timer or a sync can be answering many requests, so one bad response must raise nothing.
    call.answer(
        MetadataResponse(cluster_id=None, topics=[MetadataResponseTopic(name="x" * 40_000)])
    )
    assert world.is_aborted()
    assert world.sent() == []


def test_a_fault_outside_of_a_read_ends_its_own_connection_only(world: World) -> None:
    world.arrive(frame(METADATA, 1))

    def fails() -> None:
        raise ZeroDivisionError

    world.session.attempt(fails)
    assert world.is_aborted()
