"""The state of reassignments: bytes, rates, the remaining time, and why they stand."""

from dataclasses import replace

import pytest

from monitor.state.moves import (
    COPIED,
    SHARE_MAX,
    STILL_SHOWN_MS,
    BrokersNow,
    MoveMemory,
    MoveView,
    MovingPartition,
    ReplicaCopy,
    sum_of,
    unanswered,
)
from protocol.types import TopicPartition

MB = 1_000_000
TP = TopicPartition("t", 0)
WELL = BrokersNow()
COPYING = MovingPartition(
    TP, 1, (1, 2, 4, 3), (1, 2, 3), (4,), (3,),
    sizes={1: 100 * MB, 2: 100 * MB, 3: 100 * MB, 4: 0}, copies={4: ReplicaCopy(100 * MB)},
)  # fmt: skip


def looked(
    one: MovingPartition,
    brokers: BrokersNow = WELL,
    memory: MoveMemory | None = None,
    at_s: int = 0,
) -> MoveView:
    (view,) = (memory or MoveMemory()).look([one], brokers, at_s * 1_000)
    return view


def grown(one: MovingPartition, copied: int, full: int = 100 * MB) -> MovingPartition:
    return replace(one, sizes={**one.sizes, 1: full, 4: copied})


def test_rate_and_time_are_measured_from_the_sizes_on_the_brokers() -> None:
    memory = MoveMemory()
    for second in range(11):
        found = looked(grown(COPYING, second * 2 * MB), memory=memory, at_s=second)
    assert (found.to_go, found.rate) == (80 * MB, 2 * MB)
    assert found.share == pytest.approx(0.2)
    assert found.eta_s == pytest.approx(40)
    assert (found.waits, found.still_since_ms) == ("", 10_000)


def test_a_copy_that_is_slower_than_the_writes_is_never_done() -> None:
    memory = MoveMemory()
    for second in range(70):
        one = grown(COPYING, second * MB, (100 + 2 * second) * MB)
        found = looked(one, memory=memory, at_s=second)
    assert found.is_endless
    assert found.eta_s is None
    assert found.writes == 2 * MB


def test_a_share_is_never_whole_before_the_metadata_say_so() -> None:
    assert looked(grown(COPYING, 100 * MB)).share == SHARE_MAX
    assert looked(grown(COPYING, 0, 0)).share == SHARE_MAX, "an empty partition"


def test_samples_begin_again_when_a_replica_is_done() -> None:
    both = MovingPartition(
        TP, 1, (1, 4, 5), (1,), (4, 5), (), sizes={1: 100 * MB, 4: 90 * MB, 5: 0}
    )
    memory = MoveMemory()
    for second in range(6):
        looked(replace(both, sizes={**both.sizes, 5: second * MB}), memory=memory, at_s=second)
    one_left = looked(replace(both, in_sync=(1, 4)), memory=memory, at_s=6)
    assert (one_left.copying, one_left.rate) == ((5,), None)


def test_trap_21_a_move_to_a_broker_that_never_comes_says_so() -> None:
    """KAFKA-9672. The size of a broker that is away is unknown."""
    sizes = {node: size for node, size in COPYING.sizes.items() if node != 4}
    gone = BrokersNow(away={4: "12:00:00"})
    found = looked(replace(COPYING, sizes=sizes, copies={}), gone)
    assert found.waits == "waits for broker 4, away since 12:00:00"
    assert found.is_standing and found.is_measured
    assert (found.to_go, found.share, found.eta_s) == (None, None, None)
    unknown = looked(COPYING, BrokersNow(away={4: None}))
    assert unknown.waits == "waits for broker 4, away since an unknown time"


@pytest.mark.parametrize(
    ("waits_for", "words", "is_queued"),
    [
        (("queue",), "waits in the queue of broker 4", True),
        (("queue", "room"), "the disk of broker 4 is nearly full, so copies pause", False),
        (("throttle",), "broker 4 may receive 0 bytes/s of copies", False),
        ((), "", False),
    ],
)
def test_the_brokers_own_reason_is_given(
    waits_for: tuple[str, ...], words: str, is_queued: bool
) -> None:
    stopped = BrokersNow(receive_nothing=frozenset({4}))
    found = looked(replace(COPYING, copies={4: ReplicaCopy(MB, waits_for)}), stopped)
    assert (found.waits, found.is_queued) == (words, is_queued)


