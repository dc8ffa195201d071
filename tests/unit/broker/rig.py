"""A whole broker without sockets, threads and real time: requests go in as frames, answers come
out.

The disk is simulated. Syncs happen when the test says so, and only the test advances the clock.
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from broker.metadata.records import MetadataRecord, encode_record
from broker.node.broker import Broker
from broker.replicas.flusher import Flusher
from broker.security.rights import EVERYTHING, Rights
from broker.sessions.pipeline import Slot, is_produce_frame
from broker.storage.disk import FileRegion
from broker.storage.errors import CorruptionError, DiskError, FolderError
from broker.storage.flush import FlushTarget
from broker.storage.log import Log
from broker.world import Jobs
from protocol.errors import ErrorCode
from protocol.messages.api import response_class
from protocol.messages.headers import decode_response_header, encode_request
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch
from protocol.wire.schema import Message, Struct
from tests.sim.disk import SimDisk
from tests.sim.world import SimWorld
from tests.unit.storage.kit import NOW, broker_config

T = TypeVar("T")

LISTENERS = {
    name: {"host": name.lower(), "port": 1, "advertised_host": name.lower(), "advertised_port": 1}
    for name in ("HOST", "MILL", "BROKER")
}
"""The addresses that the broker advertises. No socket listens there."""

KAFKAS_NULLS = {
    "PartitionData.aborted_transactions",
    "DescribeClientQuotasResponse.entries",
}
"""The arrays that are null in Kafka's answers too (pitfall 23). Clients accept no other null
array."""


def null_arrays(value: object) -> set[str]:
    """Return the names of all null arrays anywhere in an answer."""
    if isinstance(value, list):
        return set().union(*(null_arrays(one) for one in value))
    if not isinstance(value, Struct):
        return set()
    found: set[str] = set()
    for field in value.fields:
        inner: Any = getattr(value, field.name)
        is_null = field.kind == "array" and inner is None
        found |= {f"{type(value).__name__}.{field.name}"} if is_null else null_arrays(inner)
    return found


def texts(value: object) -> set[str]:
    """Return all error messages anywhere in an answer."""
    if isinstance(value, list):
        return set().union(*(texts(one) for one in value))
    if not isinstance(value, Struct):
        return set()
    found: set[str] = set()
    for field in value.fields:
        inner: Any = getattr(value, field.name)
        found |= {inner} if field.name == "error_message" and inner else texts(inner)
    return found


def repeats_a_code(text: str) -> bool:
    """Return True if a text begins with the name of an error code, because clients already show
    the name."""
    return text.partition(":")[0] in ErrorCode.__members__


class InlineWorker:
    """A worker that performs each job at once."""

    def __init__(self, on_final: Callable[[Exception], None] | None = None) -> None:
        self._on_final = on_final

    def run(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        try:
            result = job()
        except (CorruptionError, DiskError, FolderError, OSError) as error:
            is_final = isinstance(error, DiskError) and error.is_final
            ((is_final and self._on_final) or failed)(error)
        else:
            done(result)

    def stop(self, timeout_s: float | None = None) -> bool:
        return True


class HeldWorker(InlineWorker):
    """A worker that performs its jobs when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.held: deque[Callable[[], None]] = deque()

    def run(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.held.append(partial(super().run, job, done, failed))

    def work(self) -> None:
        """Perform all waiting jobs, and the jobs that follow from them."""
        while self.held:
            self.held.popleft()()


class HeldSyncs(InlineWorker):
    """The thread of the metadata log. It works when the rig syncs."""

    def __init__(self, on_final: Callable[[Exception], None] | None = None) -> None:
        super().__init__(on_final)
        self._held: deque[Callable[[], None]] = deque()

    def run(
        self,
        job: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._held.append(partial(super().run, job, done, failed))

    @property
    def held_count(self) -> int:
        """The number of waiting jobs."""
        return len(self._held)

    def work(self, count: int | None = None) -> None:
        """Perform this number of the waiting jobs. Without a number perform all of them and the
        jobs that follow."""
        while self._held and count != 0:
            self._held.popleft()()
            count = count if count is None else count - 1


SYNC_NS = 1_500_000
"""The reported duration of each sync."""


class Begun(NamedTuple):
    """Syncs in progress."""

    targets: list[tuple[Log, FlushTarget]]
    metadata_count: int


class HeldFlusher(Flusher):
    """A flusher that syncs when the test says so."""

    def __init__(self, replaced: Flusher, metadata: HeldSyncs) -> None:
        """This flusher notifies the callbacks of `replaced`. `metadata` has the syncs of the
        metadata log."""
        self._metadata = metadata
        self.marked: dict[Log, None] = {}
        self._in_flight = set()
        self._drains = []
        self._listener = replaced._listener
        self._on_timed = replaced._on_timed

    @property
    def is_idle(self) -> bool:
        return not self.marked and not self._metadata.held_count

    def mark(self, log: Log) -> None:
        self.marked[log] = None

    def stop(self) -> bool:
        return True

    def begin(self) -> Begun:
        """Start a sync of all marked logs. Later writes are not part of it."""
        marked, self.marked = self.marked, {}
        targets = [(log, log.flush_target()) for log in marked]
        begun = [(log, target) for log, target in targets if target is not None]
        self._in_flight.update(log for log, _ in begun)
        return Begun(begun, self._metadata.held_count)

    def finish(self, begun: Begun) -> None:
        """Complete the sync."""
        self._metadata.work(begun.metadata_count)
        self._finish(begun.targets)

    def _finish(self, targets: list[tuple[Log, FlushTarget]]) -> None:
        for log, target in targets:
            target.perform()
            log.flushed(target)
            self._in_flight.discard(log)
        if targets:
            self._on_timed(SYNC_NS)
        for log, _ in targets:
            assert self._listener is not None
            self._listener.flushed(log)
        self._drained()

    def sync(self) -> None:
        """Sync all marked logs and the metadata log in one group commit."""
        begun = self.begin()
        self._metadata.work()
        self._finish(begun.targets)


class RigWorld(SimWorld):
    """A world whose threads perform each job at once, or as the given worker does."""

    def __init__(self, now_ms: int, monotonic_ms: int, worker: Jobs | None) -> None:
        super().__init__(1, now_ms, monotonic_ms)
        self._worker = worker
        self.metadata = HeldSyncs()

    def jobs(self, name: str, on_final: Callable[[Exception], None] | None = None) -> Jobs:
        if name == "metadata":
            self.metadata = HeldSyncs(on_final)
            return self.metadata
        return self._worker or InlineWorker(on_final)


class FakeSession:
    """The part of a session that handlers use."""

    login: Any = None
    peer_id: int | None = None
    rights: Rights = EVERYTHING

    def __init__(self, listener: str = "HOST", number: int = 0) -> None:
        self.number = number
        self.listener_name = listener
        self.peer_host = "127.0.0.1"
        self.peer = "127.0.0.1:1"
        self.is_closed = False
        self.has_staged = False
        self.parked_fetch: Any = None
        self.template: Any = None
        self.closed_because = ""
        self.held: Slot | None = None
        """The request behind which no other request may start."""
        self.paused_ms = 0

    def answered(self) -> None:
        pass

    def hold(self, slot: Slot) -> None:
        self.held = slot

    def let_go(self, slot: Slot) -> None:
        assert self.held is slot
        self.held = None

    def attempt(self, work: Callable[[], None]) -> None:
        work()

    def throttle(self, pause_ms: int) -> None:
        self.paused_ms = pause_ms

    def close(self, reason: str, *, is_logged: bool = True) -> None:
        self.is_closed = True
        self.closed_because = reason


class Asked:
    """One request and its answer."""

    def __init__(
        self, message: Message, version: int, listener: str, client_id: str = "rig"
    ) -> None:
        self.session: Any = FakeSession(listener)
        self.frame = memoryview(bytearray(encode_request(message, version, 1, client_id)[4:]))
        self.slot = Slot(is_produce_frame(self.frame), len(self.frame))
        self._api_key = message.api_key
        self._version = version

    def is_answered(self) -> bool:
        """Return True if the answer has been given. An empty answer counts."""
        return self.slot.answer is not None

    @property
    def answer(self) -> Any:
        """Return the decoded answer. Fail if there is none."""
        chunks = self.slot.answer
        assert chunks is not None, "not answered yet"
        frame = b"".join(
            chunk.read() if isinstance(chunk, FileRegion) else bytes(chunk)  # type: ignore[call-overload]  # bytes-like
            for chunk in chunks
        )[4:]
        _, position = decode_response_header(frame, self._api_key, self._version)
        answer = response_class(self._api_key).decode(frame, self._version, position)[0]
        # Pitfall 7: clients fail on nulls that Kafka never sends, even if the schema allows them.
        assert null_arrays(answer) <= KAFKAS_NULLS
        assert not [text for text in texts(answer) if repeats_a_code(text)]
        return answer


class Rig:
    """A started broker on a simulated disk."""

    raw: Mapping[str, Any] = MappingProxyType({"listeners": LISTENERS})
    """The configuration besides the settings."""

    def __init__(
        self,
        disk: SimDisk | None = None,
        *,
        worker: Jobs | None = None,
        rack: str | None = None,
        **settings: object,
    ) -> None:
        self.disk = disk or SimDisk()
        self.rack = rack
        self._worker = worker
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.world = RigWorld(NOW, 1_000, worker)
        self.clock = self.world.clock
        self.start()

    def start(self) -> None:
        config = broker_config(self.settings, **self.raw, rack=self.rack)
        self.broker = Broker(config, self.world, self.disk)
        self.flusher = HeldFlusher(self.broker.flusher, self.world.metadata)
        self.broker.flusher = self.flusher
        self.broker.start(self.broker.recover())
        # A small shard is loaded in the first turn.
        self.turn()

    def power_cut(self, chance: random.Random) -> None:
        """Drop unsynced bytes at random, and start the broker again."""
        now_ms, monotonic_ms = self.clock.now_ms(), self.clock.monotonic_ms()
        drawn_from = self.world.chance
        self.world = RigWorld(now_ms, monotonic_ms, self._worker)
        # The restarted broker draws other ids than before.
        self.world.chance = drawn_from
        self.clock = self.world.clock
        self.disk.crash(chance)
        self.start()

    def turn(self) -> None:
        """Run everything that is scheduled for the next turn of the loop."""
        self.world.turn()

    def send(self, message: Message, version: int, *, listener: str = "HOST") -> Asked:
        """Start a request, and write what it has staged, as at the end of a read."""
        asked = Asked(message, version, listener)
        self.start_request(asked)
        return asked

    def start_request(self, asked: Asked) -> None:
        """Start a request that is already encoded."""
        self.broker.listeners.clients.start(asked.session, asked.slot, asked.frame)
        if asked.session.has_staged:
            asked.session.has_staged = False
            self.broker.parts.produces.settle()

    def ask(self, message: Message, version: int) -> Any:
        """Start a request, sync what it needs, and return its answer."""
        asked = self.send(message, version)
        for _ in range(3):
            if not asked.is_answered():
                self.flusher.sync()
                self.turn()
        return asked.answer

    def create(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in settings.items()
            ],
        )
        answer = self.ask(CreateTopicsRequest(topics=[topic]), 7)
        assert answer.topics[0].error_code == 0, answer.topics[0]

    def commit(self, *records: MetadataRecord) -> None:
        """Append records to the metadata log, as a decision of the controller without a request."""
        quorum = self.broker.parts.metadata.quorum
        batch = build_batch(
            [NewRecord(None, encode_record(one), self.clock.now_ms()) for one in records]
        )
        assert quorum.propose(quorum.epoch, bytes(batch)) is None
        self.world.metadata.work()

    def advance(self, by_ms: int) -> None:
        """Advance the clock and run what is due."""
        self.clock.advance(by_ms)
        self.broker.serving.on_time(self.clock.monotonic_ms())
