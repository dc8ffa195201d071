"""The follower's side: one request at a time. Ids, epochs and offsets decide whether a response is
used."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker.replication.follower import BACKOFF_MAX_MS, BACKOFF_MIN_MS, LeaderFetch
from broker.replication.follower_steps import (
    Append,
    Drop,
    FetchedPartition,
    FetchPlan,
    Followed,
    Key,
    PartitionId,
    Reset,
    Truncate,
)
from broker.storage.leader_epochs import LeaderEpochs
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tests.unit.broker.replication.kit import CountedId

TOPIC, OTHER = UUID(int=1), UUID(int=2)
SESSION = 77


class Scene:
    """A follower, and a leader whose responses the test gives."""

    def __init__(self) -> None:
        self.fetch = LeaderFetch()
        self.epochs: dict[Key, LeaderEpochs] = {}
        self.now_ms = 1_000
        self.plan: FetchPlan | None = None

    def follow(
        self,
        index: int,
        end: int,
        *entries: tuple[int, int],
        epoch: int = 5,
        start: int = 0,
        topic: UUID = TOPIC,
    ) -> Key:
        key = Key(topic, index, epoch)
        self.epochs[key] = LeaderEpochs(list(entries))
        self.fetch.follow(Followed(key, self.epochs[key], start, end))
        return key

    def asks(self) -> list[FetchedPartition]:
        """Return the partitions of the next request. Fail if there is none."""
        self.plan = self.fetch.next_fetch(self.now_ms)
        assert self.plan is not None
        return list(self.plan.partitions)

    def idle(self) -> bool:
        return self.fetch.next_fetch(self.now_ms) is None

    def answer(self, *found: PartitionData, code: ErrorCode = ErrorCode.NONE) -> list[Any]:
        assert self.plan is not None
        return self.answer_to(self.plan.request_id, *found, code=code)

    def answer_to(
        self, request_id: int, *found: PartitionData, code: ErrorCode = ErrorCode.NONE
    ) -> list[Any]:
        responses = [FetchableTopicResponse(topic_id=TOPIC, partitions=list(found))]
        answer = FetchResponse(error_code=code, session_id=SESSION, responses=responses)
        return self.fetch.on_answer(request_id, answer, self.now_ms)


def data(index: int, records: bytes = b"", **fields: Any) -> PartitionData:
    values = {"high_watermark": 0, "log_start_offset": 0, "error_code": 0, **fields}
    return PartitionData(partition_index=index, records=records, **values)


def diverging(index: int, epoch: int, end: int, **fields: Any) -> PartitionData:
    return data(index, diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end), **fields)


def test_without_partitions_nothing_is_asked() -> None:
    assert Scene().idle()


def test_the_first_request_is_full_and_later_ones_name_what_is_new() -> None:
    scene = Scene()
    one = scene.follow(0, 10, (4, 0))
    two = scene.follow(1, 0)
    assert scene.asks() == [FetchedPartition(one, 10, 4, 0), FetchedPartition(two, 0, -1, 0)]
    assert scene.plan is not None
    assert (scene.plan.session_id, scene.plan.session_epoch) == (0, 0)
    assert scene.answer(data(0, b"xx", high_watermark=8, log_start_offset=2)) == [
        Append(one, b"xx", 8, 2)
    ]
    scene.fetch.synced(one, 12)
    assert scene.asks() == [FetchedPartition(one, 12, 4, 0)]
    assert (scene.plan.session_id, scene.plan.session_epoch) == (SESSION, 1)
    assert scene.answer() == []
    assert scene.asks() == []
    assert scene.plan.session_epoch == 2


def test_one_request_is_under_way_at_a_time() -> None:
    scene = Scene()
    scene.follow(0, 0)
    scene.asks()
    scene.follow(1, 0)
    assert scene.idle()
    scene.answer()
    assert [one.key.partition_index for one in scene.asks()] == [1]


def test_the_next_request_waits_until_all_is_synced() -> None:
    """The fetch offset tells the leader which records are durable on the follower, so the request
    waits for both syncs."""
    scene = Scene()
    one, two = scene.follow(0, 0), scene.follow(1, 0)
    scene.asks()
    scene.answer(data(0, b"x"), data(1, b"y"))
    assert scene.idle()
    scene.fetch.synced(one, 3)
    assert scene.idle()
    assert scene.fetch.next_deadline_ms is None
    scene.epochs[two].assign(5, 0)
    scene.fetch.synced(two, 4)
    assert scene.asks() == [FetchedPartition(one, 3, -1, 0), FetchedPartition(two, 4, 5, 0)]


def test_a_late_answer_is_not_looked_at() -> None:
    """A late response is ignored, both after a failure and while a later request is in flight."""
    scene = Scene()
    key = scene.follow(0, 10, (4, 0))
    scene.asks()
    late = scene.plan
    assert late is not None
    scene.fetch.failed(late.request_id, scene.now_ms)
    assert scene.answer_to(late.request_id, data(0, b"x")) == []
    scene.now_ms += BACKOFF_MIN_MS
    assert scene.asks() == [FetchedPartition(key, 10, 4, 0)]
    assert scene.answer_to(late.request_id, diverging(0, 3, 2)) == []
    assert scene.answer(data(0, b"x")) == [Append(key, b"x", 0, 0)]


def test_a_failure_backs_off_and_begins_a_new_session() -> None:
    scene = Scene()
    scene.follow(0, 0)
    waits = []
    for _ in range(8):
        scene.asks()
        assert scene.plan is not None
        assert scene.plan.session_epoch == 0
        scene.fetch.failed(scene.plan.request_id, scene.now_ms)
        deadline_ms = scene.fetch.next_deadline_ms
        assert deadline_ms is not None
        scene.now_ms = deadline_ms - 1
        assert scene.idle()
        waits.append(deadline_ms - scene.now_ms)
        scene.now_ms = deadline_ms
    scene.asks()
    scene.answer()
    scene.asks()
    assert scene.plan is not None
    assert scene.plan.session_epoch == 1


def test_back_offs_double_up_to_a_limit() -> None:
    scene = Scene()
    scene.follow(0, 0)
    waits = []
    for _ in range(7):
        scene.asks()
        assert scene.plan is not None
        scene.fetch.failed(scene.plan.request_id, scene.now_ms)
        deadline_ms = scene.fetch.next_deadline_ms
        assert deadline_ms is not None
        waits.append(deadline_ms - scene.now_ms)
        scene.now_ms = deadline_ms
    assert waits == [50, 100, 200, 400, 800, BACKOFF_MAX_MS, BACKOFF_MAX_MS]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ],
)
def test_a_refused_request_begins_a_new_session(code: ErrorCode) -> None:
    scene = Scene()
    key = scene.follow(0, 0)
    scene.asks()
    scene.answer()
    scene.asks()
    assert scene.answer(data(0, b"x"), code=code) == []
    scene.now_ms += BACKOFF_MIN_MS
    assert scene.asks() == [FetchedPartition(key, 0, -1, 0)]
    assert scene.plan is not None
    assert (scene.plan.session_id, scene.plan.session_epoch) == (0, 0)


def test_what_is_dropped_is_forgotten_and_its_answers_are_not_heard() -> None:
    scene = Scene()
    one, two = scene.follow(0, 0), scene.follow(1, 0)
    scene.asks()
    scene.fetch.drop(one)
    assert one not in scene.fetch
    assert scene.answer(data(0, b"x"), data(1, b"y")) == [Append(two, b"y", 0, 0)]
    scene.fetch.synced(two, 1)
    scene.asks()
    assert scene.plan is not None
    assert scene.plan.forgotten == (PartitionId(TOPIC, 0),)


def test_a_sync_that_is_owed_ends_with_its_partition() -> None:
    scene = Scene()
    one = scene.follow(0, 0)
    scene.follow(1, 0)
    scene.asks()
    scene.answer(data(0, b"x"))
    assert scene.idle()
    scene.fetch.drop(one)
    assert scene.asks() == []
    scene.fetch.synced(one, 9)
    assert len(scene.fetch) == 1


def test_a_later_epoch_takes_the_place_of_an_older_one() -> None:
    """A response to a request of the older epoch is not used in the newer one."""
    scene = Scene()
    old = scene.follow(0, 10, (4, 0))
    scene.asks()
    new = scene.follow(0, 7, (4, 0), epoch=6)
    assert scene.answer(data(0, b"x")) == []
    scene.fetch.drop(old)
    assert scene.asks() == [FetchedPartition(new, 7, 4, 0)]
    assert scene.plan is not None
    assert scene.plan.forgotten == ()


def test_a_partition_taken_up_anew_in_its_epoch_is_asked_for_anew() -> None:
    scene = Scene()
    scene.follow(0, 10, (4, 0))
    scene.asks()
    again = scene.follow(0, 0)
    assert scene.answer(data(0, b"records from 10 on")) == []
    assert scene.asks() == [FetchedPartition(again, 0, -1, 0)]


def test_the_answer_s_topic_must_be_the_one_asked_for() -> None:
    """KIP-516: a new topic of the same name has another id, so records of another id are
    ignored."""
    scene = Scene()
    scene.follow(0, 0, topic=OTHER)
    scene.asks()
    assert scene.answer(data(0, b"x"), data(7, b"y")) == []


def test_a_divergence_is_cut_and_asked_about_again() -> None:
    """KIP-279: the follower does not have the leader's epoch 3, so it needs two rounds."""
    scene = Scene()
    key = scene.follow(0, 60, (1, 0), (2, 20), (4, 40))
    assert scene.asks() == [FetchedPartition(key, 60, 4, 0)]
    assert scene.answer(diverging(0, 3, 50)) == [Truncate(key, 40)]
    assert scene.idle()
    scene.epochs[key].truncate_from_end(40)
    scene.fetch.truncated(key, 40, 2)
    assert scene.asks() == [FetchedPartition(key, 40, 2, 0)]
    assert scene.answer(diverging(0, 2, 30)) == [Truncate(key, 30)]
    scene.fetch.truncated(key, 30, 2)
    assert scene.asks() == [FetchedPartition(key, 30, 2, 0)]


