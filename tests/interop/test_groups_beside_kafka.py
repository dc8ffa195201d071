"""The same requests to our broker and to Apache Kafka: the same answers, code by code.

Each play is a list of requests by named members; what comes back is written down without what
differs by nature (member ids are named after their clients, times are left out). Parked requests
are told of when they are answered.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.group import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaProcess
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient
from tests.unit.broker.group_scene import subscription

pytestmark = [pytest.mark.live, pytest.mark.slow]

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.max.size": 3}
TOPIC = "played"


class Player:
    """One member with a connection of its own."""

    def __init__(self, stage: "Stage", name: str, instance: str | None) -> None:
        self.stage = stage
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.client = WireClient(stage.bootstrap, name)
        self.parked = ""

    def join(self, version: int = 9, **changes: Any) -> None:
        """JoinGroup, not waited for: `hear` gives the answer."""
        known: dict[str, Any] = {
            "group_id": self.stage.group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription(TOPIC))],
        }
        self.client.send(JoinGroupRequest(**(known | changes)), version)
        self.parked = "join"

    def sync(self, version: int = 5, **changes: Any) -> None:
        """SyncGroup, not waited for; whoever leads gives each member a share named after it."""
        shares = [
            SyncGroupRequestAssignment(member_id=one.member_id, assignment=one.name.encode())
            for one in self.stage.players.values()
        ]
        known: dict[str, Any] = {
            "group_id": self.stage.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": shares,
        }
        self.client.send(SyncGroupRequest(**(known | changes)), version)
        self.parked = "sync"

    def hear(self) -> None:
        """Read the answer of what was sent last."""
        answer = self.client.receive()
        code = ErrorCode(answer.error_code)
        if self.parked == "sync":
            self.tell(f"sync {code.name} {bytes(answer.assignment)!r} {answer.protocol_name}")
            return
        if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
            self.generation = answer.generation_id
        name = self.stage.name_of
        members = sorted(name(one.member_id) for one in answer.members)
        self.tell(
            f"join {code.name} {name(answer.member_id)} {answer.generation_id} "
            f"{answer.protocol_type} {answer.protocol_name} leader {name(answer.leader)} "
            f"skip {answer.skip_assignment} {members}"
        )

    def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.stage.group, generation_id=self.generation, member_id=self.member_id,
            group_instance_id=self.instance,
        )  # fmt: skip
        self.tell(f"heartbeat {self._code(request, 4)}")

    def leave(self, member_id: str | None = None) -> None:
        identity = MemberIdentity(
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=self.instance,
        )
        request = LeaveGroupRequest(group_id=self.stage.group, members=[identity])
        answer = self.client.ask(request, 5)
        codes = [ErrorCode(one.error_code).name for one in answer.members]
        self.tell(f"leave {ErrorCode(answer.error_code).name} {codes}")

    def commit(self, offset: int, *, topic: str = TOPIC, note: str = "note") -> None:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=0,
            committed_metadata=note,
        )  # fmt: skip
        request = OffsetCommitRequest(
            group_id=self.stage.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        code = self.client.ask(request, 8).topics[0].partitions[0].error_code
        self.tell(f"commit {ErrorCode(code).name}")

    def tell(self, text: str) -> None:
        self.stage.told.append(f"{self.name}: {text}")

    def _code(self, request: Any, version: int) -> str:
        return ErrorCode(self.client.ask(request, version).error_code).name


class Stage:
    """One play before one broker."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.players: dict[str, Player] = {}
        self.told: list[str] = []
        self.ids: dict[str, str] = {}
        self.client = WireClient(bootstrap)

    def player(self, name: str, instance: str | None = None) -> Player:
        player = self.players[name] = Player(self, name, instance)
        return player

    def name_of(self, member_id: str) -> str:
        """A member id without its random part, counted in the order of appearance."""
        if len(member_id) <= 37:
            return member_id
        return self.ids.setdefault(member_id, f"{member_id[:-37]}#{len(self.ids)}")

    def describe(self) -> None:
        (group,) = self.client.ask(DescribeGroupsRequest(groups=[self.group]), 5).groups
        is_stable = group.group_state == "Stable"
        members = sorted(
            (
                self.name_of(one.member_id),
                one.group_instance_id,
                # Kafka keeps the first client id of a static member for ever (pitfall 35).
                one.client_id if one.group_instance_id is None else "",
                one.client_host,
                bytes(one.member_metadata),
                # Up to 3.5 Kafka shows assignments of a Stable group alone; newer ones show the
                # last ones of other groups, too.
                bytes(one.member_assignment) if is_stable else b"",
            )
            for one in group.members
        )
        self.told.append(
            f"{group.error_code} {group.group_state} {group.protocol_type} "
            f"{group.protocol_data} {members}"
        )
        listed = self.client.ask(ListGroupsRequest(), 4).groups
        self.told.append(
            str([(o.protocol_type, o.group_state) for o in listed if o.group_id == self.group])
        )

    def fetch(self) -> None:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 7])]
        for wanted in (topics, None):
            asked = OffsetFetchRequestGroup(group_id=self.group, topics=wanted)
            (group,) = self.client.ask(OffsetFetchRequest(groups=[asked]), 8).groups
            self.told.append(
                f"fetch {group.error_code} " + str([
                    (topic.name, one.partition_index, one.committed_offset,
                     one.committed_leader_epoch, one.metadata, one.error_code)
                    for topic in group.topics for one in topic.partitions
                ])
            )  # fmt: skip

    def delete_offset(self, topic: str = TOPIC) -> None:
        asked = OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        answer = self.client.ask(OffsetDeleteRequest(group_id=self.group, topics=[asked]), 0)
        codes = [ErrorCode(one.partitions[0].error_code).name for one in answer.topics]
        self.told.append(f"delete offset {ErrorCode(answer.error_code).name} {codes}")

    def delete(self) -> None:
        (result,) = self.client.ask(DeleteGroupsRequest(groups_names=[self.group]), 2).results
        self.told.append(f"delete {ErrorCode(result.error_code).name}")

    def close(self) -> None:
        for player in self.players.values():
            player.client.close()
        self.client.close()


