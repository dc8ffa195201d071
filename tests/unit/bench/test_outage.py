"""How long a partition had no acknowledgement, and how much of this librdkafka caused."""

import pytest

from bench.outage import (
    Delegated,
    Gap,
    Outage,
    at_internal_s,
    delegated,
    figures,
    longest_gap,
    most_led,
    values,
)


def test_a_gap_begins_at_the_signal_and_belongs_to_one_partition() -> None:
    acks = [(9.9, 0), (10.1, 1), (10.2, 0), (10.5, 1), (10.6, 0)]
    found = longest_gap(10.0, acks, 2)
    assert (found.partition, found.began_s) == (1, 10.1)
    assert found.seconds == pytest.approx(0.4)
    # Acknowledgements of partition 1 do not end the gap of partition 0. The acknowledgement at 9.0
    # is before `since_s`, so the gap does not begin there.
    silent_first = longest_gap(10.0, [(9.0, 0), (10.7, 1), (10.8, 0), (10.9, 1)], 2)
    assert (silent_first.partition, silent_first.began_s) == (0, 10.0)
    assert silent_first.seconds == pytest.approx(0.8)


def test_a_partition_that_is_never_served_is_no_short_gap() -> None:
    with pytest.raises(ValueError, match=r"\[1, 2\]"):
        longest_gap(10.0, [(9.0, 1), (10.1, 0)], 3)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "BRKDELGT [rdkafka#producer-2] [thrd:127.0.0.1:1/1]: kept [3]: delegating to broker "
            ":0/internal for partition with 7 messages (21 bytes) queued",
            Delegated(1.0, 3, True),
        ),
        (
            "BRKDELGT [rdkafka#producer-2] [thrd:main]: kept [0]: no longer delegated to broker "
            ":0/internal",
            Delegated(1.0, 0, False),
        ),
        (
            "BRKDELGT [rdkafka#producer-2] [thrd:main]: kept [0]: no longer delegated to broker "
            "127.0.0.1:22939/2",
            None,
        ),
        ("BRKMIGR [thrd:main]: Migrating topic kept [0] 0x7f from :0/internal to 1:1/2", None),
    ],
)
def test_librdkafkas_log_tells_who_has_a_partition(text: str, found: Delegated | None) -> None:
    assert delegated(1.0, text) == found


def test_only_the_time_inside_the_gap_and_of_its_partition_counts() -> None:
    gap = Gap(partition=1, began_s=10.0, seconds=1.0)
    events = [
        Delegated(9.5, 1, True),
        Delegated(9.6, 0, True),
        Delegated(10.1, 1, False),
        Delegated(10.3, 1, True),
        Delegated(10.4, 1, True),
        Delegated(10.5, 1, False),
        Delegated(10.5, 1, False),
        Delegated(10.9, 1, True),
    ]
    assert at_internal_s(gap, events) == pytest.approx(0.1 + 0.2 + 0.1)
    assert at_internal_s(gap, []) == 0


def test_the_leader_of_the_most_partitions_is_ended() -> None:
    assert most_led({0: 1, 1: 2, 2: 3, 3: 3}) == 3
    assert most_led({0: 3, 1: 2, 2: 2, 3: 3}) == 2


def test_percentiles_are_those_of_all_ends_and_every_one_is_kept() -> None:
    seconds = [0.2, 0.1, 1.0, 0.3]
    ends = [Outage(Gap(0, 5.0, one), one / 2, one == 0.3) for one in seconds]
    assert figures(ends) == {
        "p50_s": 0.2,
        "p99_s": 1.0,
        "max_s": 1.0,
        "max_at_internal_s": 0.5,
    }
    assert values(ends) == {
        "gap_s": seconds,
        "at_internal_s": [0.1, 0.05, 0.5, 0.15],
        "was_controller": [0.0, 0.0, 0.0, 1.0],
    }
