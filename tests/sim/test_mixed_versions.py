"""Brokers of different releases: each request goes in the highest version that both speak."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from broker.budget import UnlimitedBudget
from broker.config import BROKER_LISTENER, InForce
from broker.interbroker.versions import version_handlers
from broker.metrics.metrics import Metrics
from broker.metrics.warnings import Warnings
from broker.sessions.call import Call
from broker.sessions.dispatch import Dispatcher, Handler
from broker.sessions.peers import LinkKind, Peers
from broker.sessions.reception import NoFastPath, Reception
from broker.sessions.session import Session
from broker.sessions.sessions import Sessions
from broker.sessions.versions import OWN_VERSIONS, Versions
from broker.world import Address, End
from protocol.messages.api import BETWEEN_BROKERS, DECLARED, ApiKey, request_class, response_class
from protocol.types import Uuid
from tests.harness.seed import seeded
from tests.sim.network import Network
from tests.sim.sides import PORT, listen
from tests.sim.test_metadata_nodes import live
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import WholeCluster
from tests.unit.broker.cluster.kit import broker_config

KINDS = {
    LinkKind.QUICK: (
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.REPLICA_REPORT,
        ApiKey.ADD_PARTITIONS_TO_TXN,
    ),
    LinkKind.CONTROL: (
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.UPDATE_RAFT_VOTER,
    ),
    LinkKind.ORDERS: (ApiKey.ENVELOPE,),
    LinkKind.METADATA: (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT),
    LinkKind.DATA: (ApiKey.FETCH,),
    LinkKind.CATCH_UP: (ApiKey.FETCH,),
    LinkKind.MARKERS: (ApiKey.WRITE_TXN_MARKERS,),
}
PAIRS = [(kind, key) for kind, keys in KINDS.items() for key in keys]
BY_KIND = pytest.mark.parametrize(
    ("kind", "key"), PAIRS, ids=[f"{kind.value}-{key.name}" for kind, key in PAIRS]
)

MORE: Versions = {key: range(one.start, one.stop + 1) for key, one in OWN_VERSIONS.items()}
"""The versions of a later release, which speaks one version more of each request."""
ONLY_MORE: Versions = {
    key: one if key == ApiKey.API_VERSIONS else one[-1:] for key, one in MORE.items()
}
"""The versions of a release that speaks no version of this release any more."""
HOUR_MS = 3_600_000
MIXED_LIVES_MIN = 4
"""A single life can give few blocks: the fewest of 196 lives was 16. Four lives give 80 each on
average."""
MIXED_LIVES_MAX = 200
"""One life in eight has node 3 as a leader, so the chance that it never leads is below 10⁻¹¹."""


@pytest.fixture(autouse=True)
def later_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each message one version more than it has in this release."""
    for key in DECLARED:
        for cls in request_class(key), response_class(key):
            known = cls.valid_versions
            monkeypatch.setattr(cls, "valid_versions", range(known.start, known.stop + 1))
            for name in "_readers", "_strict_readers", "_writers":
                monkeypatch.setattr(cls, name, {})