def test_what_is_being_cut_is_left_out_and_nothing_of_it_is_heard() -> None:
    scene = Scene()
    one = scene.follow(0, 60, (1, 0), (4, 40))
    two = scene.follow(1, 0)
    scene.asks()
    scene.answer(diverging(0, 1, 40))
    assert scene.asks() == []
    assert scene.answer(data(0, b"x"), data(1, b"y")) == [Append(two, b"y", 0, 0)]
    scene.fetch.synced(two, 1)
    assert scene.asks() == [FetchedPartition(two, 1, -1, 0)]
    scene.fetch.truncated(one, 40, 1)
    scene.answer()
    assert scene.asks() == [FetchedPartition(one, 40, 1, 0)]


def test_a_full_request_leaves_out_what_is_being_cut() -> None:
    scene = Scene()
    scene.follow(0, 60, (1, 0), (4, 40))
    two = scene.follow(1, 0)
    scene.asks()
    scene.answer(diverging(0, 1, 40))
    scene.asks()
    assert scene.plan is not None
    scene.fetch.failed(scene.plan.request_id, scene.now_ms)
    scene.now_ms += BACKOFF_MIN_MS
    assert scene.asks() == [FetchedPartition(two, 0, -1, 0)]


def test_a_cut_below_the_own_start_lowers_it() -> None:
    scene = Scene()
    key = scene.follow(0, 10, (4, 6), start=6)
    scene.asks()
    assert scene.answer(diverging(0, 3, 4)) == [Truncate(key, 4)]
    scene.fetch.truncated(key, 4, -1)
    assert scene.asks() == [FetchedPartition(key, 4, -1, 4)]


