"""Measures each kind of rule in a snapshot, and gives its expression for Prometheus.

This module is pure. A subject whose measurement is unknown has the value None. A rule whose source
could not be read has None instead of a list of subjects.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from monitor.alerts import cluster_kinds, collector_kinds
from monitor.alerts.core import Found
from monitor.lag.rules import Bound, CellState, worst_time_lag
from monitor.state.alert import Kind, Observed, Rule, Unit, subject_pattern
from monitor.state.resting_cells import states_of, time_lags_of
from monitor.state.snapshot import GroupView, Snapshot
from monitor.views import render
from monitor.views.links import group_href, part_page

Measure = Callable[[Rule, Snapshot], list[Observed] | None]
STREAM = "stream"
AGELESS = (CellState.NO_COMMIT, CellState.PAST_END, CellState.DELETED)


@dataclass(frozen=True, slots=True)
class KindOf:
    """A kind of rule: its text for people, its measure, and its Prometheus expression with `{of}`
    and `{limit}`.
    """

    words: str
    measure: Measure
    expression: str


def measured(rules: Sequence[Rule], snapshot: Snapshot) -> Found:
    """Measure every rule in a snapshot."""
    return {rule.name: KINDS[rule.kind].measure(rule, snapshot) for rule in rules}


def shown(unit: Unit, value: float | None) -> str:
    """Return a value or a limit as text for people."""
    if value is None:
        return render.UNKNOWN
    if unit is Unit.FLAG:
        return "yes" if value > 0.5 else "no"
    if unit is Unit.MILLISECONDS:
        return render.duration(value)
    if unit is Unit.SHARE:
        return render.percent(value) if value >= 0.1 or value == 0 else f"{value * 100:.1f} %"
    return render.size(value) if unit is Unit.BYTES else render.number(value)


def limit_text(rule: Rule) -> str:
    """Return a rule's limit as text for people; empty for a flag."""
    if rule.unit is Unit.FLAG:
        return ""
    return f"{'below' if rule.is_below else 'above'} {shown(rule.unit, rule.limit)}"


def expression(rule: Rule) -> str:
    """Return the rule as an expression of Prometheus over the metrics of `/metrics`."""
    limit = rule.limit / 1000 if rule.unit is Unit.MILLISECONDS else rule.limit
    of = "|".join(subject_pattern(one) for one in rule.of)
    kind = KINDS[rule.kind].expression
    if rule.kind is Kind.DISK_FREE and rule.unit is Unit.BYTES:
        kind = 'millrace_disk_free_bytes{{disk=~"{of}"}} < {limit}'
    escaped = of.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return kind.format(of=escaped, limit=f"{limit:.15g}")


def _part_down(_: Rule, snapshot: Snapshot) -> list[Observed]:
    found = []
    for part in snapshot.parts:
        is_down = render.health(part) in ("down", "failed")
        why = part.words or part.error
        said = f"{render.part_title(part.name)} does not answer"
        text = f"{said}: {why}" if why else said
        found.append(Observed(part.name, float(is_down), text, part_page(part.name)))
    return found


def _part_stuck(_: Rule, snapshot: Snapshot) -> list[Observed]:
    found = []
    for part in snapshot.parts:
        text = ""
        if part.stuck is not None:
            said = part.stuck.text(snapshot.taken_at_ms)
            text = f"{render.part_title(part.name)} {said}"
        # A part that does not answer can be stuck or not, so its value is unknown.
        value = float(part.stuck is not None) if part.reachable else None
        found.append(Observed(part.name, value, text, part_page(part.name)))
    return found


def _lag(rule: Rule, snapshot: Snapshot) -> list[Observed] | None:
    found = _unseen(rule, snapshot)
    if found is None:
        return None
    for group in _concerned(rule, snapshot):
        value = float(group.total.lag) if group.total.known else None
        # While a log's end is unknown, the sum of lags is a lower bound, so it can open an alert
        # but not close one.
        is_bound = CellState.END_UNKNOWN in states_of(group.cells)
        value = _at_least(rule, value, is_bound=is_bound)
        text = f"group {group.group_id} lags {render.lag_sum(group.total)} offsets"
        found.append(Observed(group.group_id, value, text, group_href(group.group_id)))
    return found


def _time_lag(rule: Rule, snapshot: Snapshot) -> list[Observed] | None:
    found = _unseen(rule, snapshot)
    if found is None:
        return None
    for group in _concerned(rule, snapshot):
        # A partition without a commit has no age, so it does not make the group's age a lower
        # bound.
        lags = time_lags_of(group.cells)
        worst = worst_time_lag(lag for state, lag in lags if state not in AGELESS)
        value = None if worst.age_ms is None else float(worst.age_ms)
        value = _at_least(rule, value, is_bound=worst.bound is Bound.AT_LEAST)
        text = (
            f"the oldest record that group {group.group_id} has not read is {render.age(worst)} old"
        )
        found.append(Observed(group.group_id, value, text, group_href(group.group_id)))
    return found


def _concerned(rule: Rule, snapshot: Snapshot) -> Iterator[GroupView]:
    """Yield the groups that a rule names. A loop over all groups would take seconds in a large
    cluster.
    """
    return (group for group in snapshot.groups if rule.concerns(group.group_id))


