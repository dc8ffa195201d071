"""A Produce is answered after the sync that it waits for, and never before."""

import errno
import random
from collections.abc import Iterator
from typing import Any

import pytest

from broker.produce.pending import SYNC_MS_MIN
from broker.storage.known_producer import AWAITED_COUNT_MAX
from protocol.errors import ErrorCode
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from protocol.messages.produce import ProduceRequest
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from tests.harness.seed import seeded
from tests.harness.wire import batch_of, fetch_request, produce_request, read_values
from tests.unit.broker.rig import Asked, Rig
from tests.unit.broker.txn_rig import Doubtful


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.create("t", 2)
    yield rig


def code_of(asked: Asked, number: int = 0) -> ErrorCode:
    return ErrorCode(asked.answer.responses[number].partition_responses[0].error_code)


@pytest.mark.parametrize("required_acks", [1, -1])
def test_an_acknowledgement_waits_for_the_sync(rig: Rig, required_acks: int) -> None:
    batch = batch_of([b"x"])
    asked = rig.send(produce_request("t", batch, required_acks=required_acks), 9)
    log = rig.broker.parts.replicas.find("t", 0).log
    assert not asked.is_answered()
    assert (log.log_end_offset, log.high_watermark) == (1, 0)
    rig.flusher.sync()
    assert code_of(asked) is ErrorCode.NONE
    assert log.high_watermark == 1


def test_without_acks_nothing_waits_and_nothing_is_sent(rig: Rig) -> None:
    asked = rig.send(produce_request("t", batch_of([b"x"]), required_acks=0), 9)
    assert asked.slot.answer == ()


def test_without_acks_a_refusal_hangs_up(rig: Rig) -> None:
    asked = rig.send(produce_request("none", batch_of([b"x"]), required_acks=0), 9)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in asked.session.closed_because


def test_one_sync_answers_everything_written_before_it(rig: Rig) -> None:
    asked = [rig.send(produce_request("t", batch_of([b"x"])), 9) for _ in range(10)]
    rig.flusher.sync()
    offsets = [one.answer.responses[0].partition_responses[0].base_offset for one in asked]
    assert offsets == list(range(10))


def test_a_sync_answers_nothing_that_was_written_after_it_began(rig: Rig) -> None:
    rig.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)

    def start(number: int) -> list[Asked]:
        topic = CreatableTopic(name=f"new{number}", num_partitions=1, replication_factor=1)
        return [
            rig.send(produce_request("t", batch_of([b"x"])), 9),
            rig.send(commit_request(number), 8),
            rig.send(CreateTopicsRequest(topics=[topic]), 7),
        ]

    early = start(1)
    under_way = rig.flusher.begin()
    late = start(2)
    rig.flusher.finish(under_way)
    assert [one.is_answered() for one in early] == [True] * 3
    assert [one.is_answered() for one in late] == [False] * 3
    assert "new2" not in rig.broker.parts.metadata.image.topics
    assert committed_offset(rig) == 1
    rig.flusher.sync()
    assert [one.is_answered() for one in late] == [True] * 3


def test_a_request_for_two_partitions_waits_for_both(rig: Rig) -> None:
    request = produce_request("t", batch_of([b"x"]))
    other = produce_request("t", batch_of([b"y"]), partition=1)
    request.topic_data[0].partition_data += other.topic_data[0].partition_data
    asked = rig.send(request, 9)
    first, second = (rig.broker.parts.replicas.find("t", index).log for index in (0, 1))
    del rig.flusher.marked[second]
    rig.flusher.sync()
    assert first.high_watermark == 1
    assert not asked.is_answered()
    rig.flusher.mark(second)
    rig.flusher.sync()
    assert asked.is_answered()


def test_a_repeated_batch_waits_for_its_first_copy(rig: Rig) -> None:
    batch = batch_of([b"x"], producer_id=5, producer_epoch=0, base_sequence=0)
    first = rig.send(produce_request("t", batch), 9)
    again = rig.send(produce_request("t", batch), 9)
    assert not again.is_answered()
    rig.flusher.sync()
    assert first.answer == again.answer