def test_a_rate_of_0_on_the_leader_is_a_reason_only_for_listed_topics() -> None:
    stopped = BrokersNow(send_nothing=frozenset({1}))
    assert looked(COPYING, stopped).waits == ""
    limited = replace(COPYING, is_limited=True)
    assert looked(limited, stopped).waits == "broker 1 may send 0 bytes/s of copies"


def test_a_copy_with_an_empty_bucket_goes_on() -> None:
    """A throttle pauses a copy many times a second. Only a rate of 0 stops it."""
    assert looked(replace(COPYING, copies={4: ReplicaCopy(MB, ("throttle",))})).waits == ""


def test_without_a_byte_and_without_a_reason_the_two_brokers_are_named() -> None:
    memory = MoveMemory()
    assert looked(COPYING, memory=memory).waits == ""
    later = looked(COPYING, memory=memory, at_s=STILL_SHOWN_MS // 1_000)
    assert later.waits == "broker 4 gets no bytes from broker 1"
    assert later.still_since_ms == 0
    byte = looked(grown(COPYING, 1), memory=memory, at_s=31)
    assert (byte.waits, byte.still_since_ms) == ("", 31_000)


def test_without_a_leader_nothing_is_copied() -> None:
    assert looked(replace(COPYING, leader=None)).waits == "the partition has no leader"


def test_trap_1_and_2_what_a_completion_waits_for_is_said() -> None:
    """KAFKA-15665, KAFKA-16218: a partition that shrinks waits for all replicas that stay."""
    copied = replace(COPYING, in_sync=(1, 2, 3, 4))
    assert looked(copied).waits == COPIED
    assert not looked(copied).is_standing
    shrinks = MovingPartition(TP, 1, (1, 2, 3), (1, 3), (), (3,))
    assert looked(shrinks).waits == "waits until broker 2 is in sync, because its replica stays"
    few = MovingPartition(TP, 1, (1, 2, 4, 3), (1, 3, 4), (4,), (2, 3), min_in_sync=3)
    assert looked(few).waits == COPIED, "the target's size limits the minimum"
    lacks = MovingPartition(TP, 1, (1, 2, 4, 3), (3, 4), (4,), (3,), min_in_sync=2)
    assert looked(lacks).waits == "waits for 2 replicas in sync among those that stay; 1 are"


def test_of_a_compacted_topic_the_brokers_estimate_counts() -> None:
    """The leader's log can be smaller than the copy after a round of the cleaner."""
    found = looked(replace(grown(COPYING, 300 * MB), is_compacted=True))
    assert (found.to_go, found.is_about) == (100 * MB, True)


def test_another_cluster_reports_no_bytes() -> None:
    found = looked(replace(COPYING, sizes={}, copies={}))
    assert (found.to_go, found.is_measured, found.waits) == (None, False, "")


def test_what_no_broker_answers_stays_without_a_rate() -> None:
    memory = MoveMemory()
    for second in range(8):
        found = looked(grown(COPYING, second * MB), memory=memory, at_s=second)
    (stale,) = unanswered([found])
    assert (stale.rate, stale.eta_s, stale.waits) == (None, None, "no broker answers")
    assert stale.to_go == found.to_go


def test_the_sum_names_what_stands_what_waits_and_what_is_unknown() -> None:
    memory = MoveMemory()
    others = [
        replace(COPYING, tp=TopicPartition("t", 1), copies={4: ReplicaCopy(None, ("queue",))}),
        replace(COPYING, tp=TopicPartition("t", 2), in_sync=(1, 2, 3, 4)),
    ]
    for second in range(11):
        moving = [grown(COPYING, second * MB), *others]
        views = memory.look(moving, WELL, second * 1_000)
    total = sum_of(views)
    assert (total.count, total.queued, total.standing, total.unknown) == (3, 1, 0, 0)
    assert (total.to_go, total.rate) == (190 * MB, MB)
    assert total.eta_s == pytest.approx(190)
    away = memory.look(
        [*moving, replace(COPYING, tp=TopicPartition("u", 0), sizes={})], WELL, 11_000
    )
    assert (sum_of(away).unknown, sum_of(away).eta_s) == (1, None)
    assert sum_of(()).count == 0


def test_a_reassignment_that_ends_is_forgotten() -> None:
    memory = MoveMemory()
    for second in range(6):
        looked(grown(COPYING, second * MB), memory=memory, at_s=second)
    assert memory.look([], WELL, 6_000) == ()
    assert looked(COPYING, memory=memory, at_s=7).rate is None
