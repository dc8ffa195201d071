"""The moment at which a Fetch is answered: immediately, with enough data, early because of another
request, or at its time limit."""

from collections.abc import Iterator

import pytest

from broker.fetch import fetches
from broker.storage.log import Log
from broker.storage.log_cleaning import adopt_cleaned, plan_cleaning
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import DeleteTopicsRequest
from protocol.types import LATEST_TIMESTAMP
from protocol.wire.records import Codec, iterate_batches
from tests.harness.wire import batch_of, fetch_request, list_request, produce_request, read_values
from tests.unit.broker.rig import Asked, Rig

WAIT_MS = 10_000
MAP_BYTES = 1 << 20


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.create("t", 2)
    yield rig


def park(rig: Rig, offset: int = 0, *, min_bytes: int = 1, listener: str = "HOST") -> Asked:
    request = fetch_request("t", offset, max_wait_ms=WAIT_MS, min_bytes=min_bytes)
    asked = rig.send(request, 12, listener=listener)
    assert not asked.is_answered()
    assert asked.session.parked_fetch is not None
    return asked


def listing(topic: str = "t", partition: int = 0) -> bytes:
    """Return a ListOffsets request that waits behind a fetch."""
    request = list_request(topic, LATEST_TIMESTAMP)
    request.topics[0].partitions[0].partition_index = partition
    return Asked(request, 7, "HOST").frame.tobytes()


def clean(rig: Rig, log: Log) -> None:
    """Compact the log once."""
    job = plan_cleaning(log, rig.clock.now_ms(), MAP_BYTES)
    assert job is not None
    while not rig.broker.parts.replicas.logs.clean(log, job):
        pass
    adopt_cleaned(log, job, rig.clock.now_ms())


def values_of(asked: Asked) -> list[bytes | None]:
    return read_values(asked.answer.responses[0].partitions[0].records)


def test_only_what_is_committed_is_read(rig: Rig) -> None:
    rig.send(produce_request("t", batch_of([b"x"])), 9)
    asked = park(rig)
    rig.flusher.sync()
    assert values_of(asked) == [b"x"]
    assert asked.session.parked_fetch is None


def test_a_fetch_that_wants_more_goes_on_waiting(rig: Rig) -> None:
    asked = park(rig, min_bytes=250)
    for number in range(3):
        assert not asked.is_answered()
        rig.ask(produce_request("t", batch_of([b"%d" % number * 50])), 9)
    assert len(values_of(asked)) == 3


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_reader_in_a_closed_segment_does_not_wait(*, is_cleaned: bool) -> None:
    """A response never has more than the rest of a segment, even if later segments have more
    data."""
    rig = Rig(log_cleaner_min_cleanable_ratio=0)
    rig.create("t", segment_bytes="300", cleanup_policy="compact" if is_cleaned else "delete")
    for number in range(12):
        # Keys repeat, so compaction leaves gaps between the records.
        batch = batch_of([bytes(100)], key=b"%d" % min(number % 5, 3))
        rig.ask(produce_request("t", batch), 9)
    log = rig.broker.parts.replicas.find("t", 0).log
    if is_cleaned:
        clean(rig, log)
    offset, answers = 0, 0
    while offset < log.segments.active.base_offset:
        asked = rig.send(fetch_request("t", offset, max_wait_ms=WAIT_MS, min_bytes=10_000), 12)
        records = asked.answer.responses[0].partitions[0].records
        offset = max(header.last_offset for header, _ in iterate_batches(records)) + 1
        answers += 1
    assert answers > 2
    last = rig.send(fetch_request("t", offset, max_wait_ms=WAIT_MS, min_bytes=10_000), 12)
    assert not last.is_answered()


