"""Changes of the cluster in words: what is under way, and what an operator must do."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.state.broker_facts import BrokerFacts, Leaving
from monitor.state.snapshot import BrokerView, Snapshot
from monitor.views import changes
from monitor.views.changes import (
    GONE_MS,
    STANDS_MS,
    advice_of,
    behind_ms,
    leaving_text,
    level_behind,
    move_text,
    operations_of,
    skew_facts,
)
from monitor.views.findings import findings_of
from tests.unit.monitor.readings import GROUP
from tests.unit.monitor.scene import CHANGING, FLOWING, THREE, Mill

SURFACE = Path(__file__).parents[2] / "appliance" / "public_surface.txt"
"""The commands, options and other names that users type."""


@pytest.fixture(scope="module")
def changing() -> Snapshot:
    return Mill(CHANGING, None).run()


def told(snapshot: Snapshot) -> dict[str, str]:
    return {one.code: one.text for one in advice_of(snapshot)}


def with_facts(snapshot: Snapshot, node_id: int, **facts: object) -> Snapshot:
    """Return the snapshot with other facts about one broker."""
    return replace(
        snapshot,
        brokers=tuple(
            replace(one, facts=replace(one.facts, **facts)) if one.node_id == node_id else one  # type: ignore[arg-type]
            for one in snapshot.brokers
        ),
    )


def test_what_is_under_way_comes_with_the_commands(changing: Snapshot) -> None:
    moves, leaving, turn, upgrade = operations_of(changing)
    assert moves.text == (
        "3 partitions move, 1 waits in a queue, 1 stands; at least 3.4 GiB to copy at 3.8 MiB/s"
    )
    assert ("ends them", "./millrace reassign cancel --all") in moves.commands
    assert leaving.text == "Broker 3 leaves: 11 of 11 partitions are left on it, 3.0 GiB"
    assert ("takes that back", "./millrace broker remove 3 --abort") in leaving.commands
    assert turn.text == (
        "broker-2 restarts in its turn; waits for 2 partitions that are not in sync"
    )
    assert upgrade.commands == (("ends the upgrade", "./millrace upgrade finalize"),)
    assert upgrade.text.startswith("All brokers support level 24 of the metadata log")


def test_each_move_says_when_it_ends_or_why_it_stands(changing: Snapshot) -> None:
    assert [move_text(one) for one in changing.moves] == [
        "about 2 min 30 s left",
        "waits in the queue of broker 4",
        "waits for broker 5, away since 21:48:28",
    ]
    first = changing.moves[0]
    endless = replace(first, is_endless=True, eta_s=None, writes=6_000_000.0)
    assert move_text(endless) == "never at this rate: more than 5.7 MiB/s is needed"
    assert move_text(replace(first, eta_s=None)) == "copies; the time is not measured yet"
    foreign = replace(first, is_measured=False)
    assert move_text(foreign) == "unknown: the brokers of this cluster do not report sizes"


def test_bytes_that_no_broker_reports_are_unknown(changing: Snapshot) -> None:
    unknown = replace(changing, moves=tuple(replace(one, to_go=None) for one in changing.moves))
    assert "the bytes to copy are unknown" in operations_of(unknown)[0].text


def test_trap_18_an_emptying_that_does_not_begin_says_so(changing: Snapshot) -> None:
    """redpanda#7355, #26221: a broker was to be emptied, nothing moved, and nothing said so."""
    three = next(one for one in changing.brokers if one.node_id == 3)
    stays = replace(three, leaving=Leaving(2, 12, 5 << 20, is_emptied=False))
    assert leaving_text(stays) == (
        "cordoned: it gets no new replicas, and 2 partitions stay on it, 5.0 MiB"
    )
    empty = replace(three, leaving=Leaving(0, 12, 0, is_emptied=False))
    assert leaving_text(empty) == "cordoned, and nothing is left on it"
    alone = replace(changing, brokers=(stays,), moves=(), parts=())
    (operation,) = [one for one in operations_of(alone) if one.kind == "leaving"]
    assert operation.text.startswith("Broker 3 is cordoned: it gets no new replicas")
    assert operation.commands[1] == (
        "ends the cordon", "./millrace config set broker 3 --delete cordoned.log.dirs",
    )  # fmt: skip