def _unseen(rule: Rule, snapshot: Snapshot) -> list[Observed] | None:
    """Return unknown values for the groups that were not polled yet; None before a broker answered.

    These groups exist, so an alert that an earlier process opened stays open.
    """
    if snapshot.kafka_at_ms is None:
        return None
    names = sorted(one for one in snapshot.unseen if rule.concerns(one))
    return [Observed(one, None, "", group_href(one)) for one in names]


def _at_least(rule: Rule, value: float | None, *, is_bound: bool) -> float | None:
    """Return a lower bound only if it passes the limit; otherwise the value is unknown."""
    if value is None or not is_bound:
        return value
    return value if rule.breached_by(value) else None


def _disk_free(rule: Rule, snapshot: Snapshot) -> list[Observed] | None:
    if not snapshot.disks:
        # The mill's data is on at least one disk, so an empty list means that no disk could be
        # read.
        return None
    found = []
    for disk in snapshot.disks:
        share = disk.free_bytes / disk.size_bytes if disk.size_bytes else None
        value = share if rule.unit is Unit.SHARE else float(disk.free_bytes)
        text = (
            f"{render.size(disk.free_bytes)} of {render.size(disk.size_bytes)} are free on the disk"
            f" of {disk.name}"
        )
        found.append(Observed(disk.name, value, text, "/#parts"))
    return found


def _unparsed_share(_: Rule, snapshot: Snapshot) -> list[Observed] | None:
    if snapshot.part(STREAM) is None:
        return None
    share = snapshot.unparsed_share
    text = f"{shown(Unit.SHARE, share)} of the lines of the last ten minutes did not parse"
    return [Observed(STREAM, share, text, "/stream")]


def _file_stuck(_: Rule, snapshot: Snapshot) -> list[Observed] | None:
    if snapshot.still_files is None:
        return None
    return [
        Observed(one.path, 1.0, f"{one.path}: {one.text()}", "/collector")
        for one in snapshot.still_files
        if not one.is_unended
    ]


KINDS: Mapping[Kind, KindOf] = {
    Kind.PART_DOWN: KindOf(
        "a part does not answer", _part_down, 'millrace_part_up{{part=~"{of}"}} == 0'
    ),
    Kind.PART_STUCK: KindOf(
        "a part has work but makes no progress",
        _part_stuck,
        'millrace_part_stuck_seconds{{part=~"{of}"}} > 0',
    ),
    Kind.LAG: KindOf(
        "a group lags by too many offsets",
        _lag,
        'sum by (group) (millrace_group_lag_offsets{{group=~"{of}"}}) > {limit}',
    ),
    Kind.TIME_LAG: KindOf(
        "the oldest unread record of a group is too old",
        _time_lag,
        'max by (group) (millrace_group_lag_seconds{{group=~"{of}"}}) > {limit}',
    ),
    Kind.DISK_FREE: KindOf(
        "a disk is nearly full",
        _disk_free,
        'millrace_disk_free_bytes{{disk=~"{of}"}} / millrace_disk_size_bytes < {limit}',
    ),
    Kind.UNPARSED_SHARE: KindOf(
        "many lines do not parse", _unparsed_share, "millrace_unparsed_share > {limit}"
    ),
    Kind.FILE_STUCK: KindOf(
        "a file has unread lines and is not read",
        _file_stuck,
        'millrace_file_stuck_seconds{{path=~"{of}"}} > 0',
    ),
    Kind.MOVE_STANDS: KindOf(
        "reassignments of a topic do not advance",
        cluster_kinds.move_stands,
        'millrace_move_still_seconds{{topic=~"{of}"}} > {limit}',
    ),
    Kind.NO_ROOM_TO_COPY: KindOf(
        "copies to a broker pause, because its disk is nearly full",
        cluster_kinds.no_room_to_copy,
        'millrace_broker_out_of_room{{broker=~"{of}"}} == 1',
    ),
    Kind.THROTTLE_LEFT: KindOf(
        "a throttle is set although no partition moves",
        cluster_kinds.throttle_left,
        'millrace_throttle_left{{setting=~"{of}"}} == 1',
    ),
    Kind.RACKS_DOUBLED: KindOf(
        "partitions have two replicas in one rack",
        cluster_kinds.racks_doubled,
        'millrace_doubled_racks_partitions{{topic=~"{of}"}} > 0',
    ),
    Kind.TWO_VOTERS: KindOf(
        "the quorum has two voters", cluster_kinds.two_voters, "millrace_quorum_voters == 2"
    ),
    Kind.LEVEL_NOT_FINALISED: KindOf(
        "all brokers support a later metadata.version than the cluster uses",
        cluster_kinds.level_not_finalised,
        "millrace_level_behind_seconds > {limit}",
    ),
    Kind.COLLECTOR_SILENT: KindOf(
        "a collector of another host does not report",
        collector_kinds.collector_silent,
        'millrace_remote_collector_silent{{collector=~"{of}"}} == 1',
    ),
    Kind.COLLECTOR_SKEW: KindOf(
        "the clock of a collector's host is wrong",
        collector_kinds.collector_skew,
        'abs(millrace_remote_collector_skew_seconds{{collector=~"{of}"}}) > {limit}',
    ),
}