class Scene:
    """Broker 1, which sends requests to broker 2."""

    def __init__(self, own: Versions, other: Versions | None) -> None:
        """`other` has the versions of broker 2; None for a broker that closes the connection on
        which it gets ApiVersions, as 1.0.0-rc1 does."""
        self.network = Network(1)
        self.world = self.network.world("one")
        self.ends: list[End] = []
        self.seen: list[int] = []
        """The versions of the requests that broker 2 has served."""
        self.start(other)
        self.peers = Peers(
            self.world,
            "broker-1",
            {2: Address("two", PORT)},
            lambda node_id, kind, end: self.ends.append(end),
            own,
        )

    def start(self, versions: Versions | None, *, is_mute: bool = False) -> None:
        """Start broker 2. A mute broker never answers ApiVersions."""
        world = self.network.world("two")
        served = OWN_VERSIONS if versions is None else versions
        handlers: dict[ApiKey, Handler] = {
            key: self._answer for key in BETWEEN_BROKERS if key is not ApiKey.API_VERSIONS
        }
        if is_mute:
            handlers[ApiKey.API_VERSIONS] = lambda call, request: None
        elif versions is not None:
            handlers |= version_handlers(versions)
        settings, metrics = InForce(broker_config()), Metrics(world.turn_ns, world.clock)
        reception = Reception(
            BROKER_LISTENER,
            settings,
            world.clock,
            world.turn_ns,
            world.soon,
            world.later,
            UnlimitedBudget(),
            Sessions(settings),
            Dispatcher(handlers, {key: served[key] for key in handlers}, metrics, lambda *_: None),
            NoFastPath(),
            lambda: None,
            lambda refusal: None,
            Warnings(world.clock),
        )
        self.session_count = 0

        def take() -> Session:
            self.session_count += 1
            return Session(reception)

        listen(world, "two", take)

    def _answer(self, call: Call, request: Any) -> Any:
        self.seen.append(call.version)
        return response_class(call.api_key)()

    def ask(self, kind: LinkKind, key: ApiKey, told: Callable[[Any], None]) -> None:
        deadline_ms = self.world.clock.monotonic_ms() + 5_000
        self.peers.ask(2, kind, request_class(key)(), deadline_ms, told, told)

    def asked(self, kind: LinkKind, key: ApiKey) -> Any:
        """Send a request and return its answer or its End."""
        told: list[Any] = []
        self.ask(kind, key, told.append)
        while not told:
            self.network.timeline.run_for(1)
        return told[0]

    def is_answered(self, kind: LinkKind, key: ApiKey) -> bool:
        return isinstance(self.asked(kind, key), response_class(key))

    def settle(self, kind: LinkKind, key: ApiKey) -> None:
        """Let the brokers learn each other's versions."""
        self.asked(kind, key)
        self.run(100)
        self.seen.clear()

    def run(self, duration_ms: int) -> None:
        self.network.timeline.run_for(duration_ms)


def test_every_request_between_brokers_is_here() -> None:
    assert {key for _, key in PAIRS} == BETWEEN_BROKERS.keys() - {ApiKey.API_VERSIONS}
    assert KINDS.keys() == set(LinkKind)


@BY_KIND
@pytest.mark.parametrize(
    ("own", "other", "adds"),
    [
        (OWN_VERSIONS, OWN_VERSIONS, 0),
        (OWN_VERSIONS, MORE, 0),
        (MORE, OWN_VERSIONS, 0),
        (MORE, MORE, 1),
        (MORE, None, 0),
        (OWN_VERSIONS, None, 0),
    ],
    ids=["equal", "other-later", "own-later", "both-later", "own-later-rc1", "rc1"],
)
def test_the_first_request_waits_for_nothing_and_the_next_ones_go_in_the_highest_common_version(
    kind: LinkKind, key: ApiKey, own: Versions, other: Versions | None, adds: int
) -> None:
    scene = Scene(own, other)
    assert scene.is_answered(kind, key)
    scene.run(100)
    assert scene.is_answered(kind, key) and scene.is_answered(kind, key)
    first, last = OWN_VERSIONS[key][0], OWN_VERSIONS[key][-1] + adds
    assert scene.seen == [first, last, last]
    assert scene.ends == []


