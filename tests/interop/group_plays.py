"""Scripted group members on separate connections, and a record of the broker's responses."""

from functools import partial
from typing import Any

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
from protocol.wire.schema import Message
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient, create
from tests.unit.broker.group_scene import subscription

TOPIC = "played"


class Player:
    """One member with a separate connection."""

    def __init__(self, stage: "Stage", name: str, instance: str | None) -> None:
        self.stage = stage
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.client = WireClient(stage.bootstrap, name)
        self.parked = ""

    def join(self, version: int = 9, **changes: Any) -> None:
        """Send JoinGroup without waiting for the response, which `hear` receives."""
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
        """Send SyncGroup without waiting for the response, which `hear` receives. It assigns each
        member that member's own name."""
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
        """Receive the response to the last JoinGroup or SyncGroup, and record it."""
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
    """One play on one broker."""

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
        """Return a member id with a number in place of its random part. The numbers are in the
        order in which the ids first appeared."""
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
                # Kafka never updates the client id of a static member (pitfall 35), so ignore it.
                one.client_id if one.group_instance_id is None else "",
                one.client_host,
                bytes(one.member_metadata),
                # Kafka up to 3.5 shows assignments only for Stable groups. Later versions also show
                # the last assignments of groups in other states, so ignore those.
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
    """Let these players form a generation and get their assignments. The first player becomes the
    group's leader."""
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


def prepare(bootstrap: str, *groups: str) -> None:
    """Create the topic, and wait until the coordinator has loaded these groups."""
    with WireClient(bootstrap) as client:
        create(client, TOPIC, 2)
        for group in groups:
            find = FindCoordinatorRequest(key=group)
            wait_until(partial(_is_said, client, find, 2, ErrorCode.NONE), 30, "found")
            # While a group is loading, every heartbeat is accepted.
            ask = HeartbeatRequest(group_id=group, generation_id=0, member_id="x")
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            wait_until(partial(_is_said, client, ask, 4, unknown), 30, "loaded")


def _is_said(client: WireClient, request: Message, version: int, code: ErrorCode) -> bool:
    return bool(client.ask(request, version).error_code == code)
