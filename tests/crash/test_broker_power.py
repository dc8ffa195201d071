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

from protocol.errors import ErrorCode
from tests.harness.broker import BrokerProcess
from tests.harness.chaos import Campaign, create_topic
from tests.harness.history import Place
from tests.harness.mounts import Ext4Image
from tests.harness.seed import seeded
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

CUTS_SHORT = 3
CUTS_LONG = 50
IMAGE_MIB = 256

PARTITIONS = 3
PLACES: list[Place] = [("load", number) for number in range(PARTITIONS)]

TOPIC_BEFORE_CUT = 0.2


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
            campaign.create(PARTITIONS, segment_bytes=60_000)
            campaign.add_producers(3)
            campaign.add_consumer()
            campaign.add_committer("g")
            campaign.cuts(disk, cuts, between=lambda: make_topic(campaign))
            campaign.judge("power cut, flush=ack", places=campaign.places)
            broker.stop()
        assert not disk.check()


def make_topic(campaign: Campaign) -> None:
    """Sometimes: a topic acknowledged right before the cut must be there after it."""
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


def test_a_dead_disk_ends_the_broker(tmp_path: Path) -> None:
    """After a failed sync nothing is known of the page cache: the broker must not go on."""
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
            assert "sync failed" in broker.log_text()
