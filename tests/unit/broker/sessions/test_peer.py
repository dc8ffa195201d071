"""The requesting side between brokers: each request ends exactly once, whatever happens to the
connection."""

from __future__ import annotations

import random
from struct import pack
from typing import Any

import pytest

from broker.sessions.peer import ASKED_MAX, CORRELATION_IDS, CorrelationIds, Peer
from broker.world import Address, End
from protocol.errors import WireError
from protocol.messages.api import ApiKey
from protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.headers import RequestHeader, encode_response
from tests.harness.seed import seeded
from tests.sim.network import Mix, Network
from tests.sim.sides import PORT, VERSION, AnsweringSide, listen

PATIENT_MS = 60_000


class Other(AnsweringSide):
    """The other broker's side of one connection. The test controls its answers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        """The correlation ids of the received requests, in order."""
        self.answers_at_once = False

    def asked_for(self, header: RequestHeader) -> None:
        assert header.client_id == "broker-1"
        self.asked.append(header.correlation_id)
        if self.answers_at_once:
            self.answer(header.correlation_id)

    def send(self, data: bytes) -> None:
        self.link.send([data])


class Scene:
    """Broker 1 sends requests to broker 2 over a network that the test controls."""

    def __init__(self, seed: int = 1, mix: Mix | None = None) -> None:
        self.network = Network(seed, mix)
        self.world = self.network.world("one")
        self.others: list[Other] = []
        self.ids = CorrelationIds()
        self.ends: list[End] = []
        self.told: dict[int, list[Any]] = {}
        """The result of each request by its correlation id: the throttle time of its answer, or an
        End."""
        self.peer = self.made()

    def listen(self) -> None:
        listen(self.network.world("two"), "two", self._take)

    def _take(self) -> Other:
        self.others.append(Other())
        return self.others[-1]

    def made(self) -> Peer:
        return Peer(self.world, self.ids, "broker-1", self.ends.append)

    def dial(self) -> None:
        self.peer.dial(Address("two", PORT))

    def stand(self) -> Other:
        self.listen()
        self.dial()
        self.run()
        return self.others[-1]

    def run(self, duration_ms: int = 100) -> None:
        self.network.timeline.run_for(duration_ms)

    def ask(self, wait_ms: int = PATIENT_MS) -> int:
        ended: list[Any] = []
        number = self.peer.ask(
            ApiVersionsRequest(),
            VERSION,
            self.world.clock.monotonic_ms() + wait_ms,
            lambda answer: ended.append(answer.throttle_time_ms),
            ended.append,
        )
        assert ended == [], "nothing comes before `ask` returns"
        self.told[number] = ended
        return number


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_answers_are_matched_by_their_ids_in_whatever_order_they_come(scene: Scene) -> None:
    other = scene.stand()
    one, two = scene.ask(), scene.ask()
    scene.run()
    assert other.asked == [one, two]
    other.answer(two, 22)
    other.answer(one, 11)
    scene.run()
    assert scene.told == {one: [11], two: [22]}
    assert scene.ends == []


def test_what_is_asked_before_the_link_stands_waits_for_it(scene: Scene) -> None:
    number = scene.ask()
    other = scene.stand()
    assert other.asked == [number]
    other.answer(number, 7)
    scene.run()
    assert scene.told[number] == [7]


def test_no_id_comes_again_on_another_link(scene: Scene) -> None:
    scene.stand()
    first = scene.ask()
    scene.peer.close()
    scene.peer = scene.made()
    scene.dial()
    assert scene.ask() != first
    scene.ids._next = CORRELATION_IDS - 1
    assert [scene.ids.take(), scene.ids.take()] == [CORRELATION_IDS - 1, 0]


def test_a_deadline_ends_the_request_and_not_the_link(scene: Scene) -> None:
    other = scene.stand()
    late, patient = scene.ask(500), scene.ask()
    scene.run(501)
    assert scene.told == {late: [End.TIMED_OUT], patient: []}
    # The response to the timed-out request arrives after all, and is ignored.
    other.answer(late)
    other.answer(patient, 5)
    scene.run()
    assert scene.told == {late: [End.TIMED_OUT], patient: [5]}
    assert (scene.ends, scene.peer.is_open) == ([], True)


def test_deadlines_are_kept_in_their_order_whatever_was_asked_first(scene: Scene) -> None:
    scene.stand()
    waits_ms = [900, 300, 600, 100]
    numbers = [scene.ask(wait_ms) for wait_ms in waits_ms]
    for ms in (100, 300, 600, 900):
        scene.run(ms - scene.world.clock.monotonic_ms() + 101)
        over = {wait_ms for number, wait_ms in zip(numbers, waits_ms, strict=True)
                if scene.told[number]}  # fmt: skip
        assert over == {wait_ms for wait_ms in waits_ms if wait_ms <= ms}


def test_the_deadline_runs_while_the_link_is_dialled(scene: Scene) -> None:
    scene.listen()
    scene.network.cut("one", "two")
    scene.dial()
    number = scene.ask(50)
    scene.run(60)
    assert scene.told[number] == [End.TIMED_OUT]


def test_a_dial_in_vain_fails_what_was_asked_with_its_own_word(scene: Scene) -> None:
    scene.network.world("two")
    number = scene.ask()
    scene.dial()
    scene.run()
    assert (scene.told[number], scene.ends) == ([End.REFUSED], [End.REFUSED])


@pytest.mark.parametrize("end", [End.EOF, End.RESET])
def test_the_end_of_the_link_ends_everything_on_it_once(scene: Scene, end: End) -> None:
    other = scene.stand()
    numbers = [scene.ask() for _ in range(3)]
    scene.run()
    other.answer(numbers[0], 1)
    if end is End.EOF:
        other.link.close()
    else:
        scene.network.lose_links("one", "two")
    scene.run()
    assert [scene.told[number] for number in numbers[1:]] == [[end], [end]]
    assert len(scene.told[numbers[0]]) == 1
    assert scene.ends == [end]
    again = scene.ask()
    scene.run()
    assert scene.told[again] == [end]


def test_closing_it_fails_what_is_asked(scene: Scene) -> None:
    other = scene.stand()
    number = scene.ask()
    scene.peer.close()
    scene.peer.close()
    scene.run()
    assert (scene.told[number], scene.ends) == ([End.CLOSED], [End.CLOSED])
    assert other.ends == [End.EOF]


def test_it_may_be_closed_before_its_link_stands(scene: Scene) -> None:
    scene.listen()
    scene.dial()
    number = scene.ask()
    scene.peer.close()
    scene.run()
    assert scene.told[number] == [End.CLOSED]
    assert all(other.asked == [] for other in scene.others)


def answer_bytes(correlation_id: int) -> bytes:
    return encode_response(ApiVersionsResponse(), VERSION, correlation_id, ApiKey.API_VERSIONS)


@pytest.mark.parametrize(
    "sent",
    [
        answer_bytes(99),
        pack(">i", 2) + b"\0\0",
        pack(">ii", 5, 0) + b"\x01",
        pack(">i", len(answer_bytes(0)) - 3) + answer_bytes(0)[4:] + b"\0",
        pack(">i", -5),
        pack(">i", 1 << 30),
    ],
    ids=["not asked", "no id", "cut short", "goes on", "negative size", "too large"],
)
def test_what_is_no_answer_ends_the_link(scene: Scene, sent: bytes) -> None:
    other = scene.stand()
    number = scene.ask()
    assert number == 0
    scene.run()
    other.send(sent)
    scene.run()
    assert (scene.told[number], scene.ends) == ([End.CLOSED], [End.CLOSED])
    assert other.ends == [End.EOF]


def test_who_answers_nothing_is_asked_only_so_much(scene: Scene) -> None:
    scene.stand()
    for _ in range(ASKED_MAX):
        scene.ask(10)
    scene.run(1_000)
    assert scene.peer.is_open
    one_more = scene.ask()
    scene.run()
    assert (scene.told[one_more], scene.ends) == ([End.CLOSED], [End.CLOSED])
    assert all(len(ended) == 1 for ended in scene.told.values())


def test_who_hears_of_an_answer_may_ask_again_or_close(scene: Scene) -> None:
    other = scene.stand()
    journal: list[str] = []

    def first(answer: Any) -> None:
        journal.append("first")
        scene.ask()
        scene.peer.close()

    deadline_ms = scene.world.clock.monotonic_ms() + PATIENT_MS
    asked = [
        scene.peer.ask(ApiVersionsRequest(), VERSION, deadline_ms, first, print),
        scene.ask(),
    ]
    scene.run()
    for number in asked:
        other.answer(number)
    scene.run()
    assert journal == ["first"]
    assert list(scene.told.values()) == [[End.CLOSED], [End.CLOSED]]


def test_a_fault_of_whoever_hears_an_answer_is_none_of_the_link(scene: Scene) -> None:
    other = scene.stand()

    def faulty(answer: Any) -> None:
        raise WireError("made by the test")

    deadline_ms = scene.world.clock.monotonic_ms() + PATIENT_MS
    number = scene.peer.ask(ApiVersionsRequest(), VERSION, deadline_ms, faulty, print)
    scene.run()
    other.answer(number)
    with pytest.raises(WireError, match="made by the test"):
        scene.run()
    assert (scene.peer.is_open, scene.ends) == (True, [])


def test_every_request_ends_once_whatever_the_network_does() -> None:
    chance = seeded("peers")
    for _ in range(40):
        run_of_faults(random.Random(chance.random()))


def run_of_faults(chance: random.Random) -> None:
    scene = Scene(chance.randint(0, 1 << 30), Mix(late=0.1, splits=0.5))
    scene.listen()
    scene.dial()
    for _ in range(150):
        drawn = chance.random()
        if drawn < 0.5:
            if not scene.peer.is_open:
                scene.peer = scene.made()
                scene.dial()
            scene.ask(chance.randint(1, 2_000))
        elif drawn < 0.8:
            for other in scene.others[-1:]:
                if other.asked and other.link is not None and not other.link.is_closed:
                    other.answer(other.asked.pop(chance.randrange(len(other.asked))))
        elif drawn < 0.85:
            scene.network.lose_links("one", "two")
        elif drawn < 0.9:
            chance.choice([scene.network.cut, scene.network.heal])("one", "two")
        elif drawn < 0.92:
            scene.peer.close()
        scene.run(chance.randint(0, 300))
    scene.network.heal()
    scene.run(5_000)
    assert all(len(ended) == 1 for ended in scene.told.values()), scene.told