def test_the_most_since_the_cordon_is_kept() -> None:
    mill = Mill(CHANGING, None)
    first = mill.run(1)
    assert [one.leaving for one in first.brokers if one.leaving] == [
        Leaving(11, 11, 3 << 30, is_emptied=True)
    ]
    before = tuple(
        replace(one, leaving=Leaving(40, 40, None, is_emptied=True)) if one.leaving else one
        for one in first.brokers
    )
    mill.snapshot = replace(first, brokers=before)
    mill.take(mill.reading(2))
    assert mill.snapshot is not None
    leaving = next(one.leaving for one in mill.snapshot.brokers if one.leaving)
    assert (leaving.left, leaving.most) == (11, 40)


def test_a_round_that_ended_too_early_is_said_with_how_to_continue(changing: Snapshot) -> None:
    """Trap 30: a rolling restart that waits, or gave up, was once silent."""
    ended = replace(changing, round_ended="not restarted: broker-2. 300 s were not enough")
    (operation,) = [one for one in operations_of(ended) if one.kind == "restart"]
    assert operation.text == "not restarted: broker-2. 300 s were not enough"
    assert operation.commands == (("continues", "./millrace restart --rolling"),)


def test_a_mill_at_rest_has_no_operations_and_needs_nothing() -> None:
    for story in (FLOWING, THREE):
        calm = Mill(story, None).run()
        assert operations_of(calm) == []
        assert advice_of(calm) == []


def test_operations_are_no_faults() -> None:
    """A mill that is well stays so while a partition moves."""
    calm = replace(Mill(FLOWING, None).run(), moves=Mill(CHANGING, None).run(2).moves)
    assert operations_of(calm)[0].kind == "moves"
    assert all("moves" not in one.badge for one in findings_of(calm, GROUP))


def test_a_move_stands_after_five_minutes_without_a_byte(changing: Snapshot) -> None:
    assert told(changing)["move_stands"] == (
        "the move of logs.json-0 stands: waits for broker 5, away since 21:48:28"
    )
    since_ms = changing.taken_at_ms - STANDS_MS
    moves = tuple(replace(one, still_since_ms=since_ms) for one in changing.moves)
    assert "move_stands" not in told(replace(changing, moves=moves))
    queue = changing.moves[1]
    assert changing.taken_at_ms - queue.still_since_ms > STANDS_MS
    assert told(changing)["move_stands"].count("logs.access") == 0, "a queue is no fault"


def test_many_moves_of_a_topic_that_stand_are_one_sentence(changing: Snapshot) -> None:
    stands = changing.moves[2]
    many = replace(changing, moves=tuple(replace(stands, partition=n) for n in range(4_000)))
    advice = [one for one in advice_of(many) if one.code == "move_stands"]
    assert [one.text for one in advice] == [
        "4,000 moves of logs.json stand, such as logs.json-0: waits for broker 5,"
        " away since 21:48:28"
    ]


def test_trap_16_a_broker_without_room_is_named(changing: Snapshot) -> None:
    full = with_facts(changing, 4, is_out_of_room=True)
    assert told(full)["no_room_to_copy"] == (
        "the disk of broker 4 is nearly full, so copies to it pause"
    )


def test_trap_14_a_throttle_without_a_move_is_named_with_its_remedy(changing: Snapshot) -> None:
    """CruiseControl#1511, kafka-kit#313: it slows down the next copy, months later."""
    limited = with_facts(changing, 2, follower_rate=5_000_000)
    assert "throttle_left" not in told(limited), "something moves"
    config = {"leader.replication.throttled.replicas": ("0:1", "DYNAMIC_TOPIC_CONFIG")}
    topic = changing.topic("logs.access")
    assert topic is not None
    topics = (replace(topic, config=config),)
    left = [
        one
        for one in advice_of(replace(limited, moves=(), topics=topics))
        if one.code == "throttle_left"
    ]
    assert [one.text for one in left] == [
        "broker 2 limits copies to 4.8 MiB/s, and no partition moves",
        "topic logs.access has a list of limited replicas, and no partition moves",
    ]
    assert [one.remedy for one in left] == [
        "./millrace config set broker 2 --delete follower.replication.throttled.rate",
        "./millrace config set topic logs.access --delete leader.replication.throttled.replicas",
    ]
    default = {key: (value, "DEFAULT_CONFIG") for key, (value, _) in config.items()}
    kept = replace(changing, moves=(), topics=(replace(topics[0], config=default),))
    assert "throttle_left" not in told(kept), "a list of the file is no throttle of a plan"


