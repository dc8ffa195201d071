"""Fetch sessions without a broker: ids, epochs, changed partitions, and the eviction of
sessions."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from broker.replication.fetch_session import (
    EPOCH_MAX,
    EVICTABLE_AFTER_MS,
    FINAL_EPOCH,
    FULL_EPOCH,
    NO_SESSION,
    FetchSession,
    FetchSessions,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.harness.seed import seeded

NOW = 1_000


def sessions(count: int = 1_000, partitions: int = 1_000) -> FetchSessions:
    return FetchSessions(count, partitions, Random(1))


def asks(*indexes: int, offset: int = 0) -> list[FetchTopic]:
    partitions = [FetchPartition(partition=index, fetch_offset=offset) for index in indexes]
    return [FetchTopic(topic="t", partitions=partitions)]


def tells(index: int, high_watermark: int = 0, **fields: Any) -> PartitionData:
    return PartitionData(
        partition_index=index,
        high_watermark=high_watermark,
        log_start_offset=0,
        **{"records": b"", **fields},
    )


def made(kept: FetchSessions, *indexes: int, now_ms: int = NOW) -> int:
    answers = [("t", tells(index)) for index in indexes]
    return kept.create(asks(*indexes), answers, now_ms)


def go_on(
    kept: FetchSessions,
    session_id: int,
    session_epoch: int,
    topics: Sequence[FetchTopic] = (),
    forgotten: Sequence[ForgottenTopic] = (),
    now_ms: int = NOW,
) -> FetchSession:
    session = kept.open(session_id, session_epoch, topics, forgotten, now_ms)
    assert session is not None
    return session


def indexes_of(session: FetchSession) -> list[int]:
    return [index for _, index in session.partitions]


def test_epochs_count_up_and_one_follows_the_largest() -> None:
    kept = sessions()
    session_id = made(kept, 0)
    assert session_id > 0
    for epoch in (1, 2, 3):
        assert indexes_of(go_on(kept, session_id, epoch)) == [0]
    for wrong in (3, 5, 1):
        with pytest.raises(ApiError) as refused:
            go_on(kept, session_id, wrong)
        assert refused.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    go_on(kept, session_id, 4).next_epoch = EPOCH_MAX
    go_on(kept, session_id, EPOCH_MAX)
    go_on(kept, session_id, 1)


def test_an_unknown_session_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        go_on(sessions(), 77, 1)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [FULL_EPOCH, FINAL_EPOCH])
def test_a_full_request_ends_the_session_it_names(epoch: int) -> None:
    kept = sessions()
    session_id = made(kept, 0, 1)
    assert kept.open(session_id, epoch, asks(0), (), NOW) is None
    assert (len(kept), kept.partition_count) == (0, 0)


def test_partitions_are_added_changed_and_forgotten() -> None:
    kept = sessions()
    session_id = made(kept, 0, 1)
    session = go_on(
        kept, session_id, 1, asks(1, 2, offset=9), [ForgottenTopic(topic="t", partitions=[0, 8])]
    )
    assert indexes_of(session) == [1, 2]
    assert [one.asked.fetch_offset for one in session.partitions.values()] == [9, 9]
    assert kept.partition_count == 2
    emptied = go_on(kept, session_id, 2, (), [ForgottenTopic(topic="t", partitions=[1, 2])])
    assert emptied.session_id == NO_SESSION
    assert (len(kept), kept.partition_count) == (0, 0)


def test_news_is_what_has_changed() -> None:
    kept = sessions()
    session = go_on(kept, made(kept, 0), 1)
    cached = session.partitions["t", 0]
    assert not cached.is_news(tells(0))
    assert cached.is_news(tells(0, records=b"x"))
    assert cached.is_news(tells(0, error_code=3))
    assert cached.is_news(tells(0, diverging_epoch=EpochEndOffset()))
    assert cached.is_news(tells(0, high_watermark=1))
    assert cached.is_news(PartitionData(partition_index=0, high_watermark=0, log_start_offset=1))
    session.told("t", tells(0, high_watermark=1))
    assert not cached.is_news(tells(0, high_watermark=1))
    session.told("t", tells(0, high_watermark=1, error_code=3))
    # The reader must learn that the error is over.
    assert cached.is_news(tells(0, high_watermark=1))


def test_who_got_records_is_served_last() -> None:
    kept = sessions()
    session = go_on(kept, made(kept, 0, 1, 2), 1)
    session.told("t", tells(0, records=b"x"))
    session.told("t", tells(1, high_watermark=5))
    assert indexes_of(session) == [1, 2, 0]


def test_a_thousand_sessions_and_two_minutes() -> None:
    kept = sessions(partitions=10_000)
    ids = [made(kept, 0, now_ms=NOW + number) for number in range(1_000)]
    assert len(set(ids)) == 1_000 and NO_SESSION not in ids
    end_ms = NOW + EVICTABLE_AFTER_MS
    assert made(kept, 0, now_ms=end_ms) == NO_SESSION
    # The first session is used again, so the second one has been silent for longest.
    go_on(kept, ids[0], 1, now_ms=end_ms)
    assert made(kept, 0, now_ms=end_ms + 1) == NO_SESSION
    newcomer = made(kept, 0, now_ms=end_ms + 2)
    assert newcomer != NO_SESSION
    go_on(kept, ids[0], 2, now_ms=end_ms + 2)
    with pytest.raises(ApiError):
        go_on(kept, ids[1], 1, now_ms=end_ms + 2)


def test_partitions_of_all_sessions_have_a_limit_together() -> None:
    kept = sessions(partitions=10)
    first = made(kept, *range(6))
    assert made(kept, *range(5)) == NO_SESSION
    second = made(kept, *range(4))
    with pytest.raises(ApiError) as refused:
        go_on(kept, second, 1, asks(4))
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(kept), kept.partition_count) == (1, 6)
    assert made(kept, *range(11), now_ms=NOW + 2 * EVICTABLE_AFTER_MS) == NO_SESSION
    assert len(kept) == 1
    assert made(kept, *range(10), now_ms=NOW + 2 * EVICTABLE_AFTER_MS) != NO_SESSION
    with pytest.raises(ApiError):
        go_on(kept, first, 1)


def test_no_places_or_no_partitions_mean_no_session() -> None:
    assert made(sessions(count=0), 0) == NO_SESSION
    assert made(sessions()) == NO_SESSION


def test_any_program_keeps_count() -> None:
    random = seeded("fetch sessions")
    kept = sessions(count=5, partitions=30)
    epochs: dict[int, int] = {}
    now_ms = NOW
    for _ in range(3_000):
        now_ms += random.randrange(EVICTABLE_AFTER_MS // 3)
        indexes = random.sample(range(12), random.randrange(1, 8))
        if random.random() < 0.4 or not epochs:
            session_id = made(kept, *indexes, now_ms=now_ms)
            if session_id:
                epochs[session_id] = 0
        else:
            session_id = random.choice(list(epochs))
            epochs[session_id] += 1
            forgotten = [ForgottenTopic(topic="t", partitions=random.sample(range(12), 4))]
            try:
                go_on(kept, session_id, epochs[session_id], asks(*indexes), forgotten, now_ms)
            except ApiError as error:
                assert error.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
                del epochs[session_id]
        assert len(kept) <= 5
        assert kept.partition_count <= 30
