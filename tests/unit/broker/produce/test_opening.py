"""Produce requests whose batches must be decompressed: over several turns of the loop, in order,
one at a time."""

from collections.abc import Generator, Iterator
from typing import TypeAlias

import pytest

from broker.config import LogConfig
from broker.produce import produces as producing
from broker.produce.produces import Produces
from broker.storage.log import Log
from broker.storage.outcomes import CheckedRecords
from broker.storage.validation import look_at_records
from protocol.errors import ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import DeleteTopicsRequest
from protocol.wire.compression import Codec
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch
from tests.harness.wire import batch_of, fetch_request, produce_request, read_values
from tests.unit.broker.rig import Asked, Rig
from tests.unit.storage.kit import NOW

Looking: TypeAlias = Generator[bool, None, CheckedRecords]

PARTITIONS = 6
STEP_NS = 15_000_000
TOPIC_RESOURCE = 2

# These tests replace a function that can be compiled.
pytestmark = pytest.mark.interpreted


class Looks:
    """Records the decompression of batches and the turn of each step. Each batch takes two
    steps."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns: list[int] = []
        """The number of the turn of each step."""
        self.open_count = 0
        self.open_count_max = 0
        self.batch_count = 0
        self._world = rig.world
        self._world.look_ns = 0
        self._turn = 0

        def slow(batch: memoryview, config: LogConfig, now_ms: int) -> Looking:
            steps = look_at_records(batch, config, now_ms)
            return self._slowly(steps)

        monkeypatch.setattr(producing, "look_at_records", slow)
        self._count()

    def _slowly(self, steps: Looking) -> Looking:
        self.batch_count += 1
        self.open_count += 1
        self.open_count_max = max(self.open_count, self.open_count_max)
        try:
            self._work()
            yield False
            self._work()
            return (yield from steps)
        finally:
            self.open_count -= 1

    def _work(self) -> None:
        self.turns.append(self._turn)
        self._world.ns += STEP_NS

    def _count(self) -> None:
        self._turn += 1
        self._world.soon(self._count)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.create("t", PARTITIONS, cleanup_policy="compact")
    yield rig


@pytest.fixture
def looks(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(rig, monkeypatch)


def request_of(*batches: tuple[int, bytes | bytearray]) -> ProduceRequest:
    """Return one Produce request with a batch for each of these partitions, in this order."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in batches]
    return ProduceRequest(
        acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )


def wide() -> ProduceRequest:
    return request_of(*((index, batch_of([b"%d" % index])) for index in range(PARTITIONS)))


def numbered(*sequences: int) -> ProduceRequest:
    """Return a request with batches of one idempotent producer for one partition, with these
    sequences."""
    batches = [
        batch_of([b"%d" % one], producer_id=5, producer_epoch=0, base_sequence=one)
        for one in sequences
    ]
    return request_of(*((0, batch) for batch in batches))


def finish(rig: Rig) -> None:
    for _ in range(4 * PARTITIONS):
        rig.turn()
        rig.flusher.sync()


def outcomes(asked: Asked) -> list[tuple[ErrorCode, int]]:
    parts = asked.answer.responses[0].partition_responses
    return [(ErrorCode(one.error_code), one.base_offset) for one in parts]


def is_held(asked: Asked) -> bool:
    """Return True if the connection starts no request behind this one."""
    return asked.session.held is asked.slot


def log_of(rig: Rig, partition: int = 0) -> Log:
    return rig.broker.parts.replicas.find("t", partition).log


def values_in(rig: Rig) -> list[bytes | None]:
    answer = rig.ask(fetch_request("t", 0), 12)
    return read_values(answer.responses[0].partitions[0].records)


def unfinished(produces: Produces) -> int:
    return len(produces._openings.pending)


def test_a_turn_ends_after_twenty_milliseconds_and_all_is_taken(rig: Rig, looks: Looks) -> None:
    asked = rig.send(wide(), 9)
    assert is_held(asked)
    finish(rig)
    assert outcomes(asked) == [(ErrorCode.NONE, 0)] * PARTITIONS
    assert not is_held(asked)
    # The second step ends after the time of its turn, so no turn has a third step.
    counts = [looks.turns.count(turn) for turn in sorted(set(looks.turns))]
    assert counts == [2] * PARTITIONS


def test_what_is_short_is_appended_at_once_and_holds_nothing(rig: Rig) -> None:
    asked = rig.send(request_of((0, batch_of([b"x"]))), 9)
    assert not is_held(asked)
    assert log_of(rig).log_end_offset == 1
    rig.flusher.sync()
    assert outcomes(asked) == [(ErrorCode.NONE, 0)]


def test_a_large_batch_alone_is_looked_at_in_many_steps() -> None:
    records = [NewRecord(b"k", b"", NOW)] * 100_000
    batch = memoryview(build_batch(records, codec=Codec.ZSTD))
    config = LogConfig.of({"cleanup.policy": "compact"})
    assert sum(1 for _ in look_at_records(batch, config, NOW)) >= 1_000
    # One record can have millions of headers, so its headers are also checked in many steps.
    batch = memoryview(build_batch([NewRecord(b"k", b"", NOW, [("", None)] * 50_000)]))
    assert sum(1 for _ in look_at_records(batch, config, NOW)) >= 100


def test_requests_take_turns_and_one_batch_is_open_at_a_time(rig: Rig, looks: Looks) -> None:
    long = rig.send(wide(), 9)
    short = rig.send(request_of((1, batch_of([b"other"]))), 9)
    while not short.is_answered():
        rig.turn()
        rig.flusher.sync()
    assert not long.is_answered()
    finish(rig)
    assert {code for code, _ in outcomes(long) + outcomes(short)} == {ErrorCode.NONE}
    assert looks.open_count_max == 1
    assert max(looks.turns.count(turn) for turn in looks.turns) == 2


