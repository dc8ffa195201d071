"""The connections to all other brokers: one per node and kind, for one incarnation at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from broker.sessions.peer import ASKED_MAX
from broker.sessions.peer_versions import VERSIONS_NAME
from broker.sessions.peers import REDIAL_MS_MAX, REDIAL_MS_MIN, LinkKind, Peers, is_catch_up
from broker.world import Address, End, Link
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.headers import RequestHeader
from protocol.types import Uuid
from tests.sim.links import Way
from tests.sim.network import Network
from tests.sim.sides import PORT, VERSIONS, AnsweringSide, listen
from tests.sim.world import SimWorld

PATIENT_MS = 60_000
FIRST, SECOND = Uuid(int=11), Uuid(int=12)


class Accepted(AnsweringSide):
    """The other side of one connection. It answers immediately unless the test silences it."""

    def __init__(self, host: str, *, is_silent: bool) -> None:
        super().__init__()
        self.host = host
        self.asked: list[int] = []
        self.client_id: str | None = None
        self._is_silent = is_silent

    def asked_for(self, header: RequestHeader) -> None:
        self.asked.append(header.correlation_id)
        self.client_id = header.client_id
        if not self._is_silent:
            self.answer(header.correlation_id)


class Scene:
    """Broker 1 and its connections. Two voters are configured, on the hosts `two` and `three`."""

    def __init__(self) -> None:
        self.network = Network(1)
        self.world = self.network.world("one")
        self.all_accepted: list[Accepted] = []
        self.are_silent = False
        self.ends: list[tuple[int, LinkKind, End]] = []
        self.told: list[list[Any]] = []
        """The result of each request: True for an answer, or an End."""
        voters = {2: Address("two", PORT), 3: Address("three", PORT)}
        self.peers = Peers(
            self.world, "broker-1", voters, lambda *told: self.ends.append(told), VERSIONS
        )

    def listen(self, host: str) -> SimWorld:
        world = self.network.world(host)

        def take() -> Accepted:
            self.all_accepted.append(Accepted(host, is_silent=self.are_silent))
            return self.all_accepted[-1]

        listen(world, host, take)
        return world

    def ask(
        self, node_id: int = 2, kind: LinkKind = LinkKind.QUICK, wait_ms: int = PATIENT_MS
    ) -> list[Any]:
        ended: list[Any] = []
        deadline_ms = self.world.clock.monotonic_ms() + wait_ms
        self.peers.ask(
            node_id,
            kind,
            ApiVersionsRequest(),
            deadline_ms,
            lambda answer: ended.append(True),
            ended.append,
        )
        assert not ended, "nothing comes before `ask` returns"
        self.told.append(ended)
        return ended

    def run(self, duration_ms: int = 100) -> None:
        self.network.timeline.run_for(duration_ms)

    @property
    def accepted(self) -> list[Accepted]:
        """The accepted connections, without those on which versions are exchanged."""
        return [one for one in self.all_accepted if not one.is_exchange]

    @property
    def hosts(self) -> list[str]:
        """Return the host of each accepted connection, in order."""
        return [one.host for one in self.accepted]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_each_node_and_kind_has_a_link_that_is_dialled_when_it_is_needed(scene: Scene) -> None:
    scene.listen("two")
    scene.listen("three")
    scene.run()
    assert scene.hosts == []
    told = [scene.ask(2, kind) for kind in LinkKind] + [scene.ask(3), scene.ask(3)]
    scene.run()
    assert told == [[True]] * len(told)
    assert sorted(scene.hosts) == ["three"] + ["two"] * len(LinkKind)


def test_a_link_names_whether_it_is_for_copies(scene: Scene) -> None:
    scene.listen("two")
    for kind in LinkKind:
        scene.ask(2, kind)
        scene.run()
    named = {
        kind: is_catch_up(one.client_id) for kind, one in zip(LinkKind, scene.accepted, strict=True)
    }
    assert [kind for kind, is_named in named.items() if is_named] == [LinkKind.CATCH_UP]
    assert not is_catch_up(None)


def test_a_request_that_waits_holds_up_no_other_kind(scene: Scene) -> None:
    scene.are_silent = True
    scene.listen("two")
    order = scene.ask(2, LinkKind.ORDERS)
    scene.run()
    scene.are_silent = False
    assert (scene.ask(2, LinkKind.QUICK), order) == ([], [])
    scene.run()
    assert (scene.told[-1], order) == ([True], [])


def test_an_idle_link_stays(scene: Scene) -> None:
    scene.listen("two")
    scene.ask()
    scene.run(3_600_000)
    scene.ask()
    scene.run()
    assert (scene.told, len(scene.accepted), scene.ends) == ([[True], [True]], 1, [])


def test_nobody_knows_where_a_node_is(scene: Scene) -> None:
    told = scene.ask(9)
    scene.run()
    assert told == [End.UNRESOLVED]
    scene.listen("nine")
    scene.peers.registered(9, FIRST, Address("nine", PORT))
    told = scene.ask(9)
    scene.run()
    assert told == [True]


def test_the_wait_doubles_while_nobody_listens(scene: Scene) -> None:
    scene.network.world("two")
    dialled_ms: list[int] = []
    dial = scene.world.dial

    def noted(*args: Any, **options: Any) -> Link:
        if not args[1]._client_id.endswith(VERSIONS_NAME):
            dialled_ms.append(scene.world.clock.monotonic_ms())
        return dial(*args, **options)

    scene.world.dial = noted  # type: ignore[method-assign]  # the moments are what is asked for
    for _ in range(9):
        told = scene.ask()
        while not told:
            scene.run(1)
        assert told == [End.REFUSED]
    assert scene.ends == [(2, LinkKind.QUICK, End.REFUSED)] * 9
    waits_ms = [later - sooner for sooner, later in pairwise(dialled_ms)]
    least_ms = [REDIAL_MS_MIN << n for n in range(5)] + [REDIAL_MS_MAX] * 3
    # Chance adds up to half of the wait, and a refusal takes up to three milliseconds in the
    # network.
    for least, waited in zip(least_ms, waits_ms, strict=True):
        assert least <= waited <= least * 3 // 2 + 5
    assert waits_ms != least_ms
    # So a broker that comes back is dialled within half a second.
    assert max(waits_ms) < 500


def test_what_is_asked_while_it_waits_goes_with_the_next_dial(scene: Scene) -> None:
    two = scene.network.world("two")
    for _ in range(7):
        scene.ask()
        scene.run(1_000)
    scene.ask()
    scene.run(20)
    assert scene.ends[7:] == [(2, LinkKind.QUICK, End.REFUSED)]
    waiting = [scene.ask(), scene.ask(), scene.ask(wait_ms=50)]
    scene.run(60)
    assert waiting == [[], [], [End.TIMED_OUT]], "a deadline runs while nothing is dialled"
    scene.network.kill("two")
    assert two.is_over
    scene.listen("two")
    scene.run(1_000)
    assert waiting == [[True], [True], [End.TIMED_OUT]]
    assert len(scene.accepted) == 1


def test_a_link_that_was_of_use_is_dialled_anew_soon(scene: Scene) -> None:
    scene.network.world("two")
    for _ in range(8):
        scene.ask()
        scene.run(1_000)
    scene.network.kill("two")
    scene.listen("two")
    scene.ask()
    scene.run(1_000)
    assert scene.told[-1] == [True]
    scene.network.lose_links("one", "two")
    scene.run(0)
    told = scene.ask()
    scene.run(REDIAL_MS_MIN * 3 // 2 + 15)
    assert told == [True]


def test_one_that_accepts_and_answers_nothing_is_dialled_ever_more_slowly(scene: Scene) -> None:
    scene.are_silent = True
    scene.listen("two")
    for _ in range(20):
        told = scene.ask()
        while not told:
            scene.run(5)
            for one in scene.accepted:
                if one.asked:
                    one.link.close()
        assert told == [End.EOF]
    began_ms = scene.world.clock.monotonic_ms()
    told = scene.ask()
    while len(scene.accepted) < 21:
        scene.run(1)
    assert scene.world.clock.monotonic_ms() - began_ms >= REDIAL_MS_MAX - 5
    assert told == []


def test_the_registered_address_goes_before_the_configured_one(scene: Scene) -> None:
    scene.listen("two")
    scene.listen("elsewhere")
    scene.ask()
    scene.run()
    scene.peers.registered(2, FIRST, Address("elsewhere", PORT))
    scene.ask()
    scene.ask(2, LinkKind.DATA)
    scene.run()
    assert scene.told == [[True]] * 3
    # The first registration of a process drops no connection, so the existing link is used.
    assert (scene.hosts, scene.ends) == (["two", "elsewhere"], [])


def test_another_incarnation_ends_all_links_of_the_one_before(scene: Scene) -> None:
    scene.are_silent = True
    scene.listen("two")
    scene.listen("three")
    scene.peers.registered(2, FIRST, Address("two", PORT))
    scene.peers.registered(3, FIRST, Address("three", PORT))
    waiting = [scene.ask(2, LinkKind.QUICK), scene.ask(2, LinkKind.DATA), scene.ask(3)]
    scene.run()
    scene.peers.registered(2, FIRST, Address("two", PORT))
    scene.run()
    assert waiting == [[], [], []]
    scene.network.cut_power("two")
    scene.listen("new")
    scene.peers.registered(2, SECOND, Address("new", PORT))
    scene.run()
    assert waiting == [[End.CLOSED], [End.CLOSED], []]
    assert scene.ends == [(2, LinkKind.QUICK, End.CLOSED), (2, LinkKind.DATA, End.CLOSED)]
    scene.are_silent = False
    again = scene.ask()
    scene.run(10)
    assert scene.hosts[-1] == "new"
    scene.accepted[-1].answer(scene.accepted[-1].asked[0])
    scene.run()
    assert again == [True]


def test_what_waits_for_a_dial_fails_when_another_incarnation_is_named(scene: Scene) -> None:
    scene.network.world("two")
    scene.peers.registered(2, FIRST, Address("two", PORT))
    for _ in range(8):
        scene.ask()
        scene.run(1_000)
    scene.ask()
    scene.run(10)
    waiting = scene.ask()
    scene.listen("new")
    scene.peers.registered(2, SECOND, Address("new", PORT))
    at_once = scene.ask()
    scene.run(20)
    assert (waiting, at_once) == ([End.CLOSED], [True])
    # The dial that was planned for the former incarnation is cancelled.
    scene.run(1_000)
    assert scene.hosts == ["new"]


def test_a_node_that_is_taken_out_is_forgotten_but_not_its_incarnation(scene: Scene) -> None:
    scene.are_silent = True
    scene.listen("two")
    scene.listen("elsewhere")
    scene.peers.registered(2, FIRST, Address("elsewhere", PORT))
    scene.peers.registered(9, FIRST, Address("elsewhere", PORT))
    waiting = [scene.ask(2), scene.ask(9)]
    scene.run()
    scene.peers.unregistered(2)
    scene.peers.unregistered(9)
    scene.peers.unregistered(8)
    scene.run()
    assert waiting == [[End.CLOSED], [End.CLOSED]]
    # Voter 2 is dialled at its configured address. Node 9 has no address any more.
    voter, other = scene.ask(2), scene.ask(9)
    scene.run()
    assert (scene.hosts[-1], voter, other) == ("two", [], [End.UNRESOLVED])
    scene.peers.registered(2, SECOND, Address("elsewhere", PORT))
    scene.run()
    assert voter == [End.CLOSED]


def test_names_are_looked_up_before_anybody_probes_them(scene: Scene) -> None:
    assert scene.world.known_hosts == {"two", "three"}
    scene.peers.registered(2, FIRST, Address("elsewhere", PORT))
    assert "elsewhere" in scene.world.known_hosts


def silent_ms(scene: Scene) -> int:
    silence = scene.peers.silence_of(2)
    assert silence is not None
    return scene.world.clock.monotonic_ms() - silence.since_ms


def fails_for(scene: Scene, seconds: int) -> None:
    """Ask node 2 every second without success."""
    for _ in range(seconds):
        scene.ask(wait_ms=500)
        scene.run(1_000)


def test_silence_lasts_as_long_as_a_node_is_asked(scene: Scene) -> None:
    fails_for(scene, 30)
    assert 29_000 <= silent_ms(scene) <= 30_000


def test_silence_goes_on_when_a_mute_link_gets_another_beside_it(scene: Scene) -> None:
    scene.are_silent = True
    scene.listen("two")
    fails_for(scene, 30)
    assert len(scene.accepted) == 1
    scene.ask(kind=LinkKind.CONTROL, wait_ms=500)
    scene.run(1_000)
    assert len(scene.accepted) == 2
    assert silent_ms(scene) >= 30_000


def test_time_in_which_a_node_was_not_asked_is_no_silence(scene: Scene) -> None:
    """A voter has no link to a voter that is not its leader. If the leader is cut off, the broker
    must not say that the other voter has been away for all that time."""
    scene.run(60_000)
    fails_for(scene, 5)
    assert silent_ms(scene) <= 5_000, "no link since the start"
    scene.listen("two")
    scene.ask()
    scene.run(1_000)
    assert scene.peers.silence_of(2) is None
    scene.peers.registered(2, FIRST, Address("two", PORT))
    scene.peers.registered(2, SECOND, Address("two", PORT))
    scene.network.cut_power("two")
    scene.run(60_000)
    fails_for(scene, 5)
    assert silent_ms(scene) <= 5_000, "no link since the other process was registered"


def test_closing_ends_everything_and_leaves_no_timer(scene: Scene) -> None:
    scene.are_silent = True
    scene.listen("two")
    scene.network.world("three")
    asked = [scene.ask(2), scene.ask(3)]
    scene.run(20)
    assert asked == [[], [End.REFUSED]]
    asked.append(scene.ask(3))
    scene.peers.close()
    scene.peers.close()
    after = scene.ask(2)
    scene.run()
    assert (asked, after) == ([[End.CLOSED], [End.REFUSED], [End.CLOSED]], [End.CLOSED])
    assert [one.ends for one in scene.accepted] == [[End.EOF]]
    planned = [one for _, _, one in scene.network.timeline._later]
    left = [one.call for one in planned if one.life is scene.world and not one.is_cancelled]
    # Bytes that are in flight belong to the simulated kernel, so their timers may remain.
    assert [one for one in left if not isinstance(getattr(one, "__self__", None), Way)] == []


def test_who_owes_a_thousand_answers_before_its_dial_is_not_dialled(scene: Scene) -> None:
    scene.network.world("two")
    for _ in range(8):
        scene.ask()
        scene.run(1_000)
    scene.ask()
    scene.run(10)
    asked = [scene.ask() for _ in range(ASKED_MAX + 1)]
    scene.run(1_000)
    assert all(told == [End.CLOSED] for told in asked)
    assert scene.ends[-1] == (2, LinkKind.QUICK, End.CLOSED)


def test_who_asks_again_when_he_has_failed_finds_another_link(scene: Scene) -> None:
    scene.listen("two")
    scene.are_silent = True
    ends: list[Any] = []

    def again(end: End) -> None:
        ends.append(end)
        scene.ask()

    deadline_ms = scene.world.clock.monotonic_ms() + PATIENT_MS
    scene.peers.ask(2, LinkKind.QUICK, ApiVersionsRequest(), deadline_ms, ends.append, again)
    scene.run()
    scene.are_silent = False
    scene.network.lose_links("one", "two")
    scene.run()
    assert (ends, scene.told) == ([End.RESET], [[True]])