def settle(stage: Stage, *players: Player) -> None:
    """Let these players form a generation and take their shares; the first of them leads."""
    first, *others = players
    for player in players:
        if not player.member_id and player.instance is None:
            player.join()
            player.hear()
    first.join()
    if first.generation < 0 and not others:
        first.hear()
    elif first.generation < 0:
        first.hear()
        first.sync()
        first.hear()
        others[0].join()
        wait_until(lambda: beat(first) == ErrorCode.REBALANCE_IN_PROGRESS, 10, "a rebalance")
        for player in others[1:]:
            player.join()
        first.join()
        for player in players:
            player.hear()
    else:
        for player in others:
            player.join()
        for player in players:
            player.hear()
    first.sync()
    first.hear()
    for player in others:
        player.sync()
        player.hear()


def beat(player: Player) -> ErrorCode:
    request = HeartbeatRequest(
        group_id=player.stage.group, generation_id=player.generation,
        member_id=player.member_id, group_instance_id=player.instance,
    )  # fmt: skip
    return ErrorCode(player.client.ask(request, 4).error_code)


def one_member(stage: Stage) -> None:
    a = stage.player("a")
    stage.describe()
    a.heartbeat()
    a.commit(1)
    stage.describe()
    stage.fetch()
    settle(stage, a)
    stage.describe()
    a.heartbeat()
    a.commit(5)
    a.commit(5, topic="missing")
    a.commit(5, note="x" * 5_000)
    stage.fetch()
    stage.delete_offset()
    stage.delete_offset("missing")
    stage.delete()
    a.sync()
    a.hear()
    a.sync(protocol_name="other")
    a.hear()
    a.generation += 1
    a.sync()
    a.hear()
    a.commit(6)
    a.heartbeat()
    a.generation = -1
    a.commit(6)
    a.leave("stranger")
    a.leave()
    a.leave()
    stage.describe()
    a.commit(7)
    a.member_id = ""
    a.commit(8)
    stage.fetch()
    stage.delete_offset()
    stage.fetch()
    stage.delete()
    stage.delete()
    stage.delete_offset()
    stage.describe()


def refused_joins(stage: Stage) -> None:
    a, b = stage.player("a"), stage.player("b")
    refused: list[dict[str, Any]] = [
        {"session_timeout_ms": 1}, {"session_timeout_ms": 10_000_000}, {"member_id": "stranger"},
        {"protocols": []}, {"protocol_type": ""}, {"group_id": ""},
    ]  # fmt: skip
    for changes in refused:
        for version in (3, 9):
            b.join(version, **changes)
            b.hear()
    settle(stage, a)
    other = [JoinGroupRequestProtocol(name="other", metadata=b"")]
    wrong: list[dict[str, Any]] = [
        {"protocols": other}, {"protocol_type": "connect"}, {"member_id": "x"},
    ]  # fmt: skip
    for changes in wrong:
        b.join(3, **changes)
        b.hear()
    b.join(9, group_instance_id="i9", member_id="stranger")
    b.hear()
    a.heartbeat()
    stage.describe()


