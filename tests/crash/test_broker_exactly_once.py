"""Two recorded transactional members of one group work while the broker is killed.

They read the records of idempotent producers, and write them again in transactions that include
their offsets. They abort some transactions on purpose. A read_committed consumer must see every
input once and in order. It must never see an aborted record or a part of a transaction. A
read_uncommitted consumer sees each acknowledged record, aborted or not.
"""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from protocol.errors import ErrorCode
from tests.harness.broker import BrokerProcess
from tests.harness.chaos import Campaign, create_topic
from tests.harness.checker import check
from tests.harness.history import Place, ReadLog
from tests.harness.recorded import CLIENT, read_everything
from tests.harness.recorded_transformer import RecordedTransformer
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

KILLS_LONG = 40
PARTITIONS = 3
SOURCE, TARGET, GROUP = "source", "target", "transformers"
SOURCES: list[Place] = [(SOURCE, number) for number in range(PARTITIONS)]
TARGETS: list[Place] = [(TARGET, number) for number in range(PARTITIONS)]

SETTINGS = {
    "log.segment.bytes": 200_000,
    "group.initial.rebalance.delay.ms": 0,
    "log.flush.offset.checkpoint.interval.ms": 300,
    # Short times and small segments, so that the cleaner compacts the coordinators' topics, too.
    "log.cleaner.backoff.ms": 200,
    "offsets.topic.segment.bytes": 30_000,
    "transaction.state.log.segment.bytes": 30_000,
}


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_transactions_of_two_members_through_many_kills(tmp_path: Path) -> None:
    chance: random.Random = seeded("transactions of two")
    with BrokerProcess(tmp_path, SETTINGS) as broker, Campaign(broker, chance, SOURCES) as campaign:
        campaign.create(PARTITIONS)
        assert create_topic(broker, TARGET, PARTITIONS) is ErrorCode.NONE
        campaign.add_producers(2, per_turn=1)
        for number in range(2):
            campaign.transformers.append(
                RecordedTransformer(broker.bootstrap, f"x{number}", GROUP, SOURCE, TARGET, chance)
            )
        campaign.kills(KILLS_LONG)
        for one in campaign.producers:
            one.finish()
        try:
            wait_until(lambda: lag(broker.bootstrap) == 0, 180, "everything is transformed")
        except AssertionError as error:
            at = [(one.step, one.committed, one.ends) for one in campaign.transformers]
            raise AssertionError(f"{lag(broker.bootstrap)} behind, at {at}") from error
        campaign.finish()
        judge(broker, campaign)


def lag(bootstrap: str) -> int:
    """Return the lag of the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP} | CLIENT)
    try:
        behind = 0
        for one in consumer.committed([TopicPartition(*place) for place in SOURCES], 10):
            _, end = consumer.get_watermark_offsets(TopicPartition(one.topic, one.partition), 10)
            behind += end - max(one.offset, 0)
        return behind
    finally:
        consumer.close()


def judge(broker: BrokerProcess, campaign: Campaign) -> None:
    """Check the history, and check that the committed output equals the input."""
    source = read_everything(broker.bootstrap, SOURCES)
    # No transaction is open any more, so both isolation levels can read up to the log end offset.
    everything = read_everything(broker.bootstrap, TARGETS, name="all")
    committed = read_everything(broker.bootstrap, TARGETS, name="judge", is_read_committed=True)
    transformers = campaign.transformers
    logs = [one.log for one in campaign.producers] + [one.log for one in transformers]
    report = check(logs, [source, everything, committed])
    missing, doubled, reordered = compare(source, committed)
    tell(
        f"consume, transform, produce: kills {campaign.counts['kills']}, "
        f"committed {sum(one.committed for one in transformers)}, "
        f"aborted {sum(one.aborted for one in transformers)}, "
        f"producers replaced {sum(len(one.ends) for one in transformers)}; "
        f"{report.line()}; input not in the output {missing}, twice {doubled}, "
        f"out of order {reordered}"
    )
    assert report.is_clean, report.text()
    assert (missing, doubled, reordered) == (0, 0, 0)
    assert not campaign.failures, campaign.failures[:5]
    assert sum(one.aborted for one in transformers), "no transaction was aborted"


def compare(source: ReadLog, committed: ReadLog) -> tuple[int, int, int]:
    """Return three numbers: inputs missing in the output, inputs that are in it twice, and pairs of
    outputs in the wrong order."""
    missing = doubled = reordered = 0
    for partition in range(PARTITIONS):
        wanted = [value for _, value in source.records((SOURCE, partition))]
        found = [value.rsplit(b"|", 1)[0] for _, value in committed.records((TARGET, partition))]
        times = Counter(found)
        missing += sum(value not in times for value in wanted)
        doubled += sum(count - 1 for count in times.values())
        rank = {value: number for number, value in enumerate(wanted)}
        ranks = [rank[value] for value in found]
        reordered += sum(later < earlier for earlier, later in pairwise(ranks))
    return missing, doubled, reordered