def test_bytes_that_do_not_fit_as_whole_batches_count_too(rig: Rig) -> None:
    for _ in range(3):
        rig.ask(produce_request("t", batch_of([bytes(1_000)])), 9)
    # The partition's share holds one whole batch. Waiting would not change this, so the answer is
    # immediate.
    request = fetch_request("t", max_wait_ms=WAIT_MS, min_bytes=1_500, partition_max_bytes=2_000)
    assert len(values_of(rig.send(request, 12))) == 1
    # A Fetch never waits for more bytes than its `max_bytes`.
    request = fetch_request("t", max_wait_ms=WAIT_MS, min_bytes=9_000, max_bytes=1_500)
    assert len(values_of(rig.send(request, 12))) == 1
    # Bytes above the partition's share do not count for `min_bytes`, even if the log has them.
    request = fetch_request("t", max_wait_ms=WAIT_MS, min_bytes=2_500, partition_max_bytes=2_000)
    assert not rig.send(request, 12).is_answered()


def test_time_ends_the_wait_with_what_there_is(rig: Rig) -> None:
    asked = park(rig, min_bytes=1_000)
    rig.ask(produce_request("t", batch_of([b"x"])), 9)
    rig.advance(WAIT_MS - 1)
    assert not asked.is_answered()
    rig.advance(1)
    assert values_of(asked) == [b"x"]


def test_another_request_ends_the_wait_five_milliseconds_after_it_began(rig: Rig) -> None:
    asked = park(rig)
    rig.advance(2)
    asked.session.parked_fetch.hasten([listing()])
    rig.advance(2)
    assert not asked.is_answered()
    rig.advance(1)
    assert asked.is_answered()
    assert rig.broker.metrics.fetches_completed_early == 1


def test_only_a_search_for_offsets_of_what_it_reads_ends_the_wait_of_a_fetch(rig: Rig) -> None:
    asked = park(rig)
    other_kind = Asked(MetadataRequest(topics=[]), 9, "HOST").frame.tobytes()
    another = Asked(fetch_request("t", 0), 12, "HOST").frame.tobytes()
    newer = listing()[:2] + (99).to_bytes(2, "big") + listing()[4:]
    behind = [other_kind, another, listing("u"), listing("t", 5), newer, listing()[:-1], b"", b"x"]
    for count in range(len(behind) + 1):
        asked.session.parked_fetch.hasten(behind[:count])
        rig.advance(20)
        assert not asked.is_answered()
    # A ListOffsets request for partition t-0 ends the wait, even behind the other requests.
    asked.session.parked_fetch.hasten([*behind, listing()])
    rig.advance(0)
    assert asked.is_answered()


def test_what_waits_behind_a_fetch_is_looked_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = park(rig)
    seen: list[bytes] = []
    monkeypatch.setattr(fetches, "_lists_offsets_of", lambda _, frame: seen.append(frame))
    frames = [listing("u"), listing("v"), listing("w")]
    for count in (1, 1, 2, 3, 3):
        asked.session.parked_fetch.hasten(frames[:count])
    assert seen == frames


def test_a_fetch_that_has_waited_longer_makes_room_at_once(rig: Rig) -> None:
    asked = park(rig)
    rig.advance(100)
    asked.session.parked_fetch.hasten([listing()])
    rig.advance(0)
    assert asked.is_answered()
    assert rig.broker.metrics.fetches_completed_early == 1


def test_a_hastened_fetch_still_gets_data_that_comes_first(rig: Rig) -> None:
    asked = park(rig)
    asked.session.parked_fetch.hasten([listing()])
    rig.ask(produce_request("t", batch_of([b"x"])), 9)
    assert values_of(asked) == [b"x"]
    rig.advance(WAIT_MS)
    assert rig.broker.metrics.fetches_completed_early == 0


def test_followers_are_not_hurried(rig: Rig) -> None:
    asked = park(rig, listener="BROKER")
    asked.session.parked_fetch.hasten([listing()])
    rig.advance(WAIT_MS - 1)
    assert not asked.is_answered()


@pytest.mark.parametrize("listener", ["HOST", "BROKER"])
def test_a_fetch_makes_way_whoever_waits_five_milliseconds_after_it_began(
    rig: Rig, listener: str
) -> None:
    asked = park(rig, listener=listener)
    asked.session.parked_fetch.make_way()
    rig.advance(4)
    asked.session.parked_fetch.make_way()
    assert not asked.is_answered()
    rig.advance(1)
    assert asked.is_answered()
    assert rig.broker.metrics.fetches_completed_early == 1


