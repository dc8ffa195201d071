"""The client's metadata cache: how it ages, merges responses, forgets topics, and ignores older
leader epochs."""

import uuid

from protocol.client.metadata import MetadataCache
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from protocol.types import TopicPartition
from tests.unit.client.scripted_server import metadata

TP = TopicPartition("t", 0)
NODES = {1: 9092, 2: 9093}


def a_cache(**topics: dict[int, tuple[int, int]]) -> MetadataCache:
    cache = MetadataCache(age_max_ms=1000)
    cache.apply(metadata(NODES, topics), tuple(topics), now_ms=0)
    return cache


def leader_epoch(cache: MetadataCache) -> int:
    partition = cache.current.partition(TP)
    assert partition is not None
    return partition.leader_epoch


def test_leaders_and_reasons_for_none() -> None:
    cache = a_cache(t={0: (1, 5), 1: (-1, 6), 2: (9, 7)})
    assert cache.current.leader(TP) == 1
    assert cache.current.leader(TopicPartition("t", 1)) is None
    # Node 9 leads the partition but is not among the brokers. So no address of it is known.
    assert cache.current.leader(TopicPartition("t", 2)) is None
    assert cache.current.error_of(TopicPartition("t", 1)) == ErrorCode.LEADER_NOT_AVAILABLE
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cache.current.error_of(TopicPartition("t", 8)) == unknown
    assert cache.current.error_of(TopicPartition("u", 0)) == unknown
    assert cache.current.topics["t"].available_partitions == (0, 2)


def test_a_leader_epoch_never_goes_back() -> None:
    cache = a_cache(t={0: (1, 5)})
    cache.apply(metadata(NODES, {"t": {0: (2, 4)}}), ("t",), 1)
    assert (cache.current.leader(TP), leader_epoch(cache)) == (1, 5)
    cache.apply(metadata(NODES, {"t": {0: (2, 6)}}), ("t",), 2)
    assert (cache.current.leader(TP), leader_epoch(cache)) == (2, 6)


def test_a_forgotten_leader_does_not_come_back_under_an_older_epoch() -> None:
    cache = a_cache(t={0: (1, 5)})
    cache.forget_leader(TP)
    assert cache.current.leader(TP) is None
    cache.apply(metadata(NODES, {"t": {0: (2, 4)}}), ("t",), 1)
    assert cache.current.leader(TP) is None
    cache.apply(metadata(NODES, {"t": {0: (1, 5)}}), ("t",), 2)
    assert cache.current.leader(TP) == 1


def test_a_recreated_topic_starts_again() -> None:
    cache = a_cache(t={0: (1, 5)})
    recreated = metadata(NODES, {"t": {0: (2, 0)}})
    recreated.topics[0].topic_id = uuid.UUID(int=77)
    cache.apply(recreated, ("t",), 1)
    assert (cache.current.leader(TP), leader_epoch(cache)) == (2, 0)


def test_epochs_that_are_not_told_change_nothing() -> None:
    cache = a_cache(t={0: (1, -1)})
    cache.apply(metadata(NODES, {"t": {0: (2, -1)}}), ("t",), 1)
    assert cache.current.leader(TP) == 2


def test_a_node_that_is_away_leads_nothing() -> None:
    cache = a_cache(t={0: (1, 5), 1: (2, 5)}, u={0: (1, 1)})
    cache.forget_node(1)
    assert cache.current.leader(TP) is None
    assert cache.current.leader(TopicPartition("t", 1)) == 2
    assert cache.current.leader(TopicPartition("u", 0)) is None
    assert not cache.is_fresh(("u",), 1)


def test_age_and_knowledge() -> None:
    cache = a_cache(t={0: (1, 5)})
    assert cache.is_known(("t",))
    assert cache.is_fresh(("t",), 999)
    assert not cache.is_fresh(("t",), 1000)
    assert cache.is_known(())
    assert not cache.is_known(None)
    assert not cache.is_known(("u",))
    cache.apply(metadata(NODES, {"u": {0: (1, 1)}}), None, 2000)
    assert cache.is_known(None)
    assert cache.is_fresh(None, 2500)
    # The response covers all topics and lacks topic t, so t was deleted.
    assert not cache.is_known(("t",))


def test_an_answer_about_some_topics_is_merged() -> None:
    cache = a_cache(t={0: (1, 5)})
    cache.apply(metadata(NODES, {"u": {0: (2, 1)}}), ("u",), 1)
    assert set(cache.current.topics) == {"t", "u"}


def test_a_missing_topic_is_known_to_be_missing() -> None:
    cache = MetadataCache(1000)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [MetadataResponseTopic(name="t", error_code=code)]
    cache.apply(MetadataResponse(topics=topics), ("t",), 0)
    assert not cache.is_known(("t",))
    assert cache.current.error_of(TP) == code


def test_pictures_are_never_changed() -> None:
    cache = a_cache(t={0: (1, 5)})
    before = cache.current
    cache.forget_leader(TP)
    assert before.leader(TP) == 1
