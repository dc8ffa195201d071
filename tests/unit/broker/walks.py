"""The walk of a request through the broker's files, from its bytes to the bytes of its answer.

A whole broker on a simulated disk serves one client session over a link in memory. A profiler notes
each call of a function of `broker/`. A *move* is a change of the file from one such call to the
next. A *return* is a move to a file that was entered before. `python -m tests.unit.broker.walks`
prints all walks, and with `moves` the whole path of each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from broker.node.broker import Broker
from broker.storage.disk import FileRegion
from protocol.messages.api import ApiKey, response_class
from protocol.messages.cluster import ApiVersionsRequest, FindCoordinatorRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from protocol.messages.headers import decode_response_header, encode_request
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch
from protocol.wire.schema import Message
from tests.sim.disk import SimDisk
from tests.sim.world import SimListening, SimWorld
from tests.unit.broker.group_scene import subscription
from tests.unit.broker.rig import LISTENERS
from tests.unit.storage.kit import NOW, broker_config

ROOM = str(Path(__file__).parents[3] / "broker") + "/"
TURNS_MAX = 200
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}


class Walk(NamedTuple):
    """The walk of one request."""

    path: tuple[str, ...]
    """The files of `broker/` that were called, in order, without repeats of the last one."""

    @property
    def files(self) -> tuple[str, ...]:
        """Return each file once, in the order in which the walk first entered it."""
        return tuple(dict.fromkeys(self.path))

    @property
    def move_count(self) -> int:
        return len(self.path) - 1

    def __str__(self) -> str:
        returns = len(self.path) - len(self.files)
        return f"{len(self.files)} files, {self.move_count} moves, {returns} of them returns"


class Recorder:
    """Records the calls of functions of `broker/` while it is on."""

    def __init__(self) -> None:
        self._path: list[str] = []

    def on(self) -> None:
        sys.setprofile(self._note)

    def off(self) -> None:
        sys.setprofile(None)

    def walk(self) -> Walk:
        return Walk(tuple(self._path))

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(ROOM):
            name = path[len(ROOM) : -len(".py")]
            if self._path[-1:] != [name]:
                self._path.append(name)


class MemoryLink:
    """A client's connection: frames go in, and the bytes of the answers are stored."""

    peer_host = "127.0.0.1"
    peer = "127.0.0.1:1"
    peer_id = None
    held_bytes = 0
    is_in_frame = is_stalled = is_paused = False

    def __init__(self) -> None:
        self.sent = b""
        self.on_sent: Callable[[], None] = lambda: None

    def send(self, chunks: Sequence[Any]) -> None:
        self.on_sent()
        for chunk in chunks:
            self.sent += chunk.read() if isinstance(chunk, FileRegion) else bytes(chunk)

    def left(self) -> Iterator[memoryview]:
        return iter(())

    def limit_frames(self, bytes_max: int) -> None:
        """Do nothing, because the test delivers whole frames."""

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def shrink(self) -> None:
        """Do nothing, because this link has no buffer."""

    def mute(self) -> None:
        """Do nothing, because no output waits here."""

    def close(self) -> None:
        """Do nothing, because the session closes itself."""


class WalkedBroker:
    """A single broker with one client at a time."""

    def __init__(self) -> None:
        self.world = SimWorld(1, NOW, 1_000)
        broker = Broker(broker_config(SETTINGS, listeners=LISTENERS), self.world, SimDisk())
        broker.start(broker.recover())
        self.world.settle()
        self._number = 0
        self.connect()

    def connect(self) -> None:
        """Open another connection, because the next request is of another kind of client."""
        listening = self.world.listening["HOST"]
        assert isinstance(listening, SimListening)
        self.link = MemoryLink()
        self.session: Any = listening.accept()
        self.session.linked(self.link)
        # The first request of a connection also counts the connection.
        self.ask(ApiVersionsRequest(client_software_name="walk", client_software_version="1"), 3)

    def ask(self, message: Message, version: int) -> tuple[Any, Walk]:
        """Send one request, and run the broker until its answer has left."""
        self._number += 1
        frame = memoryview(bytearray(encode_request(message, version, self._number, "walk")[4:]))
        self.link.sent = b""
        recorder = Recorder()
        self.link.on_sent = recorder.off
        recorder.on()
        try:
            self.session.take(iter([frame]))
            for _ in range(TURNS_MAX):
                if self.link.sent:
                    break
                self.world.turn()
        finally:
            recorder.off()
        assert self.link.sent, "not answered"
        answer = self.link.sent[4:]
        self.world.settle()
        key = ApiKey(message.api_key)
        _, position = decode_response_header(answer, key, version)
        return response_class(key).decode(answer, version, position)[0], recorder.walk()


def produce() -> ProduceRequest:
    """Return a Produce with one record and acks=all."""
    batch = build_batch([NewRecord(None, b"x" * 100, NOW)])
    one = PartitionProduceData(index=0, records=bytes(batch))
    topic = TopicProduceData(name="logs", partition_data=[one])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def fetch(topic_id: Any) -> FetchRequest:
    """Return a Fetch from the start of the partition."""
    one = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="logs", topic_id=topic_id, partitions=[one])
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[topic])


def join(member_id: str) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=subscription("logs"))
    return JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=20_000,
        member_id=member_id, protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip


def create_topic(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])


def walks() -> dict[str, Walk]:
    """Return the walk of each request, by its name."""
    node = WalkedBroker()
    found: dict[str, Walk] = {}

    def ask(name: str, message: Message, version: int) -> Any:
        answer, walk = node.ask(message, version)
        found[name] = walk
        return answer

    made = ask("CreateTopics", create_topic("logs"), 7)
    assert made.topics[0].error_code == 0
    for name in ("Produce", "Produce like the last"):
        one = ask(name, produce(), 9).responses[0].partition_responses[0]
        assert one.error_code == 0
    node.connect()
    read = ask("Fetch", fetch(made.topics[0].topic_id), 12).responses[0].partitions[0]
    assert read.error_code == 0 and read.high_watermark == 2
    node.connect()
    node.ask(FindCoordinatorRequest(key="g"), 2)
    node.world.settle()
    member_id = node.ask(join(""), 9)[0].member_id
    joined = ask("JoinGroup", join(member_id), 9)
    assert joined.error_code == 0
    syncing = SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=member_id,
        protocol_type="consumer", protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"a")],
    )  # fmt: skip
    assert ask("SyncGroup", syncing, 5).error_code == 0
    return found


def main() -> None:
    """Print each walk with its files. With `moves` as an argument, print its whole path."""
    for name, walk in walks().items():
        print(f"{name}: {walk}")
        print("  " + " ".join(walk.path if "moves" in sys.argv else walk.files))


if __name__ == "__main__":
    main()