def test_a_lost_connection_is_forgotten(rig: Rig) -> None:
    asked = park(rig)
    rig.broker.parts.fetches.forget(asked.session.parked_fetch)
    rig.ask(produce_request("t", batch_of([b"x"])), 9)
    rig.advance(WAIT_MS)
    assert not asked.is_answered()


def test_an_error_in_one_partition_answers_at_once(rig: Rig) -> None:
    request = fetch_request("t", max_wait_ms=WAIT_MS)
    request.topics[0].partitions.append(FetchPartition(partition=7, partition_max_bytes=1))
    answer = rig.send(request, 12).answer
    codes = [one.error_code for one in answer.responses[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_fetch_of_nothing_is_answered_at_once(rig: Rig) -> None:
    request = fetch_request("t", max_wait_ms=WAIT_MS)
    request.topics = []
    assert rig.send(request, 12).answer.responses == []


def test_the_answer_keeps_to_its_size_across_partitions(rig: Rig) -> None:
    for index in (0, 1):
        for _ in range(3):
            rig.ask(produce_request("t", batch_of([bytes(1_000)]), partition=index), 9)
    request = fetch_request("t", max_bytes=2_500)
    request.topics[0].partitions.append(FetchPartition(partition=1, partition_max_bytes=1 << 20))
    parts = rig.ask(request, 12).responses[0].partitions
    assert [len(read_values(one.records)) for one in parts] == [2, 0]
    request.max_bytes = 1
    parts = rig.ask(request, 12).responses[0].partitions
    assert [len(read_values(one.records)) for one in parts] == [1, 0]


def test_a_divergent_reader_is_told_where(rig: Rig) -> None:
    rig.ask(produce_request("t", batch_of([b"x"])), 9)
    request = fetch_request("t", 1, max_wait_ms=WAIT_MS)
    asked_part = request.topics[0].partitions[0]
    asked_part.last_fetched_epoch = 0
    assert not rig.send(request, 12).is_answered()
    # The reader claims more records of epoch 0 than the log ever had.
    asked_part.fetch_offset = 5
    part = rig.send(request, 12).answer.responses[0].partitions[0]
    assert part.diverging_epoch is not None
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, 1)


def test_when_the_broker_stops_parked_fetches_are_answered(rig: Rig) -> None:
    asked = park(rig)
    rig.broker.parts.fetches.complete_all()
    assert asked.is_answered()


# Sessions, as kafka-python and the Java client request them.


def open_session(rig: Rig, version: int = 12) -> int:
    request = fetch_request("t", session_epoch=0)
    request.topics[0].partitions.append(FetchPartition(partition=1, partition_max_bytes=1 << 20))
    answer = rig.ask(request, version)
    assert answer.error_code == 0
    assert [one.partition_index for one in answer.responses[0].partitions] == [0, 1]
    assert isinstance(answer.session_id, int)
    return answer.session_id


def goes_on(session_id: int, epoch: int, *, max_wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(
        session_id=session_id, session_epoch=epoch, max_wait_ms=max_wait_ms, min_bytes=1
    )


def test_a_session_tells_only_what_is_new(rig: Rig) -> None:
    session_id = open_session(rig)
    assert session_id > 0
    quiet = rig.ask(goes_on(session_id, 1), 12)
    assert (quiet.session_id, quiet.error_code, quiet.responses) == (session_id, 0, [])
    rig.ask(produce_request("t", batch_of([b"x"]), partition=1), 9)
    (topic,) = rig.ask(goes_on(session_id, 2), 12).responses
    assert [one.partition_index for one in topic.partitions] == [1]
    assert read_values(topic.partitions[0].records) == [b"x"]
    # The reader advances its offset in partition 1, and names no other partition.
    moved = goes_on(session_id, 3)
    moved.topics = [FetchTopic(topic="t", partitions=[FetchPartition(
        partition=1, fetch_offset=1, partition_max_bytes=1 << 20)])]  # fmt: skip
    assert rig.ask(moved, 12).responses == []


def test_a_session_that_waits_is_woken_by_any_of_its_partitions(rig: Rig) -> None:
    session_id = open_session(rig)
    asked = rig.send(goes_on(session_id, 1, max_wait_ms=WAIT_MS), 12)
    assert not asked.is_answered()
    rig.ask(produce_request("t", batch_of([b"x"]), partition=1), 9)
    (topic,) = asked.answer.responses
    assert [one.partition_index for one in topic.partitions] == [1]
    # The reader did not advance its offset, so each answer contains the records again.
    rig.send(goes_on(session_id, 2, max_wait_ms=WAIT_MS), 12)
    assert len(rig.ask(goes_on(session_id, 3), 12).responses[0].partitions) == 1


def test_a_session_out_of_turn_or_unknown_is_refused_and_changes_nothing(rig: Rig) -> None:
    session_id = open_session(rig)
    wrong = rig.ask(goes_on(session_id, 2), 12)
    assert (wrong.error_code, wrong.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    unknown = rig.ask(goes_on(session_id % (2**31 - 1) + 1, 1), 12)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert rig.ask(goes_on(session_id, 1), 12).error_code == 0


def test_an_error_is_told_as_long_as_it_lasts_and_once_more(rig: Rig) -> None:
    request = fetch_request("t", 5, session_epoch=0)
    answer = rig.ask(request, 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    for epoch in (1, 2):
        (topic,) = rig.ask(goes_on(answer.session_id, epoch), 12).responses
        assert topic.partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    back = goes_on(answer.session_id, 3)
    back.topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0)])]
    (topic,) = rig.ask(back, 12).responses
    assert (topic.partitions[0].error_code, topic.partitions[0].high_watermark) == (0, 0)
    assert rig.ask(goes_on(answer.session_id, 4), 12).responses == []