@BY_KIND
def test_without_a_common_version_a_request_fails_and_the_log_names_both_ranges(
    kind: LinkKind, key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(OWN_VERSIONS, ONLY_MORE)
    assert scene.asked(kind, key) is End.EOF, "the versions are not known yet"
    scene.run(100)
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        for _ in range(3):
            began_ms = scene.world.clock.monotonic_ms()
            assert scene.asked(kind, key) is End.UNSUPPORTED
            assert scene.world.clock.monotonic_ms() > began_ms, "a repeated request makes no spin"
    (record,) = caplog.records
    told = vars(record)["mill_fields"]
    assert "no version of a request" in record.getMessage()
    assert told["broker"] == "broker-1" and told["other_node_id"] == 2
    assert told["request"] == key.name
    later = OWN_VERSIONS[key].stop
    assert told["other_versions"] == f"{later} to {later}"
    assert not scene.seen


def test_a_broker_that_no_longer_speaks_the_first_version_is_asked_in_the_next_one() -> None:
    scene = Scene(MORE, ONLY_MORE)
    assert scene.asked(LinkKind.QUICK, ApiKey.VOTE) is End.EOF
    scene.run(50)
    assert scene.is_answered(LinkKind.QUICK, ApiKey.VOTE)
    assert scene.seen == [3]


def test_a_broker_of_1_0_0_rc1_is_seldom_asked_for_its_versions() -> None:
    """Each question makes it log a warning."""
    scene = Scene(MORE, None)
    end_ms = scene.world.clock.monotonic_ms() + HOUR_MS
    while scene.world.clock.monotonic_ms() < end_ms:
        assert scene.is_answered(LinkKind.CONTROL, ApiKey.BROKER_HEARTBEAT)
        scene.run(2_000)
    assert scene.session_count - 1 <= 8 + HOUR_MS // 300_000
    assert set(scene.seen) == {1} and scene.ends == []


def test_a_broker_that_was_away_for_long_is_asked_soon_after_its_return() -> None:
    """For example, it is started for the first time, so the metadata name no new process of it."""
    scene = Scene(MORE, MORE)
    scene.network.kill("two")
    end_ms = scene.world.clock.monotonic_ms() + HOUR_MS // 4
    while scene.world.clock.monotonic_ms() < end_ms:
        assert not scene.is_answered(LinkKind.QUICK, ApiKey.VOTE)
        scene.run(2_000)
    scene.start(MORE)
    for _ in range(4):
        assert scene.is_answered(LinkKind.QUICK, ApiKey.VOTE)
        scene.run(1_000)
    assert scene.seen[-1] == MORE[ApiKey.VOTE][-1]


def test_a_broker_that_answers_no_question_for_versions_serves_all_else() -> None:
    scene = Scene(MORE, OWN_VERSIONS)
    scene.network.kill("two")
    scene.run(100)
    scene.start(OWN_VERSIONS, is_mute=True)
    for _ in range(100):
        assert scene.is_answered(LinkKind.DATA, ApiKey.FETCH)
        scene.run(1_000)
    assert set(scene.seen) == {18} and scene.ends == []


@pytest.mark.parametrize(("before", "after", "version"), [(MORE, None, 18), (None, MORE, 19)])
def test_another_process_has_other_versions(
    before: Versions | None, after: Versions | None, version: int
) -> None:
    """An upgraded broker is asked again, and a broker that went back gets no version that it does
    not know."""
    scene = Scene(MORE, before)
    scene.peers.registered(2, Uuid(int=1), Address("two", PORT))
    scene.settle(LinkKind.DATA, ApiKey.FETCH)
    scene.network.kill("two")
    scene.run(1_000)
    scene.start(after)
    scene.settle(LinkKind.DATA, ApiKey.FETCH)
    if after is not None:
        # The controller has registered the new process.
        scene.peers.registered(2, Uuid(int=2), Address("two", PORT))
        scene.settle(LinkKind.DATA, ApiKey.FETCH)
    scene.ends.clear()
    for _ in range(5):
        assert scene.is_answered(LinkKind.DATA, ApiKey.FETCH)
    assert scene.seen == [version] * 5 and scene.ends == []


def test_the_versions_of_a_busy_link_are_kept() -> None:
    """The other side closes a connection that was idle for ten minutes."""
    scene = Scene(MORE, MORE)
    scene.settle(LinkKind.DATA, ApiKey.FETCH)
    for _ in range(2 * HOUR_MS // 30_000):
        assert scene.is_answered(LinkKind.DATA, ApiKey.FETCH)
        scene.run(30_000)
    assert set(scene.seen) == {19}
    assert scene.session_count == 2


def test_the_brokers_of_a_cluster_learn_each_others_versions() -> None:
    cluster = WholeCluster("versions")
    for node in cluster.nodes:
        node.start()
    cluster.run_until(lambda: is_in_service(cluster), 20_000, "all are in service")
    for node in cluster.nodes:
        assert node.broker is not None and node.broker.joining is not None
        learned = node.broker.joining.peers._versions._nodes
        assert {node_id: one.versions for node_id, one in learned.items()} == {
            other.node_id: OWN_VERSIONS for other in cluster.nodes if other is not node
        }


def test_three_nodes_of_three_releases_are_one_quorum() -> None:
    """Node 1 leads in most lives, so lives are performed until each release has led once."""
    chance = seeded("mixed releases")
    led: set[int] = set()
    given = 0
    for number in range(1, MIXED_LIVES_MAX + 1):
        cluster = live(f"mixed {chance.getrandbits(32)}", {1: MORE, 3: None})
        given += len(cluster.given)
        led |= set(cluster.leaders.values())
        if number >= MIXED_LIVES_MIN and len(led) == len(cluster.nodes):
            break
    assert led == {1, 2, 3}
    assert given > 10 * MIXED_LIVES_MIN


def test_closed_links_learn_no_more() -> None:
    scene = Scene(MORE, MORE)
    scene.settle(LinkKind.DATA, ApiKey.FETCH)
    scene.peers.close()
    assert scene.asked(LinkKind.DATA, ApiKey.FETCH) is End.CLOSED
    scene.run(1_000)
    assert scene.session_count == 2