def test_a_large_honest_request_is_taken_whole(rig: Rig) -> None:
    count = 5_000
    values = [b"value"] * count
    for round_number in range(2):
        batches = [(n, batch_of(values, codec=Codec.ZSTD)) for n in range(PARTITIONS)] * 4
        asked = rig.send(request_of(*batches), 9)
        while not asked.is_answered():
            rig.turn()
            rig.flusher.sync()
        first = 4 * count * round_number
        wanted = [(ErrorCode.NONE, first + n * count) for n in range(4) for _ in range(PARTITIONS)]
        assert outcomes(asked) == wanted


def test_batches_outlive_the_buffer_that_they_came_in(rig: Rig, looks: Looks) -> None:
    asked = rig.send(request_of(*((0, batch_of([b"%d" % n])) for n in range(4))), 9)
    # The next read overwrites these bytes.
    asked.frame[:] = bytes(len(asked.frame))
    finish(rig)
    assert outcomes(asked) == [(ErrorCode.NONE, n) for n in range(4)]
    assert values_in(rig) == [b"0", b"1", b"2", b"3"]


def test_a_refusal_in_the_middle_is_that_batch_s_alone(rig: Rig, looks: Looks) -> None:
    batches = [batch_of([b"a"]), batch_of([b"b"], key=None), batch_of([b"c"])]
    asked = rig.send(request_of(*((0, one) for one in batches)), 9)
    finish(rig)
    assert outcomes(asked) == [
        (ErrorCode.NONE, 0),
        (ErrorCode.INVALID_RECORD, -1),
        (ErrorCode.NONE, 1),
    ]
    (error,) = asked.answer.responses[0].partition_responses[1].record_errors
    assert error.batch_index == 0


def test_a_connection_that_dies_leaves_nothing_behind(rig: Rig, looks: Looks) -> None:
    produces = rig.broker.parts.produces
    gone = rig.send(numbered(*range(6)), 9)
    rig.turn()
    assert unfinished(produces) == 1
    appended = log_of(rig).log_end_offset
    gone.session.is_closed = True
    finish(rig)
    assert (unfinished(produces), looks.open_count) == (0, 0)
    assert 0 < appended == log_of(rig).log_end_offset < 6
    # The producer retries on another connection, and no record is appended twice.
    again = rig.send(numbered(*range(6)), 9)
    finish(rig)
    assert outcomes(again) == [(ErrorCode.NONE, n) for n in range(6)]
    assert log_of(rig).log_end_offset == 6


def test_sequences_hold_while_two_connections_take_turns(rig: Rig, looks: Looks) -> None:
    first, second = (rig.send(numbered(*range(4)), 9) for _ in range(2))
    early = rig.send(numbered(5), 9)
    finish(rig)
    assert outcomes(first) == outcomes(second) == [(ErrorCode.NONE, n) for n in range(4)]
    assert outcomes(early) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert values_in(rig) == [b"0", b"1", b"2", b"3"]


def test_a_topic_deleted_in_the_middle_is_unknown(rig: Rig, looks: Looks) -> None:
    asked = rig.send(wide(), 9)
    rig.turn()
    rig.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 4)
    assert not asked.is_answered()
    # Some batches are appended but not synced. The others cannot be appended, because the topic is
    # deleted.
    assert any(log_of(rig, index).log_end_offset for index in range(PARTITIONS))
    for index in range(PARTITIONS):
        rig.flusher.marked.pop(log_of(rig, index), None)
    finish(rig)
    assert outcomes(asked) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)] * PARTITIONS


def test_settings_that_change_meanwhile_are_those_that_count(rig: Rig, looks: Looks) -> None:
    rig.create("plain", message_timestamp_before_max_ms="1000")
    request = produce_request("plain", batch_of([b"x"], key=None, timestamp_ms=NOW))
    blocker = rig.send(wide(), 9)
    asked = rig.send(request, 9)
    looks_before = looks.batch_count
    rig.ask(
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=TOPIC_RESOURCE,
                    resource_name="plain",
                    configs=[
                        AlterableConfig(name="cleanup.policy", config_operation=0, value="compact")
                    ],
                )
            ]
        ),
        1,
    )
    finish(rig)
    assert looks.batch_count > looks_before
    assert outcomes(blocker) == [(ErrorCode.NONE, 0)] * PARTITIONS
    assert outcomes(asked) == [(ErrorCode.INVALID_RECORD, -1)]


def test_a_write_that_fails_in_the_middle_takes_back_its_own_batch_only(
    rig: Rig, looks: Looks
) -> None:
    asked = rig.send(request_of(*((0, batch_of([b"%d" % n])) for n in range(5))), 9)
    rig.turn()
    assert 0 < log_of(rig).log_end_offset < 4
    refused: list[str] = []

    def refuse_once(path: str, operation: str) -> bool:
        if operation != "write" or "/t-0/" not in path or refused:
            return False
        refused.append(path)
        return True

    rig.disk.refuses = refuse_once
    finish(rig)
    codes = [code for code, _ in outcomes(asked)]
    assert sorted(codes) == [ErrorCode.NONE] * 4 + [ErrorCode.KAFKA_STORAGE_ERROR]
    assert codes[0] is ErrorCode.NONE
    assert [offset for _, offset in outcomes(asked) if offset >= 0] == [0, 1, 2, 3]


def test_without_acks_a_refusal_in_a_later_turn_hangs_up(rig: Rig, looks: Looks) -> None:
    request = request_of(*((0, batch_of([b"x"], key=None)) for _ in range(3)))
    request.acks = 0
    asked = rig.send(request, 9)
    assert not asked.session.closed_because
    finish(rig)
    assert "INVALID_RECORD" in asked.session.closed_because
