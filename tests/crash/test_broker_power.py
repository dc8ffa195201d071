"""The power goes: whatever was not synced is lost, and nothing that was acknowledged is.

The data folder is ext4 in a file; a power cut is the shutdown of that file system without its
journal, then the death of the broker. `flush=ack` is the default, so every acknowledgement is a
promise about the device. The broker is frozen before the cut, as a processor without power is: an
fdatasync that runs while the file system is shut down may claim success for what is lost (a bare
writer saw it once in twelve cuts), so what is acknowledged after the cut proves nothing.
"""

import random
from pathlib import Path

import pytest

from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.harness.broker import BrokerProcess
from tests.harness.chaos import START_S_MAX, Campaign, pause
from tests.harness.history import Place
from tests.harness.mounts import Ext4Image
from tests.harness.seed import seeded
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient

pytestmark = pytest.mark.live

CUTS_SHORT = 3
CUTS_LONG = 50
IMAGE_MIB = 256

PARTITIONS = 3
PLACES: list[Place] = [("load", number) for number in range(PARTITIONS)]

RECORDS_BETWEEN_MAX = 1_000
CUT_AT_START = 0.2
"""How often the power goes again while the broker recovers from the cut before."""


def run_cuts(folder: Path, chance: random.Random, cuts: int) -> None:
    settings = {
        "log.flush.offset.checkpoint.interval.ms": 300,
        "log.retention.check.interval.ms": 300,
        "log.segment.delete.delay.ms": 100,
    }
    with Ext4Image(folder, IMAGE_MIB) as disk:
        broker = BrokerProcess(disk.folder, settings)
        # The log of the process belongs to the machine outside of the cut.
        broker.log_file = folder / "broker.log"
        with broker, Campaign(broker, chance, PLACES) as campaign:
            create(broker)
            campaign.add_producers(3)
            campaign.add_consumer()
            campaign.add_committer("g")
            for number in range(cuts):
                campaign.wait_for(chance.randint(1, RECORDS_BETWEEN_MAX), "the moment of the cut")
                if number % 5 == 2:
                    campaign.places.append(make_topic(broker, f"made-{number}"))
                    campaign.producers[0].places.append(campaign.places[-1])
                cut(broker, disk, campaign)
                while chance.random() < CUT_AT_START:
                    broker.spawn()
                    pause(chance.uniform(0, START_S_MAX))
                    cut(broker, disk, campaign)
                broker.start()
                campaign.wait_for(1, "writes go on")
            campaign.judge("power cut, flush=ack", places=campaign.places)
            broker.stop()
        assert not disk.check()


def cut(broker: BrokerProcess, disk: Ext4Image, campaign: Campaign) -> None:
    """The power goes and comes back; the broker is gone with it."""
    broker.freeze()
    disk.cut_power()
    broker.kill9()
    disk.return_power()
    campaign.count("power cuts")


def create(broker: BrokerProcess) -> None:
    configs = [CreatableTopicConfig(name="segment.bytes", value="60000")]
    topic = CreatableTopic(
        name="load", num_partitions=PARTITIONS, replication_factor=1, configs=configs
    )
    with WireClient(broker.bootstrap) as client:
        assert client.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0


def make_topic(broker: BrokerProcess, name: str) -> Place:
    """A topic acknowledged right before the cut must be there after it."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    with WireClient(broker.bootstrap) as client:
        assert client.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    return (name, 0)


def test_power_cuts_lose_nothing(tmp_path: Path) -> None:
    run_cuts(tmp_path, seeded("power cuts"), CUTS_SHORT)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_fifty_power_cuts_lose_nothing(tmp_path: Path) -> None:
    run_cuts(tmp_path, seeded("many power cuts"), CUTS_LONG)


def test_a_dead_disk_ends_the_broker(tmp_path: Path) -> None:
    """After a failed sync nothing is known of the page cache: the broker must not go on."""
    with Ext4Image(tmp_path, IMAGE_MIB) as disk:
        broker = BrokerProcess(disk.folder)
        broker.log_file = tmp_path / "broker.log"
        with broker, Campaign(broker, seeded("dead disk"), PLACES) as campaign:
            create(broker)
            campaign.add_producers(1)
            campaign.wait_for(1, "the load is running")
            disk.cut_power()
            process = broker.process
            assert process is not None
            assert wait_until(lambda: process.poll() is not None, 20, "the broker has ended")
            assert process.returncode == 1
            assert "sync failed" in broker.log_text()
