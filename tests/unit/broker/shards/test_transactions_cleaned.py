"""Transactions in compacted topics: consumers and coordinators read over the gaps left by
compaction."""

import random
from collections.abc import Iterator

import pytest

from broker.replicas.replica import Replica
from broker.storage.log_cleaning import adopt_cleaned, plan_cleaning
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from tests.harness.wire import batch_of, fetch_request, produce_request
from tests.unit.broker.rig import Rig
from tests.unit.broker.txn_rig import (
    READ_COMMITTED,
    TxnProducer,
    make_coordinators,
    read_stable,
    settle,
)

PLACE = TopicPartition("c", 0)
MAP_BYTES = 1 << 20
LATER_MS = 2 * 86_400_000
"""Long enough for compaction to remove every marker and tombstone."""


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(
        transaction_state_log_segment_bytes=1_024,
        offsets_topic_segment_bytes=1_024,
        log_cleaner_min_cleanable_ratio=0,
    )
    # Files must be as old as the records in them, or producers would seem to be long silent.
    rig.disk.now_ms = rig.clock.now_ms()
    make_coordinators(rig)
    rig.create("c", cleanup_policy="compact", segment_bytes="600")
    yield rig


def clean(rig: Rig, partition: Replica) -> None:
    """Compact until no dirty records are left."""
    now_ms = rig.clock.now_ms()
    while (job := plan_cleaning(partition.log, now_ms, MAP_BYTES)) is not None:
        while not rig.broker.parts.replicas.logs.clean(partition.log, job):
            pass
        adopt_cleaned(partition.log, job, now_ms)


def test_what_is_aborted_behind_a_gap_is_listed_to_who_fetches_inside_it(rig: Rig) -> None:
    producer = TxnProducer(rig).ready()
    for number in range(20):
        rig.ask(produce_request("c", batch_of([b"%d" % number])), 9)
    producer.write((PLACE, b"aborted"), is_commit=False)
    partition = rig.broker.parts.replicas.find(*PLACE)
    rig.clock.advance(LATER_MS)
    clean(rig, partition)
    aborted = partition.log.aborted_transactions(0, partition.log.log_end_offset)
    assert [one.producer_id for one in aborted] == [producer.producer_id]
    gaps = 0
    for offset in range(aborted[0].first_offset):
        request = fetch_request("c", offset, isolation_level=READ_COMMITTED)
        part = rig.ask(request, 12).responses[0].partitions[0]
        found = partition.log.read(offset, 1 << 20, partition.log.log_end_offset)
        gaps += partition.log.segments.at(offset).next_offset < found.limit_offset
        listed = [one.first_offset for one in part.aborted_transactions]
        is_reached = found.limit_offset > aborted[0].first_offset
        assert listed == ([aborted[0].first_offset] if is_reached else []), offset
    assert gaps, "the cleaning left no gap, so nothing was tried"
    assert b"aborted" not in read_stable(rig, "c")


def test_coordinators_load_from_cleaned_logs(rig: Rig) -> None:
    producer = TxnProducer(rig).ready()
    for number in range(40):
        codes = [*producer.add(PLACE), producer.add_offsets("g")]
        codes += [*producer.commit_offsets("g", {PLACE: number}), producer.end()]
        settle(rig)
        assert set(codes) == {ErrorCode.NONE}
    services = rig.broker.parts
    before = services.transactions.shard("id").transactions
    rig.clock.advance(LATER_MS)
    for loaded in (services.transactions.find("id"), services.groups.find("g")):
        size_bytes = loaded.replica.log.size_bytes
        clean(rig, loaded.replica)
        assert loaded.replica.log.size_bytes < size_bytes
    rig.broker.parts.replicas.flush_all()
    settle(rig)
    rig.disk.now_ms = rig.clock.now_ms()
    rig.power_cut(random.Random(1))
    settle(rig)
    services = rig.broker.parts
    for _ in range(100):
        # Each turn loads at least one segment.
        rig.turn()
    assert services.transactions.shard("id").transactions == before
    committed = services.groups.shard("g").offsets.groups["g"][PLACE]
    assert committed.offset == 39
    assert producer.add(PLACE) == [ErrorCode.NONE]
