"""The tables of `kafka-consumer-groups --describe`. This module is pure: it gets groups and returns
lines."""

from collections.abc import Sequence

from appliance.kafka.groups import Group
from protocol.client.admin_types import MemberDescription
from protocol.types import TopicPartition

NOTHING = "-"


def offsets_table(group: Group, verbose: bool) -> list[str]:
    """Return the table of partitions with offsets and lag. Members without partitions come last."""
    rows = []
    for row in group.rows:
        member = row.member
        cells: list[object] = [row.group_id, row.topic, row.partition]
        if verbose:
            cells.append(row.leader_epoch)
        cells += [row.current_offset, row.log_end_offset, row.lag]
        rows.append(_texts([*cells, *_who(member)]))
    for member in group.description.members:
        if not group.assignments.get(member.member_id):
            blank = [None] * (6 if verbose else 5)
            rows.append(_texts([group.group_id, *blank, *_who(member)]))
    if not rows:
        return []
    heads = ["GROUP", "TOPIC", "PARTITION"]
    heads += ["LEADER-EPOCH"] if verbose else []
    heads += ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    least = [15, 15, 10, *([15] if verbose else []), 15, 15, 15, 15, 15, 0]
    grown = {0, 1, len(heads) - 3, len(heads) - 2}
    return _lines(heads, rows, least, grown)


def _who(member: MemberDescription | None) -> list[object]:
    if member is None:
        return [None, None, None]
    return [member.member_id, member.client_host, member.client_id]


def members_table(group: Group, verbose: bool) -> list[str]:
    """Return the members and their assignments."""
    members = group.description.members
    has_static = any(member.group_instance_id for member in members)
    heads = ["GROUP", "CONSUMER-ID"]
    heads += ["GROUP-INSTANCE-ID"] if has_static else []
    heads += ["HOST", "CLIENT-ID", "#PARTITIONS"]
    heads += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"] * verbose
    rows = []
    for member in members:
        tps = group.assignments.get(member.member_id, frozenset())
        cells: list[object] = [group.group_id, member.member_id]
        cells += [member.group_instance_id] if has_static else []
        cells += [member.client_host, member.client_id, len(tps)]
        cells += [None, assignment_text(tps), None, None] if verbose else []
        rows.append(_texts(cells))
    place = 3 if has_static else 2
    least = [15, 15, *([17] if has_static else []), 15, 15, 15, *([15, 20, 15, 20] * verbose)]
    grown = {0, 1, place, place + 1, *([2] if has_static else []), *([len(heads) - 3] * verbose)}
    end = "" if verbose else " "
    return [f"{line}{end}" for line in _lines(heads, rows, least, grown, pads_last=True)]


def assignment_text(tps: frozenset[TopicPartition]) -> str | None:
    """Format an assignment as `t:0,1;u:2`; None if it is empty."""
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(tps):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return ";".join(f"{name}:{','.join(map(str, ps))}" for name, ps in by_topic.items()) or None


def state_table(group: Group, coordinator: str, verbose: bool) -> list[str]:
    """Return the table with one row for the whole group."""
    one = group.description
    heads = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    heads += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if verbose else []
    heads.append("#MEMBERS")
    cells: list[object] = [one.group_id, coordinator, one.protocol or None, one.state]
    cells += [None, None] if verbose else []
    least = [15, 25, 20, 20, *([15, 25] if verbose else []), 0]
    return _lines(heads, [_texts([*cells, len(one.members)])], least, {0, 1})


def _texts(cells: Sequence[object]) -> list[str]:
    return [NOTHING if cell is None or cell == "" else str(cell) for cell in cells]


def _lines(
    heads: list[str],
    rows: list[list[str]],
    least: Sequence[int],
    grown: set[int],
    *,
    pads_last: bool = False,
) -> list[str]:
    """Align cells in columns of at least the widths `least`. A column in `grown` is as wide as its
    longest cell."""
    widths = [
        max([width, *(len(row[place]) for row in rows)]) if place in grown else width
        for place, width in enumerate(least)
    ]
    if not pads_last:
        widths[-1] = 0
    return [
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in [heads, *rows]
    ]