def test_with_interval_flushing_the_page_cache_is_enough() -> None:
    rig = Rig(log_flush_interval_messages=1_000)
    rig.create("t")
    asked = rig.send(produce_request("t", batch_of([b"x"])), 9)
    assert code_of(asked) is ErrorCode.NONE
    assert not rig.flusher.marked
    rig.send(produce_request("t", batch_of([b"x"] * 1_000)), 9)
    assert len(rig.flusher.marked) == 1


def test_a_clock_that_is_set_back_puts_no_sync_off() -> None:
    rig = Rig(log_flush_interval_messages=1_000)
    rig.create("t", flush_ms="3000")
    rig.send(produce_request("t", batch_of([b"x"])), 9)
    assert not rig.flusher.marked
    rig.clock.set_wall_clock(rig.clock.now_ms() - 3_600_000)
    rig.advance(4_000)
    assert len(rig.flusher.marked) == 1


def test_flush_ms_bounds_how_long_the_page_cache_is_enough() -> None:
    rig = Rig(log_flush_interval_messages=1_000)
    rig.create("t", flush_ms="3000")
    rig.send(produce_request("t", batch_of([b"x"])), 9)
    rig.advance(2_000)
    assert not rig.flusher.marked
    rig.advance(2_000)
    assert len(rig.flusher.marked) == 1


def test_a_refused_write_is_answered_with_a_retriable_error_and_leaves_nothing(rig: Rig) -> None:
    rig.disk.refuses = lambda path, operation: operation == "write" and "/t-0/" in path
    request = produce_request("t", batch_of([b"x"]))
    other = produce_request("t", batch_of([b"y"]), partition=1)
    request.topic_data[0].partition_data += other.topic_data[0].partition_data
    asked = rig.send(request, 9)
    rig.flusher.sync()
    parts = asked.answer.responses[0].partition_responses
    assert [one.error_code for one in parts] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert parts[0].base_offset == -1
    rig.disk.refuses = None
    assert rig.ask(request, 9).responses[0].partition_responses[0].base_offset == 0


def test_a_failed_disk_ends_the_broker(rig: Rig) -> None:
    rig.disk.refuses = lambda path, operation: operation == "write" and "/t-0/" in path
    rig.disk.refusal = errno.EIO
    with pytest.raises(AssertionError, match="the broker would end: the disk has failed"):
        rig.send(produce_request("t", batch_of([b"x"])), 9)


def test_a_stop_vouches_for_nothing_when_a_sync_has_failed_beside_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.ask(produce_request("t", batch_of([b"x"])), 9)
    rig.broker.stop_serving()
    monkeypatch.setattr(rig.flusher, "stop", lambda: False)
    with pytest.raises(AssertionError, match="would end: a sync has failed"):
        rig.broker.close()
    assert ".kafka_cleanshutdown" not in rig.disk.list_folder("/data")
    monkeypatch.undo()
    rig.broker.close()
    assert ".kafka_cleanshutdown" in rig.disk.list_folder("/data")


def test_time_out_and_deletion_end_the_wait(rig: Rig) -> None:
    late = rig.send(produce_request("t", batch_of([b"x"]), timeout_ms=1_500), 9)
    rig.advance(1_499)
    assert not late.is_answered()
    rig.advance(2)
    assert code_of(late) is ErrorCode.REQUEST_TIMED_OUT
    # The record of the timed-out request stays in the log. A client without idempotence that
    # retries writes it twice.
    rig.flusher.sync()
    assert everything_in(rig, 0) == [b"x"]
    doomed = rig.send(produce_request("t", batch_of([b"x"]), partition=1), 9)
    delete_before_the_data_is_synced(rig, "t")
    assert code_of(doomed) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_client_without_patience_waits_for_the_sync_all_the_same(
    rig: Rig, timeout_ms: int
) -> None:
    asked = rig.send(produce_request("t", batch_of([b"x"]), timeout_ms=timeout_ms), 9)
    rig.advance(SYNC_MS_MIN - 1)
    assert not asked.is_answered()
    rig.flusher.sync()
    assert code_of(asked) is ErrorCode.NONE


