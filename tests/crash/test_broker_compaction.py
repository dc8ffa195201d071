"""Kills and power cuts during compaction lose no key's newest record.

Compaction replaces files while producers write. After a crash between any two steps, the log must
have every key's last acknowledged record, once and in order, and the state of the producers. The
test also checks that compaction removed older records.
"""

from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.chaos import Campaign
from tests.harness.checker import Rules
from tests.harness.history import Place
from tests.harness.mounts import Ext4Image
from tests.harness.seed import seeded

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1_800)]

KILLS = 60
CUTS = 25
IMAGE_MIB = 256
CLEANINGS_MIN = 10

PARTITIONS = 3
KEYS = 40
PLACES: list[Place] = [("kept", number) for number in range(PARTITIONS)]

SETTINGS = {
    "log.cleaner.backoff.ms": 100,
    "log.segment.delete.delay.ms": 50,
    "log.flush.offset.checkpoint.interval.ms": 300,
}


def load(campaign: Campaign) -> None:
    campaign.create(
        PARTITIONS, cleanup_policy="compact", segment_bytes=50_000, min_cleanable_dirty_ratio=0.05
    )
    # Send only one record per turn. A broker here lives only for a moment between two kills, and
    # more load would leave no time for a cleaning to finish.
    campaign.add_producers(3, keys=KEYS, per_turn=1)
    campaign.add_consumer()


def judge(campaign: Campaign, what: str) -> None:
    cleanings = campaign.broker.log_text().count("compacted a log partition=kept")
    campaign.count("cleanings", cleanings)
    report = campaign.judge(what, Rules(is_compacted=True))
    assert cleanings >= CLEANINGS_MIN
    assert report.standing < report.acknowledged, "nothing was cleaned away"


def test_kills_during_compaction(tmp_path: Path) -> None:
    chance = seeded("kills, compaction")
    with BrokerProcess(tmp_path, SETTINGS) as broker, Campaign(broker, chance, PLACES) as campaign:
        load(campaign)
        campaign.kills(KILLS)
        judge(campaign, "kill -9, compaction")


def test_power_cuts_during_compaction(tmp_path: Path) -> None:
    chance = seeded("power cuts, compaction")
    with Ext4Image(tmp_path, IMAGE_MIB) as disk:
        broker = BrokerProcess(disk.folder, SETTINGS)
        broker.log_file = tmp_path / "broker.log"
        with broker, Campaign(broker, chance, PLACES) as campaign:
            load(campaign)
            campaign.cuts(disk, CUTS)
            judge(campaign, "power cut, compaction")
            assert broker.stop() == 0
        assert not disk.check()