def test_what_is_left_below_the_leader_s_start_is_dropped() -> None:
    """The leader no longer has records to compare with the follower's, so the follower drops its
    own."""
    scene = Scene()
    key = scene.follow(0, 80, (2, 0))
    scene.asks()
    found = diverging(0, 2, 53, log_start_offset=53)
    assert scene.answer(found) == [Reset(key, 53)]
    scene.fetch.truncated(key, 53, -1)
    assert scene.asks() == [FetchedPartition(key, 53, -1, 53)]


def out_of_range(start: int) -> PartitionData:
    return data(0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=start)


def test_below_the_leader_s_start_all_is_dropped() -> None:
    scene = Scene()
    key = scene.follow(0, 10, (4, 0))
    scene.asks()
    assert scene.answer(out_of_range(30)) == [Reset(key, 30)]
    assert scene.idle()
    scene.fetch.truncated(key, 30, -1)
    assert scene.asks() == [FetchedPartition(key, 30, -1, 30)]


def test_at_the_leader_s_start_what_cannot_be_compared_is_dropped() -> None:
    scene = Scene()
    key = scene.follow(0, 30, (2, 0))
    scene.asks()
    assert scene.answer(out_of_range(30)) == [Reset(key, 30)]


@pytest.mark.parametrize("start", [-1, 0, 9])
def test_above_the_leader_s_end_nothing_is_ever_cut(start: int) -> None:
    scene = Scene()
    key = scene.follow(0, 10, (5, 0))
    scene.asks()
    assert scene.answer(out_of_range(start)) == []
    assert scene.idle()
    scene.now_ms += BACKOFF_MIN_MS
    assert scene.asks() == [FetchedPartition(key, 10, 5, 0)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_leader_that_cannot_serve_is_asked_later(code: ErrorCode) -> None:
    """Only this partition waits. The follower ignores records in such a response."""
    scene = Scene()
    one, two = scene.follow(0, 10, (4, 0)), scene.follow(1, 0)
    scene.asks()
    assert scene.answer(data(0, b"x", error_code=code), data(1, b"y")) == [Append(two, b"y", 0, 0)]
    scene.fetch.synced(two, 1)
    assert scene.asks() == [FetchedPartition(two, 1, -1, 0)]
    scene.answer()
    assert scene.fetch.next_deadline_ms == scene.now_ms + BACKOFF_MIN_MS
    scene.now_ms += BACKOFF_MIN_MS
    assert scene.asks() == [FetchedPartition(one, 10, 4, 0)]


def test_a_partition_s_back_off_doubles_and_ends_with_success() -> None:
    scene = Scene()
    scene.follow(0, 0)
    refused = data(0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for wait_ms in (50, 100, 200):
        scene.asks()
        scene.answer(refused)
        assert scene.fetch.next_deadline_ms == scene.now_ms + wait_ms
        scene.now_ms += wait_ms
    scene.asks()
    scene.answer(data(0))
    scene.asks()
    scene.answer(refused)
    assert scene.fetch.next_deadline_ms == scene.now_ms + BACKOFF_MIN_MS


def test_an_epoch_that_has_passed_is_dropped() -> None:
    scene = Scene()
    key = scene.follow(0, 0)
    scene.asks()
    fenced = data(0, error_code=ErrorCode.FENCED_LEADER_EPOCH)
    assert scene.answer(fenced) == [Drop(key, ErrorCode.FENCED_LEADER_EPOCH)]
    assert key not in scene.fetch
    assert scene.idle()


def test_a_log_that_refuses_records_asks_for_them_again() -> None:
    scene = Scene()
    key = scene.follow(0, 10, (4, 0))
    scene.asks()
    scene.answer(data(0, b"a bad batch"))
    scene.fetch.refused(key, scene.now_ms)
    assert scene.idle()
    scene.now_ms += BACKOFF_MIN_MS
    assert scene.asks() == [FetchedPartition(key, 10, 4, 0)]


def test_a_trimmed_log_tells_its_start() -> None:
    scene = Scene()
    key = scene.follow(0, 10, (4, 0))
    scene.asks()
    scene.answer()
    scene.fetch.trimmed(key, 0)
    assert scene.asks() == []
    scene.answer()
    scene.fetch.trimmed(key, 6)
    assert scene.asks() == [FetchedPartition(key, 10, 4, 6)]


@pytest.mark.parametrize("found", [diverging(0, -1, -1), diverging(0, 4, 99)])
def test_a_divergence_that_parts_nothing_cuts_nothing(found: PartitionData) -> None:
    scene = Scene()
    scene.follow(0, 10, (4, 0))
    scene.asks()
    assert scene.answer(found) == []
    assert scene.fetch.next_deadline_ms == scene.now_ms + BACKOFF_MIN_MS


def test_what_is_committed_in_the_epoch_is_never_cut() -> None:
    scene = Scene()
    scene.follow(0, 10, (3, 0), (4, 5))
    scene.asks()
    scene.answer(data(0, high_watermark=8))
    scene.asks()
    with pytest.raises(AssertionError, match="5 is below the committed 8"):
        scene.answer(diverging(0, 3, 5))


def test_a_request_costs_what_has_changed() -> None:
    scene = Scene()
    topic = CountedId(int=9)
    keys = [scene.follow(index, 0, topic=topic) for index in range(2_000)]
    assert len(scene.asks()) == 2_000
    scene.answer()
    CountedId.looked_up = 0
    scene.fetch.synced(keys[5], 1)
    assert len(scene.asks()) == 1
    scene.answer()
    assert CountedId.looked_up < 20