def rebalances(stage: Stage) -> None:
    a, b, c, d = (stage.player(name) for name in "abcd")
    settle(stage, a, b)
    stage.describe()
    c.join()
    c.hear()
    c.join()
    wait_until(lambda: beat(a) == ErrorCode.REBALANCE_IN_PROGRESS, 10, "a rebalance")
    stage.describe()
    a.sync()
    a.hear()
    a.commit(3)
    c.member_id, kept = "", c.member_id
    c.member_id = kept
    a.join()
    b.join()
    for player in (a, b, c):
        player.hear()
    b.commit(4)
    b.join()
    b.hear()
    b.heartbeat()
    stage.describe()
    b.sync()
    a.sync()
    for player in (a, b):
        player.hear()
    c.sync()
    c.hear()
    stage.describe()
    d.join()
    d.hear()
    b.join()
    b.hear()
    a.join()
    wait_until(lambda: beat(c) == ErrorCode.REBALANCE_IN_PROGRESS, 10, "the leader's rebalance")
    b.leave()
    c.join()
    for player in (a, c):
        player.hear()
    a.leave()
    wait_until(lambda: beat(c) == ErrorCode.REBALANCE_IN_PROGRESS, 10, "a new leader")
    c.join()
    c.hear()
    c.leave()
    stage.describe()


def static_members(stage: Stage) -> None:
    a, b = stage.player("a", "i1"), stage.player("b", "i2")
    settle(stage, a, b)
    stage.describe()
    twin = stage.player("twin", "i2")
    twin.join()
    twin.hear()
    b.heartbeat()
    b.commit(3)
    b.sync()
    b.hear()
    b.leave()
    b.join()
    b.hear()
    twin.sync()
    twin.hear()
    twin.commit(3)
    del stage.players["b"]
    for version in (8, 9):
        again = stage.player(f"again-{version}", "i1")
        again.join(version)
        again.hear()
        again.sync()
        again.hear()
        again.heartbeat()
    a.heartbeat()
    stage.describe()
    twin.leave("")
    twin.heartbeat()
    again.join()
    again.hear()
    again.leave("")
    stage.describe()


PLAYS: tuple[Callable[[Stage], None], ...] = (
    one_member, refused_joins, rebalances, static_members,
)  # fmt: skip


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    ours = BrokerProcess(tmp_path_factory.mktemp("ours"), SETTINGS)
    kafka = KafkaProcess(
        tmp_path_factory.mktemp("kafka"),
        properties={key: str(value) for key, value in SETTINGS.items()},
    )
    with kafka, ours:
        for bootstrap in (ours.bootstrap, kafka.bootstrap):
            prepare(bootstrap)
        yield ours.bootstrap, kafka.bootstrap


def prepare(bootstrap: str) -> None:
    """The topic, and a coordinator that has loaded its groups."""
    topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
    with WireClient(bootstrap) as client:
        answer = client.ask(CreateTopicsRequest(topics=[topic]), 7)
        assert answer.topics[0].error_code == 0
        wait_until(
            lambda: client.ask(FindCoordinatorRequest(key="g"), 2).error_code == 0, 30, "ready"
        )
        for play in PLAYS:
            request = HeartbeatRequest(group_id=play.__name__, generation_id=0, member_id="x")
            wait_until(
                lambda asked=request: (
                    client.ask(asked, 4).error_code  # type: ignore[misc]  # bound now
                    == ErrorCode.UNKNOWN_MEMBER_ID
                ),
                30,
                "loaded",
            )


@pytest.mark.parametrize("play", PLAYS, ids=[play.__name__ for play in PLAYS])
def test_a_play_goes_as_before_apache_kafka(
    brokers: tuple[str, str], play: Callable[[Stage], None]
) -> None:
    told = []
    for bootstrap in brokers:
        stage = Stage(bootstrap, play.__name__)
        try:
            play(stage)
        finally:
            stage.close()
        told.append(stage.told)
    assert told[0] == told[1]
    assert len(told[0]) > 10
