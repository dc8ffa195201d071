"""The disk fills at random points under librdkafka: refused with an error that clients retry,
resumed without a hand's help once there is room, nothing damaged, nothing lost or doubled.

What exactly the answers are while the disk is full is test_broker_disk_full's.
"""

import random
from functools import partial
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from tests.harness.broker import BrokerProcess
from tests.harness.chaos import Campaign, create_topic, pause
from tests.harness.history import Place
from tests.harness.mounts import Ext4Image, Tmpfs
from tests.harness.seed import seeded
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

FILLS_SHORT = 4
FILLS_LONG = 50
SIZE_MIB = 256

PARTITIONS = 3
PLACES: list[Place] = [("load", number) for number in range(PARTITIONS)]

RECORDS_BETWEEN_MAX = 1_000
SPARE_BYTES_MAX = 100_000
"""Left free by the filler, so that the last write that fits differs from fill to fill."""

FULL_S_MAX = 0.3
"""How long the disk stays full after the first refusal."""

REFUSED = "write_failures_total"

SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": 200,
    "log.segment.delete.delay.ms": 100,
}


def run_fills(
    disk: Ext4Image | Tmpfs, folder: Path, chance: random.Random, fills: int, what: str
) -> None:
    broker = BrokerProcess(disk.folder, SETTINGS)
    # What the process says must have room.
    broker.log_file = folder / "broker.log"
    with broker, Campaign(broker, chance, PLACES) as campaign:
        campaign.create(PARTITIONS, segment_bytes=60_000)
        campaign.add_producers(3)
        campaign.add_consumer()
        campaign.add_committer("g")
        for number in range(fills):
            campaign.wait_for(chance.randint(1, RECORDS_BETWEEN_MAX), "the moment of the fill")
            refused = broker.metric(REFUSED)
            disk.fill(chance.randint(0, SPARE_BYTES_MAX))
            wait_until(partial(is_refusing, broker, refused), 30, "the disk is full")
            campaign.count("disk fills")
            trouble(broker, campaign, number)
            pause(chance.uniform(0, FULL_S_MAX))
            disk.free()
            if broker.process is None:
                broker.start()
            campaign.wait_for(1, "writes go on by themselves")
        campaign.judge(what, places=campaign.places)
        assert broker.stop() == 0


def trouble(broker: BrokerProcess, campaign: Campaign, number: int) -> None:
    """What else may be asked of a broker whose disk is full."""
    choice = campaign.chance.choice(["nothing", "topic", "kill", "stop"])
    if choice == "topic":
        name = f"made-{number}"
        if create_topic(broker, name, 1) is ErrorCode.NONE:
            campaign.places.append((name, 0))
            campaign.producers[0].places.append((name, 0))
        campaign.count("topics asked for while full")
    elif choice in ("kill", "stop"):
        if choice == "kill":
            broker.kill9()
        else:
            broker.stop()
        campaign.count("starts on a full disk")
        try:
            broker.start()
        except SystemExit:
            # Without room for the record of its registration it cannot run; the supervisor tries
            # again.
            assert "No space left" in broker.log_text() or "ENOSPC" in broker.log_text()
            campaign.count("starts refused")


def is_refusing(broker: BrokerProcess, before: int) -> bool:
    return broker.metric(REFUSED) > before


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    with Tmpfs(tmp_path / "disk", SIZE_MIB) as disk:
        run_fills(disk, tmp_path, seeded("disk fills"), FILLS_SHORT, "disk full (tmpfs)")


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_fifty_full_disks_lose_nothing(tmp_path: Path) -> None:
    with Ext4Image(tmp_path / "disk", SIZE_MIB) as disk:
        run_fills(disk, tmp_path, seeded("many disk fills"), FILLS_LONG, "disk full (ext4)")
        assert not disk.check()
