"""The throttle of `millrace reassign`, and the measured progress of copies."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.cli.reassign_throttle import copies_text
from appliance.kafka import reassign, replica_copies
from appliance.kafka.session import open_cluster
from appliance.output import Exit
from protocol.copy_progress import CopyEstimate
from protocol.types import TopicPartition
from tests.unit.appliance.fake_cluster import MIB, FakeCluster
from tests.unit.appliance.reassign_desk import Desk, data, desk_beside_four


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with desk_beside_four(tmp_path, monkeypatch) as found:
        yield found


def throttles(cluster: FakeCluster) -> dict[str, dict[str, str]]:
    """Return the altered settings by the name of the topic or broker."""
    return {name: own for (_, name), own in sorted(cluster.settings.items()) if own}


LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


def test_a_throttle_lasts_until_nothing_moves(desk: Desk) -> None:
    """Trap 14 (CruiseControl#1511): all moves share one rate. So the rate must stay until the last
    move has ended."""
    desk.write(logs=[[4, 2]])
    code, _, err = desk.execute("--throttle", "10MiB", "--detach")
    assert code == 0
    assert any("limited to 10 MiB/s for each broker" in line for line in err)
    rate = dict.fromkeys(RATES, str(10 << 20))
    assert throttles(desk.cluster) == {
        **dict.fromkeys(("1", "2", "4"), rate),
        "logs": dict(zip(LISTS, ("0:1,0:2", "0:4"), strict=True)),
    }
    assert desk.reassign("verify", "--plan", str(desk.plan))[0] == Exit.CONDITION
    assert len(throttles(desk.cluster)) == 4
    desk.cluster.complete()
    assert desk.reassign("verify", "--plan", str(desk.plan), "--keep-throttle")[0] == 0
    assert len(throttles(desk.cluster)) == 4
    code, _, err = desk.reassign("verify", "--plan", str(desk.plan))
    assert (code, err[-1]) == (0, "removed the throttle of 3 brokers and 1 topic")
    assert throttles(desk.cluster) == {}


def test_trap_15_the_same_plan_changes_the_rate_of_moves_under_way(desk: Desk) -> None:
    desk.write(logs=[[4, 2]])
    desk.execute("--detach")
    assert throttles(desk.cluster) == {}
    assert desk.execute("--detach", "--throttle", "1MB")[0] == 0
    assert throttles(desk.cluster)["4"] == dict.fromkeys(RATES, "1000000")
    assert throttles(desk.cluster)["logs"][LISTS[1]] == "0:4"
    assert desk.execute("--detach", "--throttle", "2MB", "--dry-run")[0] == 0
    assert throttles(desk.cluster)["4"] == dict.fromkeys(RATES, "1000000")
    assert desk.reassign("cancel", "--all", "--yes")[0] == 0
    assert len(throttles(desk.cluster)) in (0, 4)


def test_a_plan_that_is_followed_to_its_end_leaves_no_throttle(desk: Desk) -> None:
    desk.write(logs=[[2, 1]])
    assert desk.execute("--throttle", "1MB", "--detach")[0] == 0
    assert throttles(desk.cluster)
    desk.cluster.complete()
    code, _, err = desk.execute()
    assert code == 0
    assert "all partitions have their targets" in err
    assert throttles(desk.cluster) == {}


def test_a_topic_with_too_many_moves_is_limited_as_a_whole(desk: Desk) -> None:
    desk.cluster.topic("wide", *([1, 2] for _ in range(4_000)))
    desk.write(wide=[[3, 4] for _ in range(4_000)])
    code, _, err = desk.execute("--throttle", "1MB", "--dry-run")
    assert code == 0
    assert any("topic wide has too many moves for a list" in line for line in err)
    assert throttles(desk.cluster) == {}


def test_the_bytes_that_are_to_be_copied_are_listed(desk: Desk) -> None:
    desk.write(logs=[[4, 2]])
    desk.execute("--detach")
    desk.cluster.sizes = {
        (TopicPartition("logs", 0), 1): 10 * MIB,
        (TopicPartition("logs", 0), 4): 3 * MIB,
    }
    (row,) = data(desk.reassign("list", "--json")[1])
    assert (row["copying"], row["to_copy_bytes"]) == ([4], 7 * MIB)


def test_how_far_copies_are_is_said_by_measured_figures() -> None:
    texts = [
        copies_text(CopyEstimate(to_go, rate, writes, eta_s, is_endless))
        for to_go, rate, writes, eta_s, is_endless in (
            (5 << 30, None, None, None, False),
            (5 << 30, 30.0 * MIB, 0.0, None, False),
            (5 << 30, 30.0 * MIB, 10.0 * MIB, 256.0, False),
            (5 << 30, 1_000.0, 2.0 * MIB, None, True),
        )
    ]
    assert texts == [
        "5.0 GiB to copy",
        "5.0 GiB to copy at 30 MiB/s, time left unknown",
        "5.0 GiB to copy at 30 MiB/s, about 4m 16s left",
        "5.0 GiB to copy at 1,000 bytes/s: the copies never end at this rate, because"
        " writes add 2 MiB/s",
    ]


def test_copies_are_measured_while_they_are_followed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`to_go` is the sum of the missing bytes over all copies. The rate comes from the growth of
    their sizes."""
    monkeypatch.setattr(reassign, "POLL_S", 0.01)
    monkeypatch.setattr(replica_copies, "SAMPLE_S", 0.0)
    desk.write(logs=[[4, 2]])
    desk.execute("--detach")
    place = TopicPartition("logs", 0)
    desk.cluster.sizes = {(place, 1): 100 * MIB, (place, 4): 0}
    seen: list[CopyEstimate] = []

    def left(count: int, estimate: CopyEstimate | None) -> None:
        if estimate is not None:
            seen.append(estimate)
            desk.cluster.sizes[place, 4] += 10 * MIB
        if len(seen) == 6:
            desk.cluster.complete()

    async def follow() -> None:
        async with open_cluster(desk.cluster.address) as cluster:
            await replica_copies.follow(cluster, {place: (4, 2)}, left)

    asyncio.run(follow())
    assert [one.to_go for one in seen] == [size * MIB for size in (100, 90, 80, 70, 60, 50)]
    assert seen[0].rate is None
    assert all(one.rate for one in seen[1:])
    assert seen[-1].eta_s is not None and seen[-1].eta_s > 0
