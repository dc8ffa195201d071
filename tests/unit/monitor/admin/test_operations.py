"""The plan for an administrator's order, on a cluster that the test describes."""

from collections.abc import Mapping

import pytest

from monitor.admin.operations import (
    GroupStanding,
    Led,
    Plan,
    TopicLogs,
    alteration,
    creation,
    deletion,
    election,
    resetting,
    rows_of,
)
from monitor.admin.orders import AlterTopic, CreateTopic, DeleteRecords, ElectLeaders, ResetOffsets
from protocol.client.admin_types import TopicSpec
from protocol.client.group_offset_reset import Bounds, ResetTarget, To
from protocol.types import TopicPartition

STREAM = "millrace-stream"


def row(number: int, topic: str = "logs") -> TopicPartition:
    return TopicPartition(topic, number)


def shown(plan: Plan) -> list[tuple[str, str, str]]:
    return [(one.what, one.before, one.after) for one in plan.effects]


def test_a_new_topic_is_shown_with_what_the_cluster_decides() -> None:
    plan = creation(CreateTopic(TopicSpec("logs", 3, None, {"retention.ms": "5"})), None)
    assert shown(plan) == [
        ("partitions", "–", "3"),
        ("replicas", "–", "the cluster's default"),
        ("retention.ms", "–", "5"),
    ]
    assert (plan.refusal, plan.subject) == (None, "logs")
    order = CreateTopic(TopicSpec("logs"))
    assert creation(order, "there is one").refusal == "there is one"


CURRENT: Mapping[str, tuple[str | None, str]] = {"retention.ms": ("7", "DYNAMIC_TOPIC_CONFIG")}


def test_changed_settings_are_shown_beside_what_holds_now() -> None:
    plan = alteration(AlterTopic("logs", {"retention.ms": None, "a": "1"}, 6), 3, CURRENT, None)
    assert shown(plan) == [
        ("partitions", "3", "6"),
        ("a", "not known", "1"),
        ("retention.ms", "7 (DYNAMIC_TOPIC_CONFIG)", "its default"),
    ]
    assert plan.refusal is None
    assert "keys go to other partitions" in plan.warnings[0]
    other = alteration(AlterTopic("logs", {"retention.ms": None, "a": "1"}, 6), 3, {}, None)
    assert other.basis != plan.basis, "another administrator has changed it"


@pytest.mark.parametrize(
    ("order", "partitions", "reason"),
    [
        (AlterTopic("gone", {"a": "1"}), None, "does not exist"),
        (AlterTopic("logs", {}, 3), 3, "expected a higher number"),
        (AlterTopic("millrace.positions", {"a": "1"}), 1, "the collector's positions"),
        (AlterTopic("millrace.positions.web", {"a": "1"}), 16, "the collector's positions"),
        (AlterTopic("__consumer_offsets", {"a": "1"}), 6, "belongs to the brokers"),
    ],
)
def test_what_cannot_be_altered_is_refused(
    order: AlterTopic, partitions: int | None, reason: str
) -> None:
    assert reason in str(alteration(order, partitions, {}, None).refusal)


LOGS = TopicLogs({0: Bounds(10, 50, None, 30), 1: Bounds(40, 40, None)})


def test_a_deletion_says_from_where_to_where_and_who_has_not_read_it() -> None:
    order = DeleteRecords("logs", None, ResetTarget(To.LATEST))
    plan = deletion(order, LOGS, [("slow", 0, 12), ("quick", 0, 50), ("slow", 1, 0)])
    assert shown(plan) == [("logs-0", "begins at 10", "begins at 50")]
    assert plan.effects[0].note == "40 offsets are deleted"
    assert plan.offsets == {row(0): 50}
    assert plan.warnings == ("The group slow has not read up to 38 of these offsets.",)
    assert plan.refusal is None
    by_time = deletion(DeleteRecords("logs", (0,), ResetTarget(To.TIME, 5)), LOGS, ())
    assert by_time.offsets == {row(0): 30}


