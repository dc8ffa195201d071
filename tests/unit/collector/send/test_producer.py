"""The collector's client creates topics and reads their size limits."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from collector.config.input_section import DEAD_LETTERS_TOPIC
from collector.config.limits import DEFAULT_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from collector.config.settings import CollectorSettings
from collector.send.producer import Brokers
from collector.send.topic_access import TopicAccess
from protocol.client.admin_types import ConfigEntry, ConfigResource, TopicSpec
from protocol.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from protocol.errors import ApiError, ErrorCode

DYNAMIC_TOPIC_CONFIG = 1
INPUT = {"paths": ["watched/*/*.log"], "topic": "logs.{1}"}


class Cluster:
    """A cluster of topics with their `max.message.bytes`. It refuses to describe unknown topics."""

    def __init__(self) -> None:
        self.limits: dict[str, int] = {}
        self.current = ClusterMetadata()

    async def ensure_topics(self, specs: Sequence[TopicSpec], **_: object) -> None:
        for spec in specs:
            self.limits.setdefault(spec.name, DEFAULT_MESSAGE_BYTES)
            self.know(spec.name, spec.partitions or 6)

    def know(self, topic: str, count: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """Set the topic's newest metadata."""
        partitions = {
            number: PartitionMetadata(number, ErrorCode.NONE, 1, 0) for number in range(count)
        }
        known = TopicMetadata(topic, error, partitions=partitions)
        self.current = replace(self.current, topics={**self.current.topics, topic: known})

    async def describe_configs(
        self, resources: Collection[ConfigResource], *_: object, **__: object
    ) -> Mapping[ConfigResource, Mapping[str, ConfigEntry]]:
        for resource in resources:
            if resource.name not in self.limits:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, resource.name)
        return {
            one: {
                MAX_MESSAGE_BYTES: ConfigEntry(
                    MAX_MESSAGE_BYTES,
                    str(self.limits[one.name]),
                    DYNAMIC_TOPIC_CONFIG,
                    False,
                    False,
                )
            }
            for one in resources
        }

    async def metadata(self, names: Collection[str], **_: object) -> ClusterMetadata:
        codes = {
            name: ErrorCode.NONE if name in self.limits else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for name in names
        }
        return ClusterMetadata(
            topics={name: TopicMetadata(name, error=code) for name, code in codes.items()}
        )


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def brokers(cluster: Cluster) -> Brokers:
    raw: dict[str, Any] = {
        "bootstrap_servers": "nowhere:1",
        "home": "/home",
        "data_dir": "/data",
        "section": {"inputs": [INPUT, {"paths": ["watched/*"], "topic": "fixed"}]},
    }
    made = Brokers(CollectorSettings.model_validate(raw), "name")
    made._cluster = made._admin = cluster  # type: ignore[assignment]
    made._topics = TopicAccess(cluster, cluster, None, "millrace.positions")  # type: ignore[arg-type]
    return made


def test_a_routed_topic_that_was_deleted_keeps_no_other_from_being_made(
    cluster: Cluster, brokers: Brokers
) -> None:
    async def play() -> None:
        await brokers.prepare()
        await brokers.make_topics(["logs.a"])
        del cluster.limits["logs.a"]
        await brokers.make_topics(["logs.b"])
        assert brokers.partition_of("logs.b", b"key") is not None
        assert "logs.a" not in cluster.limits, "no file is routed to it"

    asyncio.run(play())


@pytest.mark.parametrize("topic", ["logs.a", "fixed"])
def test_a_file_waits_while_it_is_not_known_how_many_partitions_its_topic_has(
    cluster: Cluster, brokers: Brokers, topic: str
) -> None:
    """With an unknown number of partitions, the lines could go to another partition after a
    restart."""

    async def play() -> None:
        await brokers.prepare()
        if topic != "fixed":
            await brokers.make_topics([topic])
        place = brokers.partition_of(topic, b"a key")
        assert place is not None
        assert place.partition
        cluster.know(topic, 0, ErrorCode.LEADER_NOT_AVAILABLE)
        assert brokers.partition_of(topic, b"a key") is None
        await brokers.make_topics([topic])
        assert brokers.partition_of(topic, b"a key") == place
        cluster.know(DEAD_LETTERS_TOPIC, 0, ErrorCode.LEADER_NOT_AVAILABLE)
        assert brokers.partition_of(DEAD_LETTERS_TOPIC, b"a key") is not None

    asyncio.run(play())


def test_the_limits_of_topics_that_are_there_are_learnt_beside_one_that_was_deleted(
    cluster: Cluster, brokers: Brokers
) -> None:
    async def play() -> None:
        await brokers.prepare()
        await brokers.make_topics(["logs.a", "logs.b"])
        del cluster.limits["logs.a"]
        before = brokers.batch_limit("logs.b")
        cluster.limits["logs.b"] //= 2
        await brokers.learn_limits()
        assert brokers.batch_limit("logs.b") < before
        assert brokers.batch_limit(DEAD_LETTERS_TOPIC) == before

    asyncio.run(play())
