"""A power cut loses only unsynced records, and no acknowledged one.

The data folder is ext4 in a file. A power cut shuts that file system down without its journal and
then kills the broker. `flush=ack` is the default, so every acknowledged record must be on the
device. The broker is frozen before the cut, as if its processor had no power. Otherwise an
fdatasync during the shutdown can report success for lost data (seen once in twelve cuts with a
bare writer), so acknowledgements after the cut would prove nothing.
"""

import random
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from protocol.errors import ErrorCode
from tests.harness.broker import BrokerProcess
from tests.harness.chaos import Campaign, create_topic, pause
from tests.harness.history import Place, ReadLog
from tests.harness.mounts import Ext4Image
from tests.harness.recorded import CLIENT, read_everything
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

CUTS_SHORT = 3
CUTS_LONG = 50
CUTS_VARIANT = 25
IMAGE_MIB = 256

PARTITIONS = 3
PLACES: list[Place] = [("load", number) for number in range(PARTITIONS)]

SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": 300,
    "log.retention.check.interval.ms": 300,
    "log.segment.delete.delay.ms": 100,
}

BARE = {"enable.idempotence": False, "acks": 1, "max.in.flight.requests.per.connection": 1}
"""This producer is not idempotent, because an idempotent one must stop after a loss of acknowledged
records."""

DELETED_BEFORE_CUT = 0.5
TOPIC_BEFORE_CUT = 0.2


def run_cuts(folder: Path, chance: random.Random, cuts: int) -> None:
    with Ext4Image(folder, IMAGE_MIB) as disk:
        broker = BrokerProcess(disk.folder, SETTINGS)
        # The power cut must not lose the process's log, so it is on the machine's own disk.
        broker.log_file = folder / "broker.log"
        with broker, Campaign(broker, chance, PLACES) as campaign:
            campaign.create(PARTITIONS, segment_bytes=60_000)
            campaign.add_producers(3)
            campaign.add_consumer()
            campaign.add_committer("g")
            campaign.cuts(disk, cuts, between=lambda: make_topic(campaign))
            campaign.judge("power cut, flush=ack", places=campaign.places)
            broker.stop()
        assert not disk.check()


def make_topic(campaign: Campaign) -> None:
    """Create a topic in some of the cuts. Its creation is acknowledged right before the cut, so the
    topic must exist afterwards."""
    if campaign.chance.random() < TOPIC_BEFORE_CUT:
        name = f"made-{len(campaign.places)}"
        assert create_topic(campaign.broker, name, 1) is ErrorCode.NONE
        campaign.places.append((name, 0))
        campaign.producers[0].places.append((name, 0))
        campaign.count("topics")


def test_power_cuts_lose_nothing(tmp_path: Path) -> None:
    run_cuts(tmp_path, seeded("power cuts"), CUTS_SHORT)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_fifty_power_cuts_lose_nothing(tmp_path: Path) -> None:
    run_cuts(tmp_path, seeded("many power cuts"), CUTS_LONG)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_power_cuts_bring_no_deleted_record_back(tmp_path: Path) -> None:
    """An acknowledged DeleteRecords must survive a cut: the log start offset never goes back, and
    never above the requested offset."""
    chance = seeded("power cuts, deleted records")
    with Ext4Image(tmp_path, IMAGE_MIB) as disk:
        broker = BrokerProcess(disk.folder, SETTINGS)
        broker.log_file = tmp_path / "broker.log"
        with broker, Campaign(broker, chance, PLACES) as campaign:
            campaign.create(PARTITIONS, segment_bytes=20_000)
            campaign.add_producers(3)
            campaign.add_consumer()
            deletions = Deletions(broker.bootstrap, chance)
            campaign.cuts(disk, CUTS_VARIANT, between=lambda: deletions.ask(campaign))
            deletions.check()
            campaign.judge("power cut, records deleted")
            assert deletions.count, "no deletion was acknowledged"


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_power_cuts_under_flush_interval_leave_a_log_that_goes_on(tmp_path: Path) -> None:
    """As in Kafka, unsynced records at the end can be lost. The other records are complete and in
    order. Every partition comes back into service, even if its log start offset moved, or its files
    were removed, before the cut."""
    chance = seeded("power cuts, flush=interval")
    settings = SETTINGS | {
        "log.flush.interval.messages": 1_000_000,
        "log.flush.offset.checkpoint.interval.ms": 3_000,
        "log.retention.check.interval.ms": 100,
    }
    with Ext4Image(tmp_path, IMAGE_MIB) as disk:
        broker = BrokerProcess(disk.folder, settings)
        broker.log_file = tmp_path / "broker.log"
        with broker, Campaign(broker, chance, PLACES) as campaign:
            campaign.create(PARTITIONS, segment_bytes=20_000, retention_bytes=60_000)
            campaign.add_producers(3, BARE)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap, **CLIENT})

            def between() -> None:
                assert broker.status().problems == ()
                ends = [TopicPartition(*place, OFFSET_END) for place in PLACES]
                if chance.random() < DELETED_BEFORE_CUT:
                    admin.delete_records([chance.choice(ends)])
                    pause(chance.uniform(0, 0.1))

            campaign.cuts(disk, CUTS_VARIANT, between=between)
            between()
            campaign.finish()
            last = read_everything(broker.bootstrap, PLACES)
            lost = check_order(last, campaign)
            tell(f"power cut, flush=interval: {campaign.counts}; unsynced or too old {lost}")


