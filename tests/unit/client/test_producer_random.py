"""The producer's core with a leader that follows Kafka's rules and a network with faults.

Requests are refused, lost or repeated at random, from a seed. Every record must be in the log once,
in the order in which it was sent, and its caller must get the right offset. Then the faults end,
and every batch must complete.
"""

import os
import random

import pytest

from protocol.client.errors import DeliveryTimedOut
from protocol.client.producer_core import ProducerCore
from protocol.client.producer_settings import ProducerSettings
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition
from tests.unit.client.model_broker import POISON, World

FIRST_SEED = int(os.environ.get("MILLRACE_SEED") or random.SystemRandom().randrange(1 << 32))
RUNS = 1 if os.environ.get("MILLRACE_SEED") else 25


def run(
    seed: int,
    *,
    poison_rate: float = 0.0,
    delivery_timeout_ms: int | None = None,
    first_sequence: int = 0,
) -> tuple[World, dict[TopicPartition, list[bytes]]]:
    rng = random.Random(seed)
    settings = ProducerSettings(
        linger_ms=rng.choice((0, 5, 50)),
        batch_bytes=rng.choice((100, 300, 2000)),
        max_in_flight=rng.randrange(1, 6),
        delivery_timeout_ms=delivery_timeout_ms,
        retry_backoff_ms=(5, 40),
    )
    core = ProducerCore(settings, rng)
    world = World(core, rng, fault_rate=rng.choice((0.02, 0.1, 0.3)))
    tps = [TopicPartition("t", index) for index in range(rng.randrange(1, 4))]
    sent: dict[TopicPartition, list[bytes]] = {tp: [] for tp in tps}
    if first_sequence:
        core.set_producer_id(1, 0)
        for tp in tps:
            line = core._line(tp)
            line.adopt(1, 0)
            line.next_sequence = first_sequence
    for number in range(rng.randrange(50, 300)):
        tp = rng.choice(tps)
        value = b"%d" % number
        if rng.random() < poison_rate:
            world.append(tp, value, POISON)
        else:
            world.append(tp, value)
            sent[tp].append(value)
        for _ in range(rng.randrange(6)):
            world.step()
    for _ in range(rng.randrange(200)):
        world.step()
    world.settle()
    return world, sent


def check_offsets(world: World) -> None:
    for value, offset in world.delivered.items():
        assert any(
            offset < len(partition.log) and partition.log[offset] == value
            for partition in world.partitions.values()
        ), f"{value!r} is not at {offset}"


@pytest.mark.parametrize("run_number", range(RUNS))
def test_everything_once_and_in_order(run_number: int) -> None:
    seed = FIRST_SEED + run_number
    print(f"MILLRACE_SEED={seed}")
    world, sent = run(seed)
    assert not world.failed
    for tp, values in sent.items():
        assert not values or world.partitions[tp].log == values
    check_offsets(world)
    assert world.core.buffered_bytes == 0


@pytest.mark.parametrize("run_number", range(RUNS))
def test_refused_records_fail_alone(run_number: int) -> None:
    """Only the record that is too large fails. The other records of its batch are sent without
    it."""
    seed = FIRST_SEED + run_number
    print(f"MILLRACE_SEED={seed}")
    world, sent = run(seed, poison_rate=0.05)
    for tp, values in sent.items():
        if values:
            assert world.partitions[tp].log == values
    for error in world.failed.values():
        assert isinstance(error, ApiError)
        assert error.code == ErrorCode.MESSAGE_TOO_LARGE
    check_offsets(world)
    assert world.core.buffered_bytes == 0


@pytest.mark.parametrize("run_number", range(RUNS))
def test_sequences_wrap_around(run_number: int) -> None:
    seed = FIRST_SEED + run_number
    print(f"MILLRACE_SEED={seed}")
    world, sent = run(seed, first_sequence=2**31 - 30)
    assert not world.failed
    for tp, values in sent.items():
        if values:
            assert world.partitions[tp].log == values


@pytest.mark.parametrize("run_number", range(RUNS))
def test_with_a_delivery_timeout_nothing_is_doubled_or_reordered(run_number: int) -> None:
    """The log may contain a record that timed out. It must contain every other record, and no
    record twice."""
    seed = FIRST_SEED + run_number
    print(f"MILLRACE_SEED={seed}")
    world, sent = run(seed, delivery_timeout_ms=60)
    for error in world.failed.values():
        assert isinstance(error, DeliveryTimedOut)
    for tp, values in sent.items():
        log = world.partitions[tp].log if tp in world.partitions else []
        assert len(set(log)) == len(log)
        kept = set(log)
        assert log == [value for value in values if value in kept]
        assert all(value in kept for value in values if value not in world.failed)
    check_offsets(world)
