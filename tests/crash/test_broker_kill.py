"""The broker is killed at random while librdkafka clients work. No record is lost, duplicated,
reordered or invented.

`kill -9` ends the process but keeps the page cache, so acknowledged records survive even with
`flush=interval`. test_broker_power tests the loss of the page cache.
"""

import random
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.harness.broker import BrokerProcess
from tests.harness.chaos import Campaign
from tests.harness.checker import Rules
from tests.harness.history import Place
from tests.harness.recorded import CLIENT
from tests.harness.seed import seeded

pytestmark = pytest.mark.live

KILLS_SHORT = 20
KILLS_LONG = 200
KILLS_VARIANT = 40

PARTITIONS = 3
SEGMENT_BYTES = 200_000

SETTINGS = {
    # Write checkpoints often, so that recovery starts at many different offsets and loads producer
    # state from snapshots.
    "log.flush.offset.checkpoint.interval.ms": 300,
    "log.cleaner.backoff.ms": 200,
    "offsets.topic.segment.bytes": 30_000,
}

LOAD: list[Place] = [("load", number) for number in range(PARTITIONS)]


def test_twenty_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    run_plain(tmp_path, seeded("kills"), KILLS_SHORT, "kill -9")


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_two_hundred_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    run_plain(tmp_path, seeded("many kills"), KILLS_LONG, "kill -9")


def run_plain(folder: Path, chance: random.Random, kills: int, what: str) -> None:
    with BrokerProcess(folder, SETTINGS) as broker, Campaign(broker, chance, LOAD) as campaign:
        campaign.create(PARTITIONS, segment_bytes=SEGMENT_BYTES)
        campaign.add_producers(3)
        campaign.add_consumer()
        campaign.add_committer("g")
        campaign.kills(kills)
        campaign.judge(what)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_with_writes_only_in_the_page_cache(tmp_path: Path) -> None:
    chance = seeded("kills, flush=interval")
    settings = {"log.flush.interval.messages": 1_000_000}
    with BrokerProcess(tmp_path, settings) as broker, Campaign(broker, chance, LOAD) as campaign:
        campaign.create(PARTITIONS, segment_bytes=SEGMENT_BYTES)
        campaign.add_producers(3)
        campaign.add_consumer()
        campaign.kills(KILLS_VARIANT)
        campaign.judge("kill -9, flush=interval")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_with_tiny_segments(tmp_path: Path) -> None:
    """Segments roll every few batches, so that kills come between the steps of a roll."""
    chance = seeded("kills, tiny segments")
    with BrokerProcess(tmp_path) as broker, Campaign(broker, chance, LOAD) as campaign:
        campaign.create(PARTITIONS, segment_bytes=4_000, index_interval_bytes=100)
        campaign.add_producers(3, {"batch.size": 2_000})
        campaign.add_consumer()
        campaign.kills(KILLS_VARIANT)
        campaign.judge("kill -9, tiny segments")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_with_acks_of_the_leader_only(tmp_path: Path) -> None:
    """Without idempotence a record can be duplicated, but it must not be lost or out of order."""
    chance = seeded("kills, acks=1")
    with BrokerProcess(tmp_path) as broker, Campaign(broker, chance, LOAD) as campaign:
        campaign.create(PARTITIONS, segment_bytes=SEGMENT_BYTES)
        campaign.add_producers(
            3,
            {
                "enable.idempotence": False,
                "acks": 1,
                "max.in.flight.requests.per.connection": 1,
            },
        )
        campaign.add_consumer()
        campaign.kills(KILLS_VARIANT)
        campaign.judge("kill -9, acks=1", Rules(may_double=True))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_while_retention_and_administration_run(tmp_path: Path) -> None:
    """Segments are deleted, and topics and partitions are created, while the broker is killed."""
    chance = seeded("kills, retention and administration")
    settings = {
        "log.retention.check.interval.ms": 100,
        "log.segment.delete.delay.ms": 50,
        "log.flush.offset.checkpoint.interval.ms": 200,
    }
    with BrokerProcess(tmp_path, settings) as broker, Campaign(broker, chance, LOAD) as campaign:
        campaign.create(PARTITIONS, segment_bytes=20_000, retention_bytes=100_000)
        campaign.add_producers(3)
        campaign.add_consumer()
        admin = Administration(broker.bootstrap, chance)
        campaign.kills(KILLS_VARIANT, between=lambda: admin.ask(campaign))
        campaign.finish()
        made = admin.acknowledged()
        present = admin.present()
        assert {one: present.get(one, 0) for one in made} == {
            one: max(count, present.get(one, 0)) for one, count in made.items()
        }, "an acknowledged topic or partition is missing"
        campaign.count("topics and partitions acknowledged", sum(made.values()))
        report = campaign.judge("kill -9, retention and administration")
        assert report.standing < report.acknowledged, "retention has dropped nothing"


class Administration:
    """Requests for topics and partitions, sent just before the kills. After a kill those that were
    acknowledged must exist."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **CLIENT})
        self._chance = chance
        self._asked: list[tuple[str, int, object]] = []
        self._number = 0
        self._partitions = PARTITIONS

    def ask(self, campaign: Campaign) -> None:
        """Send one request without waiting for its response."""
        if self._chance.random() < 0.6:
            self._number += 1
            name, count = f"made-{self._number}", self._chance.randint(1, 4)
            futures = self._admin.create_topics([NewTopic(name, count, 1)])
        else:
            self._partitions += 1
            name, count = "load", self._partitions
            futures = self._admin.create_partitions([NewPartitions(name, count)])
        self._asked.append((name, count, futures[name]))

    def acknowledged(self) -> dict[str, int]:
        """Map each topic to the largest acknowledged number of partitions."""
        made: dict[str, int] = {}
        for name, count, future in self._asked:
            try:
                future.result(60)  # type: ignore[attr-defined]  # a Future
            except KafkaException:
                continue
            made[name] = max(count, made.get(name, 0))
        return made

    def present(self) -> dict[str, int]:
        topics = self._admin.list_topics(timeout=30).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}