@pytest.mark.parametrize(
    ("order", "logs", "reason"),
    [
        (DeleteRecords("gone", None, ResetTarget(To.LATEST)), TopicLogs(None), "does not exist"),
        (DeleteRecords("logs", (7,), ResetTarget(To.LATEST)), LOGS, "no partition 7"),
        (DeleteRecords("logs", (1,), ResetTarget(To.LATEST)), LOGS, "nothing would be deleted"),
        (DeleteRecords("logs", None, ResetTarget(To.SHIFT, -1)), LOGS, "expected end, an offset"),
        (
            DeleteRecords("logs", None, ResetTarget(To.LATEST)),
            TopicLogs(LOGS.bounds, is_compacted=True),
            "deleted by tombstones",
        ),
        (
            DeleteRecords("logs", None, ResetTarget(To.LATEST)),
            TopicLogs(LOGS.bounds, errors=("logs-0: no leader",)),
            "logs-0: no leader",
        ),
        (
            DeleteRecords("millrace.positions", None, ResetTarget(To.LATEST)), LOGS,
            "the collector's positions",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_deleted_is_refused(
    order: DeleteRecords, logs: TopicLogs, reason: str
) -> None:
    plan = deletion(order, logs, ())
    assert reason in str(plan.refusal)


def standing(state: str = "Empty", members: tuple[str, ...] = ()) -> GroupStanding:
    return GroupStanding(state, members, {row(0): Bounds(10, 50, 20), row(1): Bounds(0, 5, None)})


def test_a_reset_says_what_is_read_again_and_what_is_skipped() -> None:
    plan = resetting(ResetOffsets("g", (), ResetTarget(To.EARLIEST)), standing(), STREAM)
    assert shown(plan) == [("logs-0", "20", "10"), ("logs-1", "nothing committed", "0")]
    assert plan.effects[0].note == "10 offsets read again"
    assert plan.offsets == {row(0): 10, row(1): 0}
    plan = resetting(ResetOffsets("g", (), ResetTarget(To.LATEST)), standing(), STREAM)
    assert plan.effects[0].note == "30 offsets skipped"
    far = resetting(ResetOffsets("g", (), ResetTarget(To.OFFSET, 99)), standing(), STREAM)
    assert far.offsets == {row(0): 50, row(1): 5}
    assert "higher than latest" in far.warnings[0]


def test_a_group_that_runs_is_refused_with_its_members() -> None:
    plan = resetting(
        ResetOffsets("g", (), ResetTarget(To.EARLIEST)),
        standing("Stable", ("export-1 at 10.0.7.21",)),
        STREAM,
    )  # fmt: skip
    assert plan.refusal is not None
    assert "current state is Stable" in plan.refusal
    assert "export-1 at 10.0.7.21" in plan.refusal
    assert plan.offsets == {}


def test_the_streams_group_a_shift_from_nowhere_and_an_unknown_scope_are_refused() -> None:
    order = ResetOffsets(STREAM, (), ResetTarget(To.EARLIEST))
    assert "stores with its counts" in str(resetting(order, standing(), STREAM).refusal)
    order = ResetOffsets("g", (), ResetTarget(To.SHIFT, 1))
    assert "no current committed" in str(resetting(order, standing(), STREAM).refusal)
    empty = GroupStanding("Empty", (), {}, "topic 'x' does not exist")
    assert "does not exist" in str(resetting(order, empty, STREAM).refusal)
    nothing = GroupStanding("Dead", (), {})
    assert "has no committed offset" in str(resetting(order, nothing, STREAM).refusal)


def test_a_commit_after_the_plan_changes_the_basis_and_a_moved_end_does_not() -> None:
    order = ResetOffsets("g", (), ResetTarget(To.LATEST))
    plan = resetting(order, standing(), STREAM)
    moved = {row(0): Bounds(10, 70, 20), row(1): Bounds(0, 5, None)}
    assert resetting(order, GroupStanding("Empty", (), moved), STREAM).basis == plan.basis
    committed = {row(0): Bounds(10, 70, 21), row(1): Bounds(0, 5, None)}
    assert resetting(order, GroupStanding("Empty", (), committed), STREAM).basis != plan.basis


def test_an_election_moves_what_can_be_moved_and_names_what_stays() -> None:
    found = [
        Led(row(0), 1, (1, 2, 3), (1, 2, 3)),
        Led(row(1), 3, (2, 3, 1), (2, 3)),
        Led(row(2), 2, (3, 1, 2), (1, 2)),
        Led(row(3), None, (1,), (1,)),
    ]
    plan = election(ElectLeaders("logs"), found)
    assert shown(plan) == [
        ("logs-1", "broker 3 leads", "broker 2 leads"),
        ("logs-3", "no broker leads", "broker 1 leads"),
    ]
    assert plan.warnings == ("logs-2 stays: its preferred broker 3 is not in sync.",)
    assert rows_of(plan) == [row(1), row(3)]
    assert "nothing to elect" in str(election(ElectLeaders(None), found[:1]).refusal)
    assert "does not exist" in str(election(ElectLeaders("gone"), None).refusal)
    assert election(ElectLeaders(None), found).subject == "all topics"