def test_without_a_wish_there_is_no_session(rig: Rig) -> None:
    assert rig.ask(fetch_request("t", session_epoch=-1), 12).session_id == 0
    # Versions below 7 have no fetch sessions.
    assert rig.ask(fetch_request("t"), 6).session_id == 0
    assert len(rig.broker.parts.fetches.sessions) == 0


def test_a_full_request_closes_the_session_it_names(rig: Rig) -> None:
    session_id = open_session(rig)
    bye = fetch_request("t", session_epoch=-1)
    bye.session_id = session_id
    assert rig.ask(bye, 12).session_id == 0
    code = rig.ask(goes_on(session_id, 1), 12).error_code
    assert code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_deleted_topic_is_news_to_a_session(rig: Rig) -> None:
    session_id = open_session(rig)
    asked = rig.send(goes_on(session_id, 1, max_wait_ms=WAIT_MS), 12)
    rig.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 4)
    codes = {one.error_code for one in asked.answer.responses[0].partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_readers_that_do_not_know_zstd_are_told_so_by_a_topic_of_that_codec(rig: Rig) -> None:
    """As in Kafka, the topic's setting decides, and not the codec of its batches."""
    rig.create("z", compression_type="zstd")
    rig.ask(produce_request("z", batch_of([b"x"])), 9)
    wanted = {4: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 9: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
              10: ErrorCode.NONE, 12: ErrorCode.NONE}  # fmt: skip
    for version, code in wanted.items():
        part = rig.ask(fetch_request("z", 0), version).responses[0].partitions[0]
        assert part.error_code == code
        if code is ErrorCode.NONE:
            assert read_values(part.records) == [b"x"]
            (header,) = [header for header, _ in iterate_batches(part.records)]
            assert header.codec is Codec.ZSTD
        else:
            assert (part.records, part.high_watermark) == (b"", -1)
    assert (
        rig.ask(fetch_request("t", 0, max_wait_ms=0), 4).responses[0].partitions[0].error_code == 0
    )
