"""Snapshots made from readings: some values are carried over, some are marked, and an unknown value
is never shown as 0."""

from dataclasses import replace

from monitor.assembly.assemble import assemble
from monitor.assembly.readers import Memory
from monitor.history.series import events_between
from monitor.lag.reader_status import ReaderStatus
from monitor.lag.rules import Bound, CellState, TimeLag
from monitor.state.progress import ProgressMemory
from monitor.state.reading import (
    MemberReading,
    PartAnswer,
    Reading,
    SupervisedPart,
    SupervisorAnswer,
)
from monitor.state.snapshot import Snapshot
from monitor.views import render
from monitor.views.findings import findings_of
from protocol.status import PartState, PartStatus
from tests.unit.monitor.readings import (
    GROUP,
    kafka_reading,
    part_answer,
    part_down,
    reading,
    row,
    topic_reading,
)

NOW_MS = 1_800_000_000_000


class Cycles:
    """Assembles one reading after the other, as the sampler does."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.progress = ProgressMemory()
        self.last: Snapshot | None = None

    def feed(self, one: Reading) -> Snapshot:
        self.last = assemble(
            one,
            self.last,
            self.memory,
            self.progress,
            refresh_ms=2_000,
            bootstrap_servers="127.0.0.1:9092",
            stream_group=GROUP,
        )
        return self.last


def test_a_group_is_shown_with_every_partition_of_its_topics() -> None:
    kafka = kafka_reading(1_000, commits={row(0): 7}, ends={row(0): 10, row(1): 4})
    group = Cycles().feed(reading(1_000, kafka)).group(GROUP)
    assert group is not None
    assert [(c.partition, c.state, c.lag.lag) for c in group.cells] == [
        (0, CellState.OK, 3),
        (1, CellState.NO_COMMIT, None),
    ]
    assert (group.total.lag, group.total.known, group.total.total) == (3, 1, 2)
    assert group.kind == "stream"


def test_a_broker_that_is_away_makes_ends_unknown_and_keeps_the_last_lag_with_its_age() -> None:
    cycles = Cycles()
    kafka = kafka_reading(1_000, commits={row(0): 7, row(1): 4}, ends={row(0): 10, row(1): 4})
    cycles.feed(reading(1_000, kafka))
    shown = cycles.feed(reading(3_000, None))
    group = shown.group(GROUP)
    assert group is not None
    assert [(c.state, c.lag.lag, c.last_lag) for c in group.cells] == [
        (CellState.END_UNKNOWN, None, 3),
        (CellState.END_UNKNOWN, None, 0),
    ]
    assert group.total.known == 0
    assert group.state == "unknown"
    assert shown.kafka_at_ms == 1_000
    assert [(b.alive, b.error) for b in shown.brokers] == [(False, "no broker answered")]
    assert shown.topics[0].offsets_held is None
    assert shown.errors


def test_one_partition_without_an_end_leaves_the_others_known() -> None:
    cycles = Cycles()
    full = kafka_reading(1_000, commits={row(0): 1, row(1): 1}, ends={row(0): 5, row(1): 9})
    cycles.feed(reading(1_000, full))
    partial = kafka_reading(2_000, commits={row(0): 1, row(1): 1}, ends={row(0): 6})
    group = cycles.feed(reading(2_000, partial)).group(GROUP)
    assert group is not None
    assert (group.total.lag, group.total.known, group.total.total) == (5, 1, 2)
    assert group.cells[1].last_lag == 8
    assert group.cells[1].last_lag_at_ms == 1_000


def test_a_deleted_topic_is_a_row_of_its_own() -> None:
    kafka = kafka_reading(
        1_000,
        commits={row(0): 1, row(0, "gone"): 5},
        ends={row(0): 1, row(1): 0},
    )
    group = Cycles().feed(reading(1_000, kafka)).group(GROUP)
    assert group is not None
    assert [c.state for c in group.cells if c.topic == "gone"] == [CellState.DELETED]


def test_a_part_that_goes_down_keeps_what_it_last_said() -> None:
    cycles = Cycles()
    cycles.feed(reading(1_000, None, (part_answer("stream", 1_000, batch_id=7),)))
    part = cycles.feed(reading(5_000, None, (part_down("stream"),))).part("stream")
    assert part is not None
    assert (part.reachable, part.state, part.pid) == (False, "down", None)
    assert part.details["batch_id"] == 7
    assert part.answered_at_ms == 1_000


def test_the_time_a_stopped_reader_lags_is_the_age_of_its_next_record() -> None:
    kafka = kafka_reading(
        NOW_MS,
        commits={row(0): 7},
        ends={row(0): 10, row(1): 0},
        timestamps={(row(0), 7): NOW_MS - 40_000},
    )
    group = Cycles().feed(reading(NOW_MS, kafka)).group(GROUP)
    assert group is not None
    assert group.cells[0].time_lag.age_ms == 40_000
    # The other partition has no records and no committed offset, so its lag is unknown. The time
    # lag of the group is therefore a lower bound.
    assert group.time_lag.bound is Bound.AT_LEAST


def test_a_reader_behind_the_logs_start_is_judged_from_that_start() -> None:
    kafka = kafka_reading(
        NOW_MS,
        commits={row(0): 2},
        ends={row(0): 10},
        starts={row(0): 5},
        topics=(topic_reading(partitions=1),),
        timestamps={(row(0), 5): NOW_MS - 10_000},
    )
    group = Cycles().feed(reading(NOW_MS, kafka)).group(GROUP)
    assert group is not None
    assert (group.cells[0].state, group.cells[0].lag.lost) == (CellState.LOST, 3)
    assert group.cells[0].time_lag.age_ms == 10_000


def test_a_reader_before_markers_only_is_caught_up_and_ages_no_group() -> None:
    """The reader has committed the offset after the last record. Only a marker follows, which it
    never reads."""
    cycles = Cycles()
    for step in range(40):
        now_ms = NOW_MS + step * 10_000
        kafka = kafka_reading(
            now_ms, commits={row(0): 7}, ends={row(0): 8}, topics=(topic_reading(partitions=1),)
        )
        kafka = replace(kafka, only_markers=frozenset({(row(0), 7)}))
        snapshot = cycles.feed(reading(now_ms, kafka))
    group = snapshot.group(GROUP)
    assert group is not None
    assert (group.total.lag, group.time_lag) == (1, TimeLag(0, Bound.EXACT))
    assert group.judged.status is ReaderStatus.OK, "its commit does not move, and need not"


def test_a_group_with_a_record_of_unknown_age_is_never_shown_as_young() -> None:
    kafka = kafka_reading(
        NOW_MS,
        commits={row(0): 7, row(1): 3},
        ends={row(0): 10, row(1): 10},
        timestamps={(row(0), 7): 1_000, (row(1), 3): NOW_MS + 3_600_000},
    )
    group = Cycles().feed(reading(NOW_MS, kafka)).group(GROUP)
    assert group is not None
    assert group.time_lag == TimeLag(None, Bound.UNKNOWN)


def test_the_eta_is_the_slowest_partitions_and_absent_while_one_stands_still() -> None:
    cycles = Cycles()
    for step in range(8):
        kafka = kafka_reading(
            step * 2_000,
            commits={row(0): step * 10, row(1): 5},
            ends={row(0): 200, row(1): 6},
        )
        cycles.feed(reading(step * 2_000, kafka))
    assert cycles.last is not None
    group = cycles.last.group(GROUP)
    assert group is not None
    assert group.eta_s is None
    cycles = Cycles()
    for step in range(8):
        kafka = kafka_reading(
            step * 2_000,
            commits={row(0): step * 10, row(1): step},
            ends={row(0): 200, row(1): 47},
        )
        cycles.feed(reading(step * 2_000, kafka))
    assert cycles.last is not None
    group = cycles.last.group(GROUP)
    assert group is not None
    assert group.eta_s is not None
    assert round(group.eta_s) == 80


def test_a_recreated_topic_starts_its_rates_again() -> None:
    cycles = Cycles()
    for at_ms, end in ((1_000, 500), (2_000, 600), (3_000, 4)):
        kafka = kafka_reading(at_ms, commits={}, ends={row(0): end, row(1): 0})
        cycles.feed(reading(at_ms, kafka))
    assert cycles.last is not None
    assert cycles.last.topics[0].partitions[0].write_rate is None


def test_disk_sizes_come_from_the_brokers_own_status() -> None:
    listed = [{"topic": "logs.access", "partition": 0, "size_bytes": 1234}]
    kafka = kafka_reading(1_000, commits={}, ends={row(0): 1, row(1): 1})
    shown = Cycles().feed(
        reading(1_000, kafka, (part_answer("broker-1", 1_000, partition_list=listed),))
    )
    sizes = [part.size_bytes for part in shown.topics[0].partitions]
    assert sizes == [1234, None]
    assert shown.topics[0].size_bytes is None


def test_a_group_that_cannot_be_read_is_listed_with_its_error() -> None:
    kafka = kafka_reading(1_000, commits={}, ends={row(0): 1, row(1): 1})
    failed = replace(kafka.groups[0], error="COORDINATOR_NOT_AVAILABLE")
    group = Cycles().feed(reading(1_000, replace(kafka, groups=(failed,)))).group(GROUP)
    assert group is not None
    assert group.error == "COORDINATOR_NOT_AVAILABLE"
    assert render.lag_sum(group.total) == render.UNKNOWN, "never 0, nor whole"
    assert not group.total.complete
    assert (group.judged.status, group.judged.reason) == (
        ReaderStatus.UNKNOWN,
        "COORDINATOR_NOT_AVAILABLE",
    )


def test_a_group_that_cannot_be_read_keeps_what_it_was_and_no_lag() -> None:
    cycles = Cycles()
    commits, ends = {row(0): 7, row(1): 4}, {row(0): 10, row(1): 4}
    for index in range(14):
        now_ms = 1_000 + index * 10_000
        cycles.feed(reading(now_ms, kafka_reading(now_ms, commits=commits, ends=ends)))
    for why in ("one", "one", "two"):
        now_ms += 10_000
        kafka = kafka_reading(now_ms, commits={}, ends=ends)
        failed = replace(kafka.groups[0], members=None, error=why)
        group = cycles.feed(reading(now_ms, replace(kafka, groups=(failed,)))).group(GROUP)
        assert group is not None
        assert (group.error, group.judged.reason, group.kind) == (why, why, "stream")
        assert (group.total.known, group.total.total, group.by_lag) == (0, 2, ())
        assert [(c.lag.lag, c.last_lag) for c in group.cells] == [(None, 3), (None, 0)]
        assert {c.judged.reason for c in group.cells} == {why}
    now_ms += 10_000
    group = cycles.feed(reading(now_ms, kafka_reading(now_ms, commits=commits, ends=ends))).group(
        GROUP
    )
    assert group is not None
    assert (group.error, group.total.lag, group.total.complete) == (None, 3, True)
    assert group.judged.status is ReaderStatus.STALLED, "its looks of before are remembered"


def test_a_partition_that_is_assigned_and_never_committed_is_a_row() -> None:
    kafka = kafka_reading(1_000, commits={}, ends={row(0): 10, row(1): 4})
    member = MemberReading("m-1", "export-1", "10.0.0.7", None, frozenset({row(0), row(1)}))
    group = replace(kafka.groups[0], group_id="export", state="Stable", members=(member,))
    shown = Cycles().feed(reading(1_000, replace(kafka, groups=(group,)))).group("export")
    assert shown is not None
    assert [(c.partition, c.state, c.lag.backlog, c.member) for c in shown.cells] == [
        (0, CellState.NO_COMMIT, 10, "export-1"),
        (1, CellState.NO_COMMIT, 4, "export-1"),
    ]
    assert shown.total.known == 0


def test_one_partition_without_a_commit_does_not_flatten_the_line_of_the_others() -> None:
    cycles = Cycles()
    for step in range(4):
        end = 10 + step * 230_000
        kafka = kafka_reading(step * 1_000, commits={row(0): 7}, ends={row(0): end, row(1): 4})
        cycles.feed(reading(step * 1_000, kafka))
    assert cycles.last is not None
    group = cycles.last.group(GROUP)
    assert group is not None
    assert group.recent_lag == (3, 230_003, 460_003, 690_003)


def test_a_stream_that_commits_nothing_while_lines_wait_is_stuck() -> None:
    cycles = Cycles()
    for at_ms in range(0, 100_000, 2_000):
        commit = min(at_ms, 10_000)
        kafka = kafka_reading(at_ms, commits={row(0): commit}, ends={row(0): 200_000, row(1): 0})
        cycles.feed(reading(at_ms, kafka, (part_answer("stream", at_ms),)))
    assert cycles.last is not None
    part = cycles.last.part("stream")
    assert part is not None
    assert part.stuck is not None
    assert part.stuck.since_ms == 10_000
    assert "wait in logs.access" in part.stuck.over
    assert render.health(part) == "stuck", "whatever it says of itself"


def test_a_part_that_gave_up_is_said_with_its_own_words() -> None:
    words = "metric top_paths: its key has changed"
    supervised = SupervisedPart("failed", "it refused its settings", words, 0, None, None)
    answer = SupervisorAnswer("a fault in line 7", "took metrics away", {"stream": supervised})
    one = replace(reading(1_000, None, (part_down("stream"),)), supervisor=answer)
    shown = Cycles().feed(one)
    part = shown.part("stream")
    assert part is not None
    assert render.health(part) == "failed"
    assert words in render.part_says(part, 1_000)
    assert (shown.config_problem, shown.config_notice) == (
        "a fault in line 7",
        "took metrics away",
    )
    first = findings_of(shown, GROUP)[0]
    assert (first.level, first.badge) == ("bad", "stream failed")
    assert first.detail == f"Its last message: {words}"


def test_a_part_that_starts_is_starting_and_not_down() -> None:
    supervised = SupervisedPart("starting", "starting", None, 0, 900, 77)
    answer = SupervisorAnswer(None, None, {"stream": supervised})
    one = replace(reading(1_000, None, (part_down("stream"),)), supervisor=answer)
    part = Cycles().feed(one).part("stream")
    assert part is not None
    assert render.health(part) == "starting"
    assert render.health_level(part) == "warn"


def test_servers_that_are_not_ours_tell_how_long_they_run() -> None:
    mysql = PartAnswer(
        "mysql",
        "127.0.0.1:3307",
        PartStatus("mysql", PartState.RUNNING, True, 0, 50_000, details={"uptime_s": 40}),
    )
    part = Cycles().feed(reading(50_000, None, (mysql,))).part("mysql")
    assert part is not None
    assert part.started_at_ms == 10_000


def test_a_live_stream_keeps_up_and_its_age_is_no_more_exact_than_it_was_measured() -> None:
    cycles = Cycles()
    for step in range(20):
        ends = {row(0): step * 2_000, row(1): 0}
        commits = {row(0): max(0, step * 2_000 - 60), row(1): 0}
        kafka = kafka_reading(step * 2_000, commits=commits, ends=ends)
        cycles.feed(reading(step * 2_000, kafka))
    assert cycles.last is not None
    group = cycles.last.group(GROUP)
    assert group is not None
    assert group.time_lag.bound is Bound.ABOUT
    assert render.eta(group) == "keeps up"
    assert render.group_facts(group)[0] == ("State", "read by Spark")


def test_a_quiet_partition_is_taken_over_until_something_changes() -> None:
    cycles = Cycles()
    for step in range(40):
        kafka = kafka_reading(
            step * 2_000, commits={row(0): 5, row(1): 0}, ends={row(0): 5, row(1): 0}
        )
        cycles.feed(reading(step * 2_000, kafka))
    before = cycles.last
    quiet = kafka_reading(80_000, commits={row(0): 5, row(1): 0}, ends={row(0): 5, row(1): 0})
    same = cycles.feed(reading(80_000, quiet))
    assert before is not None
    assert same.groups[0].cells[0] is before.groups[0].cells[0]
    busy = kafka_reading(82_000, commits={row(0): 5, row(1): 0}, ends={row(0): 9, row(1): 0})
    moved = cycles.feed(reading(82_000, busy)).groups[0].cells[0]
    assert (moved.lag.lag, moved.last_lag_at_ms) == (4, 82_000)


def test_a_group_that_rests_keeps_the_numbers_and_the_time_of_its_last_look() -> None:
    cycles = Cycles()
    commits, ends = {row(0): 7, row(1): 4}, {row(0): 10, row(1): 4}
    cycles.feed(reading(1_000, kafka_reading(1_000, commits=commits, ends=ends)))
    later = kafka_reading(3_000, commits={}, ends={row(0): 900, row(1): 900})
    rests = replace(later, groups=(), rested=frozenset({GROUP}))
    snapshot = cycles.feed(reading(3_000, rests))
    group = snapshot.group(GROUP)
    assert group is not None
    assert (group.total.lag, group.looked_at_ms, snapshot.kafka_at_ms) == (3, 1_000, 3_000)
    assert render.looked(group, 3_000) == "as of 2 s ago"
    assert [group.cells[index].partition for index in group.by_lag] == [0, 1]
    ends = {row(0): 1_000, row(1): 4}
    again = cycles.feed(reading(5_000, kafka_reading(5_000, commits=commits, ends=ends)))
    group = again.group(GROUP)
    assert group is not None
    assert (group.total.lag, render.looked(group, 5_000)) == (993, "")
    assert group.cells[0].read_rate == 0.0, "its commits of before are remembered"


def test_what_a_resting_group_lagged_is_as_old_as_its_look_when_ends_go_away() -> None:
    cycles = Cycles()
    commits, ends = {row(0): 10}, {row(0): 10, row(1): 0}
    cycles.feed(reading(1_000, kafka_reading(1_000, commits=commits, ends=ends)))
    rests = replace(
        kafka_reading(3_000, commits={}, ends=ends), groups=(), rested=frozenset({GROUP})
    )
    cycles.feed(reading(3_000, rests))
    group = cycles.feed(reading(5_000, kafka_reading(5_000, commits=commits, ends={}))).group(GROUP)
    assert group is not None
    assert (group.cells[0].last_lag, group.cells[0].last_lag_at_ms) == (0, 1_000)


def test_a_group_that_is_gone_does_not_rest() -> None:
    cycles = Cycles()
    one = kafka_reading(1_000, commits={row(0): 7}, ends={row(0): 10})
    cycles.feed(reading(1_000, one))
    gone = cycles.feed(reading(3_000, replace(one, at_ms=3_000, groups=())))
    assert gone.groups == ()
    assert len(cycles.memory.groups) == 0


def test_a_group_that_waited_for_its_first_turn_has_not_appeared() -> None:
    cycles = Cycles()
    one = kafka_reading(1_000, commits={row(0): 7}, ends={row(0): 10})
    before = cycles.feed(reading(1_000, replace(one, rested=frozenset({"waits"}))))
    assert before.unseen == {"waits"}
    others = tuple(replace(one.groups[0], group_id=name) for name in ("new", "waits"))
    now = cycles.feed(reading(3_000, replace(one, at_ms=3_000, groups=(*one.groups, *others))))
    assert now.unseen == frozenset()
    assert [event.text for event in events_between(before, now)] == ["group new appeared"]
