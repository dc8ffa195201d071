"""The plan for each change that a user requests on the page.

This module is pure. An *order* is the user's request. A plan says what the order would change in
the cluster as it was read a moment ago, or why the order is refused. `basis` holds all values that
the plan depends on. If `basis` has changed when the user confirms, nothing is done and the page
shows the new plan. So the plan that is carried out is exactly the plan that was shown, with the
same offsets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from monitor.admin.orders import (
    AlterTopic,
    CreateTopic,
    DeleteRecords,
    ElectLeaders,
    Order,
    ResetOffsets,
    subject_of,
)
from protocol.client.group_offset_reset import (
    Bounds,
    NothingCommitted,
    To,
    new_offset,
    why_it_stays,
)
from protocol.types import TopicPartition

POSITIONS_TOPIC = "millrace.positions"
"""The topic of the collector's positions. A trust group of collectors has the topic
`millrace.positions.<group>` instead. Without these records the collectors would send lines twice.
"""

STAYS = "–"


@dataclass(frozen=True, slots=True)
class Effect:
    """One change: the changed thing, its value before, and its value after."""

    what: str
    before: str
    after: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of an order. A plan with a `refusal` is not carried out."""

    order: Order
    says: str
    effects: tuple[Effect, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: str | None = None
    basis: tuple[object, ...] = ()
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The new offsets: where each log will start, or where the group will continue."""

    @property
    def subject(self) -> str:
        """The topic's or group's name, which the user must type to confirm."""
        return subject_of(self.order)


def creation(order: CreateTopic, refused: str | None) -> Plan:
    """Plan a new topic.

    `refused` is the reason with which the controller refused a validation; else None.
    """
    spec = order.spec
    effects = (
        Effect("partitions", STAYS, _or_default(spec.partitions)),
        Effect("replicas", STAYS, _or_default(spec.replication)),
        *(Effect(key, STAYS, value) for key, value in sorted(spec.settings.items())),
    )
    return Plan(
        order,
        f"Creates the topic {spec.name}",
        effects,
        refusal=_kept(spec.name) or refused,
    )


def _or_default(count: int | None) -> str:
    return "the cluster's default" if count is None else str(count)


def _kept(topic: str) -> str | None:
    if topic == POSITIONS_TOPIC or topic.startswith(f"{POSITIONS_TOPIC}."):
        return f"{topic} holds the collector's positions, so it cannot be changed here"
    if topic.startswith("__"):
        return f"{topic} belongs to the brokers, so it cannot be changed here"
    return None


def alteration(
    order: AlterTopic,
    partitions: int | None,
    current: Mapping[str, tuple[str | None, str]],
    refused: str | None,
) -> Plan:
    """Plan new settings for a topic.

    `current` holds values and their sources; `partitions` is None if the topic does not exist.
    `refused` is the controller's answer to a validation.
    """
    effects: list[Effect] = []
    warnings: list[str] = []
    refusal = _kept(order.topic)
    if partitions is None:
        refusal = refusal or f"topic {order.topic!r} does not exist"
    if order.partitions is not None and partitions is not None:
        effects.append(Effect("partitions", str(partitions), str(order.partitions)))
        warnings.append(
            "After the change keys go to other partitions, so older and newer lines of one key"
            " are in no order. The number of partitions cannot be lowered again."
        )
        if order.partitions <= partitions:
            refusal = refusal or f"the topic has {partitions} partitions, expected a higher number"
    for key, value in sorted(order.changes.items()):
        known, source = current.get(key, (None, ""))
        after = "its default" if value is None else value
        before = "not known" if known is None else f"{known} ({source})" if source else known
        effects.append(Effect(key, before, after))
    return Plan(
        order,
        f"Changes the topic {order.topic}",
        tuple(effects),
        tuple(warnings),
        refusal or refused,
        (partitions, tuple(sorted((key, current.get(key)) for key in order.changes))),
    )


@dataclass(frozen=True, slots=True)
class TopicLogs:
    """A topic's logs as they were read: the start and end of each; None if the topic does not
    exist.

    `at_time` is the first offset since the requested moment, by partition.
    """

    bounds: Mapping[int, Bounds] | None
    is_compacted: bool = False
    errors: tuple[str, ...] = ()


def deletion(
    order: DeleteRecords, logs: TopicLogs, readers: Iterable[tuple[str, int, int]]
) -> Plan:
    """Plan the deletion of records below offsets; `readers` holds (group, partition, committed
    offset).
    """
    says = f"Deletes records of {order.topic} for good"
    if refusal := _kept(order.topic):
        return Plan(order, says, refusal=refusal)
    if logs.bounds is None:
        return Plan(order, says, refusal=f"topic {order.topic!r} does not exist")
    wanted = sorted(logs.bounds) if order.partitions is None else order.partitions
    if missing := [number for number in wanted if number not in logs.bounds]:
        return Plan(order, says, refusal=f"{order.topic} has no partition {missing[0]}")
    if logs.errors:
        return Plan(order, says, refusal="; ".join(logs.errors))
    if order.below.to in (To.CURRENT, To.SHIFT):
        return Plan(order, says, refusal="below: expected end, an offset or a time")
    notes: list[str] = []
    offsets: dict[TopicPartition, int] = {}
    effects: list[Effect] = []
    for number in wanted:
        row, bounds = TopicPartition(order.topic, number), logs.bounds[number]
        offset = new_offset(row, order.below, bounds, notes.append)
        if offset <= bounds.start:
            continue
        offsets[row] = offset
        before, after = f"begins at {bounds.start:,}", f"begins at {offset:,}"
        effects.append(
            Effect(str(row), before, after, f"{offset - bounds.start:,} offsets are deleted")
        )
    refusal = None
    if logs.is_compacted:
        refusal = f"{order.topic} is compacted: its records are deleted by tombstones alone"
    elif not offsets:
        refusal = "no partition has records below this, so nothing would be deleted"
    return Plan(
        order,
        says,
        tuple(effects),
        (*map(str.strip, notes), *_unread(readers, offsets, order.topic)),
        refusal,
        (logs.is_compacted,),
        offsets,
    )


def _unread(
    readers: Iterable[tuple[str, int, int]], offsets: Mapping[TopicPartition, int], topic: str
) -> list[str]:
    lost: dict[str, int] = {}
    for group_id, partition, commit in readers:
        below = offsets.get(TopicPartition(topic, partition), 0)
        if commit < below:
            lost[group_id] = lost.get(group_id, 0) + below - commit
    return [
        f"The group {group_id} has not read up to {count:,} of these offsets."
        for group_id, count in sorted(lost.items())
    ]


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """A group as its coordinator describes it, with the offsets of each partition.

    `fault` is the reason why the partitions could not be found.
    """

    state: str
    members: tuple[str, ...]
    bounds: Mapping[TopicPartition, Bounds]
    fault: str | None = None


def resetting(order: ResetOffsets, standing: GroupStanding, stream_group: str) -> Plan:
    """Plan new offsets of a group.

    A group with members, and the stream's own group, are refused.
    """
    says = f"Resets the offsets of the group {order.group_id}"
    basis = (
        standing.state,
        tuple(sorted((row, one.current) for row, one in standing.bounds.items())),
    )
    refusal = standing.fault
    if order.group_id == stream_group:
        refusal = (
            "the stream continues at the offsets that it stores with its counts, and this group"
            " only shows them: use `millrace stream recount` to count lines again"
        )
    elif (why := why_it_stays(order.group_id, standing.state)) is not None:
        shown = ", ".join(standing.members[:5]) or "not named"
        refusal = (
            f"{why} Stop its members first, because each would overwrite the offsets: {shown}."
        )
    elif refusal is None and not standing.bounds:
        refusal = f"the group {order.group_id!r} has no committed offset; name the topics"
    if refusal is not None:
        return Plan(order, says, refusal=refusal, basis=basis)
    notes: list[str] = []
    offsets: dict[TopicPartition, int] = {}
    try:
        for row, bounds in sorted(standing.bounds.items()):
            offsets[row] = new_offset(row, order.target, bounds, notes.append)
    except NothingCommitted as error:
        return Plan(order, says, refusal=str(error), basis=basis)
    effects = tuple(
        _moved(row, standing.bounds[row].current, offset) for row, offset in offsets.items()
    )
    return Plan(order, says, effects, tuple(map(str.strip, notes)), None, basis, offsets)


def _moved(row: TopicPartition, current: int | None, offset: int) -> Effect:
    before = "nothing committed" if current is None else f"{current:,}"
    if current is None or current == offset:
        return Effect(str(row), before, f"{offset:,}", "" if current is None else "stays")
    distance = abs(offset - current)
    word = "skipped" if offset > current else "read again"
    return Effect(str(row), before, f"{offset:,}", f"{distance:,} offsets {word}")


@dataclass(frozen=True, slots=True)
class Led:
    """One partition: its leader (None without one), its replicas in order, and its in-sync
    replicas."""

    row: TopicPartition
    leader: int | None
    replicas: Sequence[int]
    in_sync: Sequence[int]


def election(order: ElectLeaders, found: Sequence[Led] | None) -> Plan:
    """Plan an election of preferred replicas as leaders; `found` is None if the topic does not
    exist.
    """
    says = f"Elects the preferred replicas of {subject_of(order)} as leaders"
    if found is None:
        return Plan(order, says, refusal=f"topic {order.topic!r} does not exist")
    effects: list[Effect] = []
    warnings: list[str] = []
    for one in found:
        preferred = one.replicas[0] if one.replicas else None
        if preferred is None or one.leader == preferred:
            continue
        if preferred not in one.in_sync:
            warnings.append(f"{one.row} stays: its preferred broker {preferred} is not in sync.")
            continue
        before = "no broker leads" if one.leader is None else f"broker {one.leader} leads"
        effects.append(Effect(str(one.row), before, f"broker {preferred} leads"))
    refusal = (
        None
        if effects
        else "nothing to elect: each preferred replica that is in sync leads already"
    )
    basis = tuple((effect.what, effect.before, effect.after) for effect in effects)
    return Plan(order, says, tuple(effects), tuple(warnings), refusal, basis)


def rows_of(plan: Plan) -> list[TopicPartition]:
    """Return the partitions whose leaders an election plan changes."""
    found = []
    for effect in plan.effects:
        topic, _, number = effect.what.rpartition("-")
        found.append(TopicPartition(topic, int(number)))
    return found