def test_a_deleted_topic_takes_no_other_topic_of_the_request_with_it(rig: Rig) -> None:
    rig.create("kept")
    request = produce_request("t", batch_of([b"x"]), timeout_ms=2_000)
    request.topic_data += produce_request("kept", batch_of([b"y"])).topic_data
    asked, late = rig.send(request, 9), rig.send(request, 9)
    delete_before_the_data_is_synced(rig, "t")
    assert not asked.is_answered()
    kept = rig.broker.parts.replicas.find("kept", 0).log
    del rig.flusher.marked[kept]
    rig.advance(2_001)
    assert code_of(late, 1) is ErrorCode.REQUEST_TIMED_OUT, "the time-out holds on"
    assert code_of(asked, 1) is ErrorCode.REQUEST_TIMED_OUT

    rig.create("t")
    asked = rig.send(request, 9)
    delete_before_the_data_is_synced(rig, "t")
    rig.flusher.mark(kept)
    rig.flusher.sync()
    assert code_of(asked, 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(asked, 1) is ErrorCode.NONE


def delete_before_the_data_is_synced(rig: Rig, topic: str) -> None:
    """Delete the topic, and sync the metadata but not the topic's data."""
    rig.send(DeleteTopicsRequest(topic_names=[topic]), 5)
    marked = rig.flusher.marked
    rig.flusher.marked = {log: None for log in marked if log.topic_id.int == 1}
    rig.flusher.sync()
    left = (partition.log for partition in rig.broker.parts.replicas)
    rig.flusher.marked |= {log: None for log in left if log in marked}


@pytest.mark.parametrize("version", [3, 9])
def test_the_answer_tells_the_time_that_a_topic_has_stamped(rig: Rig, version: int) -> None:
    rig.create("stamped", message_timestamp_type="LogAppendTime")
    for topic, wanted in (("stamped", rig.clock.now_ms()), ("t", -1)):
        request = produce_request(topic, batch_of([b"x"], timestamp_ms=1))
        part = rig.ask(request, version).responses[0].partition_responses[0]
        assert (part.error_code, part.log_append_time_ms) == (ErrorCode.NONE, wanted)


def test_the_answer_tells_where_the_log_starts(rig: Rig) -> None:
    request = produce_request("t", batch_of([b"x"]))
    starts = []
    for _ in range(3):
        part = rig.ask(request, 9).responses[0].partition_responses[0]
        starts.append(part.log_start_offset)
        log = rig.broker.parts.replicas.find("t", 0).log
        log.advance_log_start(log.high_watermark)
    assert starts == [0, 1, 2]


def test_a_producer_silent_for_too_long_is_forgotten() -> None:
    rig = Rig(producer_id_expiration_ms=86_400_000, producer_id_expiration_check_interval_ms=60_000)
    rig.create("t")
    assert code_of(settled(rig, of_sequence("t", 0))) is ErrorCode.NONE
    rig.advance(86_000_000)
    assert code_of(settled(rig, of_sequence("t", 7))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    rig.advance(500_000)
    # The broker has forgotten the producer, so it accepts any sequence.
    assert code_of(settled(rig, of_sequence("t", 7))) is ErrorCode.NONE


def settled(rig: Rig, request: ProduceRequest) -> Asked:
    asked = rig.send(request, 9)
    rig.flusher.sync()
    return asked


def test_a_topic_wants_no_more_replicas_in_sync_than_it_has(rig: Rig) -> None:
    """KIP-966: the effective minimum is at most the number of replicas. Otherwise such a topic
    could be read but never written."""
    rig.create("strict", min_insync_replicas="2")
    taken = rig.send(produce_request("strict", batch_of([b"x"])), 9)
    rig.flusher.sync()
    assert code_of(taken) is ErrorCode.NONE


def test_pitfall_15_a_record_without_a_key_is_named_on_a_compacted_topic(rig: Rig) -> None:
    rig.create("keyed", cleanup_policy="compact")
    asked = rig.send(produce_request("keyed", batch_of([b"x", b"y"], key=None)), 9)
    assert code_of(asked) is ErrorCode.INVALID_RECORD
    errors = asked.answer.responses[0].partition_responses[0].record_errors
    assert [one.batch_index for one in errors] == [0, 1]


def test_what_was_acknowledged_survives_any_power_cut() -> None:
    chance = seeded("power cut")
    for _ in range(25):
        run_until_the_power_goes(chance)


def run_until_the_power_goes(chance: random.Random) -> None:
    """Run producers, commits and topic changes until a power cut. Everything that was acknowledged
    must survive."""
    rig = Rig(log_segment_bytes=chance.choice([400, 2_000, 100_000]))
    rig.create("t", 2)
    rig.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    producer_id = rig.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id
    sent: list[tuple[int, bytes, Asked]] = []
    commits: list[tuple[int, Asked]] = []
    topics: list[str] = []
    for number in range(chance.randint(1, 40)):
        kind = chance.random()
        if kind < 0.6:
            index, value = chance.randrange(2), b"%d" % number
            request = produce_request("t", batch_of([value]), partition=index)
            sent.append((index, value, rig.send(request, 9)))
        elif kind < 0.8:
            commits.append((number, rig.send(commit_request(number), 8)))
        elif kind < 0.85:
            topics.append(f"new{number}")
            rig.create(topics[-1])
        else:
            rig.flusher.sync()
            rig.turn()
    rig.power_cut(chance)
    for index in (0, 1):
        answered = [value for at, value, asked in sent if at == index and asked.is_answered()]
        found = everything_in(rig, index)
        assert found[: len(answered)] == answered
        assert found == [value for at, value, _ in sent if at == index][: len(found)]
    answered_commits = [offset for offset, asked in commits if asked.is_answered()]
    if answered_commits:
        assert committed_offset(rig) >= answered_commits[-1]
    assert all(name in rig.broker.parts.metadata.image.topics for name in topics)
    again = rig.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id
    assert again != producer_id


def everything_in(rig: Rig, index: int) -> list[Any]:
    request = fetch_request("t", max_bytes=1 << 24, partition_max_bytes=1 << 24)
    request.topics[0].partitions[0].partition = index
    values: list[Any] = []
    while True:
        part = rig.ask(request, 12).responses[0].partitions[0]
        assert part.error_code == 0
        found = read_values(part.records)
        if not found:
            return values
        values += found
        request.topics[0].partitions[0].fetch_offset = len(values)


def commit_request(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])]
    )