def check_order(last: ReadLog, campaign: Campaign) -> int:
    """Check that every stored record was sent, and that the records of each producer are in order.
    Return the number of lost records."""
    standing = 0
    for place in PLACES:
        # The producers are not idempotent. If the response to a batch is lost, a copy of the batch
        # can follow.
        seen: dict[str, set[int]] = {one.log.process: set() for one in campaign.producers}
        for _, value in last.records(place):
            name, number, _ = value.split(b":", 2)
            log = next(one.log for one in campaign.producers if one.log.process == name.decode())
            assert log.values[int(number)] == value
            assert log.places[int(number)] == place
            if int(number) not in seen[log.process]:
                assert int(number) > max(seen[log.process], default=-1), value[:40]
                seen[log.process].add(int(number))
            standing += 1
    assert standing
    return sum(len(one.log) for one in campaign.producers) - standing


class Deletions:
    """DeleteRecords requests right before the cuts. After a cut the log start offset must lie
    between the last acknowledged and the last requested offset."""

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self.count = 0
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **CLIENT})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "starts", **CLIENT})
        self._chance = chance
        self._promised = dict.fromkeys(PLACES, 0)
        self._asked = dict.fromkeys(PLACES, 0)

    def check(self) -> None:
        for place in PLACES:
            low, _ = self._consumer.get_watermark_offsets(TopicPartition(*place), 30)
            assert self._promised[place] <= low <= self._asked[place], place

    def ask(self, campaign: Campaign) -> None:
        """Check the log start offsets, and then delete more records."""
        self.check()
        place = self._chance.choice(PLACES)
        _, high = self._consumer.get_watermark_offsets(TopicPartition(*place), 30)
        offset = self._chance.randint(self._asked[place], max(high, self._asked[place]))
        self._asked[place] = offset
        future = self._admin.delete_records([TopicPartition(*place, offset)])
        try:
            for one in future.values():
                one.result(10)
        except KafkaException:
            return
        self._promised[place] = offset
        self.count += 1
        campaign.count("deletions")


def test_a_dead_disk_ends_the_broker(tmp_path: Path) -> None:
    """After a failed fsync the broker must end, because the content of the page cache is unknown
    and no later write would succeed."""
    with Ext4Image(tmp_path, IMAGE_MIB) as disk:
        broker = BrokerProcess(disk.folder)
        broker.log_file = tmp_path / "broker.log"
        with broker, Campaign(broker, seeded("dead disk"), PLACES) as campaign:
            campaign.create(PARTITIONS, segment_bytes=60_000)
            campaign.add_producers(1)
            campaign.wait_for(1, "the load is running")
            disk.cut_power()
            process = broker.process
            assert process is not None
            assert wait_until(lambda: process.poll() is not None, 20, "the broker has ended")
            assert process.returncode == 1
            text = broker.log_text()
            assert "sync failed" in text or "the disk has failed" in text