def test_partitions_that_double_a_rack_are_named(changing: Snapshot) -> None:
    assert "racks_doubled" not in told(changing)
    assert ("Racks", "4, rule kept") in skew_facts(changing)
    together = with_facts(with_facts(changing, 1, rack="east"), 2, rack="east")
    assert told(together)["racks_doubled"].endswith(
        "two replicas in one rack although another rack has none"
    )
    assert any("rule broken" in value for _, value in skew_facts(together))


def test_every_command_that_a_sentence_names_exists() -> None:
    """The page tells the operator to type these commands."""
    known = {
        line.removeprefix("command ")
        for line in SURFACE.read_text().splitlines()
        if line.startswith("command ")
    }
    named = set(re.findall(r"\./(millrace [a-z-]+)( [a-z]+)?", Path(changes.__file__).read_text()))
    assert len(named) >= 8
    for command, word in named:
        is_group = any(re.match(rf"{command} [a-z]", one) for one in known)
        assert (command + word if is_group else command) in known


def test_a_quorum_without_a_spare_voter_is_named(changing: Snapshot) -> None:
    assert changing.quorum is not None
    replicas = changing.quorum.replicas
    two = replace(changing, quorum=replace(changing.quorum, replicas=(*replicas[:2], replicas[3])))
    assert told(two)["two_voters"].startswith("the quorum has two voters")
    one = replace(
        changing,
        quorum=replace(
            changing.quorum,
            replicas=(replicas[0], *(replace(it, role="observer") for it in replicas[1:])),
        ),
    )
    assert "one broker votes alone" in told(one)["one_voter"]
    remedies = {advice.code: advice.remedy for advice in advice_of(one)}
    assert remedies["one_voter"].endswith("./millrace cluster grow")
    assert {"two_voters", "one_voter"}.isdisjoint(told(changing))


def test_trap_33_a_level_is_behind_when_every_broker_supports_a_later_one(
    changing: Snapshot,
) -> None:
    assert level_behind(changing) == (23, 24)
    assert behind_ms(changing) == 272_000_000, "since the last broker's start"
    assert level_behind(with_facts(changing, 5, supported=(23, 23))) is None, "it is away"
    assert level_behind(with_facts(changing, 5, supported=None)) is None, "it is not known"
    done = changing
    for node in (1, 2, 3, 4):
        done = with_facts(done, node, finalised=24)
    assert level_behind(done) is None
    assert behind_ms(done) == 0


def test_trap_20_a_broker_that_is_gone_and_has_replicas_is_named(changing: Snapshot) -> None:
    """strimzi#11477: it still gets replicas, and blocks an upgrade."""
    assert told(changing)["broker_gone"] == (
        "broker 5 has not answered for 10 min and still has 1 replica"
    )
    recent = replace(changing, taken_at_ms=changing.taken_at_ms - 1)
    gone = next(one for one in recent.brokers if one.node_id == 5)
    assert gone.away_since_ms is not None
    assert recent.taken_at_ms - gone.away_since_ms < GONE_MS
    assert "broker_gone" not in told(recent)


def test_an_uneven_cluster_at_rest_gets_a_plan_on_request(changing: Snapshot) -> None:
    assert "uneven" not in told(changing), "a plan is under way"
    assert told(replace(changing, moves=()))["uneven"] == "brokers have 3 to 12 replicas"


def test_a_broker_of_another_cluster_has_no_facts() -> None:
    foreign = BrokerView(1, "h:1", True, True, None, 0, facts=BrokerFacts())
    assert leaving_text(foreign) == ""
    alone = Snapshot(1, 1, 2_000, "h:1", brokers=(foreign,))
    assert (operations_of(alone), advice_of(alone), skew_facts(alone)) == ([], [], [])