def committed_offset(rig: Rig) -> int:
    for _ in range(50):
        rig.turn()
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    group = rig.ask(request, 8).groups[0]
    assert group.error_code == 0
    offset: int = group.topics[0].partitions[0].committed_offset
    return offset


def of_sequence(topic: str, sequence: int, epoch: int = 0) -> ProduceRequest:
    batch = batch_of([b"x"], producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    return produce_request(topic, batch)


def test_what_a_full_disk_refused_first_comes_first(rig: Rig) -> None:
    """If a response is lost, a client can take a later request's success for the success of the
    earlier one. So after a refused batch the broker accepts no later batch of the same producer."""
    rig.disk.refuses = lambda path, operation: operation == "write" and "/t-0/" in path
    asked = rig.send(of_sequence("t", 3), 9)
    assert code_of(asked) is ErrorCode.KAFKA_STORAGE_ERROR
    rig.disk.refuses = None
    assert code_of(rig.send(of_sequence("t", 4), 9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    codes = []
    for sequence in (3, 4):
        asked = rig.send(of_sequence("t", sequence), 9)
        rig.flusher.sync()
        codes.append(code_of(asked))
    assert codes == [ErrorCode.NONE, ErrorCode.NONE]


def test_what_a_partition_not_made_yet_refused_first_comes_first(rig: Rig) -> None:
    rig.disk.refuses = lambda path, operation: operation == "write" and "/late-0/" in path
    topic = CreatableTopic(name="late", num_partitions=1, replication_factor=1)
    rig.ask(CreateTopicsRequest(topics=[topic]), 7)
    asked = rig.send(of_sequence("late", 0), 9)
    assert code_of(asked) is ErrorCode.KAFKA_STORAGE_ERROR
    rig.disk.refuses = None
    replicas = rig.broker.parts.replicas
    replicas.retry(lambda: None)
    assert not replicas.unmade
    assert code_of(rig.send(of_sequence("late", 1), 9)) is ErrorCode.NOT_ENOUGH_REPLICAS
    asked = rig.send(of_sequence("late", 0), 9)
    rig.flusher.sync()
    assert code_of(asked) is ErrorCode.NONE


def test_a_leader_in_doubt_ends_no_producer(rig: Rig) -> None:
    """Another broker can already lead the partition and have batches that this broker lacks. So
    this broker must not send a code that is fatal for the producer."""

    def put(epoch: int, sequence: int) -> ErrorCode:
        batch = batch_of([b"x"], producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        asked = rig.send(produce_request("t", batch), 9)
        rig.flusher.sync()
        return code_of(asked)

    assert put(1, 0) is ErrorCode.NONE
    assert put(1, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(0, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    rig.broker.parts.replicas.place = Doubtful(rig.clock)
    assert put(1, 5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert put(0, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert put(1, 1) is ErrorCode.NONE, "what fits waits for the others, as ever"


def test_a_newer_epoch_need_not_wait_for_what_the_older_was_refused(rig: Rig) -> None:
    rig.disk.refuses = lambda path, operation: operation == "write" and "/t-0/" in path
    for epoch, sequence in ((0, 3), (1, 0)):
        asked = rig.send(of_sequence("t", sequence, epoch), 9)
        assert code_of(asked) is ErrorCode.KAFKA_STORAGE_ERROR
    rig.disk.refuses = None
    assert code_of(rig.send(of_sequence("t", 1, 1), 9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    asked = rig.send(of_sequence("t", 0, 1), 9)
    rig.flusher.sync()
    assert code_of(asked) is ErrorCode.NONE


def test_what_an_unmade_partition_refused_is_bounded_and_goes_with_it(rig: Rig) -> None:
    refused = rig.broker.parts.validator.first_refused.by_place
    rig.disk.refuses = lambda path, operation: operation == "write" and "/late-0/" in path
    topic = CreatableTopic(name="late", num_partitions=1, replication_factor=1)
    rig.ask(CreateTopicsRequest(topics=[topic]), 7)
    for producer_id in range(AWAITED_COUNT_MAX + 5):
        batch = batch_of([b"x"], producer_id=producer_id, producer_epoch=0, base_sequence=3)
        rig.send(produce_request("late", batch), 9)
    rig.send(of_sequence("late", 0, 1), 9)
    assert len(refused["late", 0]) == AWAITED_COUNT_MAX
    rig.ask(DeleteTopicsRequest(topic_names=["late"]), 5)
    assert not refused
    rig.disk.refuses = None
    rig.create("late")
    asked = rig.send(of_sequence("late", 7), 9)
    rig.flusher.sync()
    assert code_of(asked) is ErrorCode.NONE


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("left", [5, 30, 64])
def test_a_cut_batch_is_refused_for_good(rig: Rig, left: int, version: int) -> None:
    """CORRUPT_MESSAGE is retriable, so it would make the client retry for ever."""
    asked = rig.send(produce_request("t", batch_of([b"x"])[:left]), version)
    assert code_of(asked) is ErrorCode.INVALID_RECORD
    assert not ErrorCode.INVALID_RECORD.retriable


def test_a_length_beyond_the_data_is_refused_for_good(rig: Rig) -> None:
    batch = batch_of([b"x"])
    batch[8:12] = (100_000).to_bytes(4, "big")
    assert code_of(rig.send(produce_request("t", batch), 9)) is ErrorCode.INVALID_RECORD
