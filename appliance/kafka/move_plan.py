"""Plans the smallest reassignment of replicas: which partitions get which brokers.

This module is pure. A plan moves a replica only if its broker must be emptied, if the partition is
on fewer racks than possible, or if the brokers have unequal numbers of replicas.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from appliance.kafka.rack_loads import overloads
from broker.controller.levelling import Levelling, Shift
from protocol.types import TopicPartition

COPY_COST = 1_000
"""The cost of one replica that must be copied. A change of the preferred leader costs 1."""

REPEATS_MAX = 5
"""How often a plan is made again from its own result, at most."""

Racks = Mapping[int, str | None]


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """A partition with its present replicas, or with the replicas after the reassignment in
    progress."""

    tp: TopicPartition
    replicas: tuple[int, ...]
    in_sync: frozenset[int]


@dataclass(frozen=True, slots=True)
class PlanGoal:
    """The brokers that can get replicas, with their racks, and those that must be emptied. Others,
    which can be cordoned or out of service, keep their replicas and get no new ones."""

    usable: Racks
    leaving: frozenset[int] = frozenset()
    factor: int | None = None
    """The number of replicas of each partition; None to keep the present number."""


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The new replicas of each partition that changes, and the partitions for which there are too
    few brokers."""

    targets: Mapping[TopicPartition, tuple[int, ...]]
    refused: Mapping[TopicPartition, str]
    notes: Sequence[str]


def make_plan(partitions: Sequence[PlacedPartition], goal: PlanGoal) -> MovePlan:
    """Return the smallest plan that reaches the goal.

    Within each topic the brokers get equal numbers of replicas and of preferred leaders, as far as
    the racks allow. The same holds for all topics together.

    With racks the search can miss moves that it finds from its own result. So it is repeated from
    there, until it has no moves.
    """
    plan = _plan_once(partitions, goal)
    targets = dict(plan.targets)
    for _ in range(REPEATS_MAX):
        moved = [_moved(one, targets.get(one.tp)) for one in partitions]
        further = _plan_once(moved, goal)
        if not further.targets:
            break
        targets |= further.targets
        plan = further
    before = {one.tp: one.replicas for one in partitions}
    kept = {tp: members for tp, members in targets.items() if members != before[tp]}
    return MovePlan(kept, plan.refused, plan.notes)


def _moved(one: PlacedPartition, members: tuple[int, ...] | None) -> PlacedPartition:
    """Return a partition as it is after its move."""
    return one if members is None else PlacedPartition(one.tp, members, frozenset(members))


def _plan_once(partitions: Sequence[PlacedPartition], goal: PlanGoal) -> MovePlan:
    drafts: dict[str, list[_Draft]] = {}
    refused: dict[TopicPartition, str] = {}
    total = Counter[int]()
    for partition in sorted(partitions, key=lambda one: one.tp):
        draft = _Draft(partition, list(partition.replicas))
        why = _Filling(draft, goal, drafts.get(draft.tp.topic, ()), total).fill()
        if why is not None:
            refused[draft.tp] = why
            continue
        drafts.setdefault(draft.tp.topic, []).append(draft)
        total.update(draft.members)
    everything = [draft for of_topic in drafts.values() for draft in of_topic]
    before: list[tuple[int, ...]] | None = None
    is_first = True
    # The first round finds the cheapest shifts, and later rounds find further ones. A change for
    # all topics together can make it possible to level one topic more.
    while is_first or before != [tuple(draft.members) for draft in everything]:
        before = None if is_first else [tuple(draft.members) for draft in everything]
        for shifts in (_ReplicaShifts(goal), _LeaderShifts(goal)):
            _level(drafts, goal.usable, shifts, is_first=is_first)
        is_first = False
    return MovePlan(
        {
            draft.tp: tuple(draft.members)
            for of_topic in drafts.values()
            for draft in of_topic
            if tuple(draft.members) != draft.before.replicas
        },
        refused,
        [
            note
            for topic, of_topic in drafts.items()
            for note in overloads(topic, [one.members for one in of_topic], goal.usable)
        ],
    )


@dataclass(slots=True)
class _Draft:
    """The future replicas of one partition, the preferred leader first."""

    before: PlacedPartition
    members: list[int]
    copied: frozenset[int] = field(init=False)
    """The brokers that have the partition's records, so that a replica there costs no copy."""

    def __post_init__(self) -> None:
        self.copied = frozenset(self.before.replicas) & (
            self.before.in_sync or frozenset(self.before.replicas)
        )

    @property
    def tp(self) -> TopicPartition:
        return self.before.tp


class _Filling:
    """Changes the replicas of one partition until it has the required number, on brokers that may
    have them."""

    def __init__(
        self, draft: _Draft, goal: PlanGoal, others: Iterable[_Draft], total: Counter[int]
    ) -> None:
        self._draft = draft
        self._goal = goal
        self._of_topic = Counter(broker for other in others for broker in other.members)
        self._total = total

    def fill(self) -> str | None:
        """Change the draft. Return the reason if there are too few brokers."""
        members, goal = self._draft.members, self._goal
        factor = len(members) if goal.factor is None else goal.factor
        for broker in [one for one in members if one in goal.leaving]:
            if len(members) > factor:
                members.remove(broker)
                continue
            target = self._target(broker)
            if target is None:
                return self._why_not(factor)
            members[members.index(broker)] = target
        while len(members) > factor:
            members.remove(self._least_useful())
        while len(members) < factor:
            target = self._target(None)
            if target is None:
                return self._why_not(factor)
            members.append(target)
        self._use_more_racks()
        return None

    def _target(self, instead_of: int | None) -> int | None:
        members = [one for one in self._draft.members if one != instead_of]
        free = [one for one in self._goal.usable if one not in self._draft.members]
        return min(free, key=lambda one: self._target_key(one, members), default=None)

    def _target_key(self, one: int, members: Sequence[int]) -> tuple[int, ...]:
        racks = self._goal.usable
        beside = sum(other in racks and racks[other] == racks[one] for other in members)
        is_copied = one in self._draft.copied
        return beside, not is_copied, self._of_topic[one], self._total[one], one

    def _least_useful(self) -> int:
        """Return the replica to drop: not in sync, on a rack with two replicas, or on a busy
        broker.

        The preferred leader is dropped last.
        """
        members, racks = self._draft.members, self._goal.usable
        used = Counter(racks.get(one) for one in members)
        in_sync = self._draft.before.in_sync

        def key(one: int) -> tuple[int, ...]:
            is_doubled = one in racks and used[racks[one]] > 1
            return (
                one in in_sync,
                one == members[0],
                not is_doubled,
                -self._of_topic[one],
                -self._total[one],
                one,
            )

        return min(members, key=key)

    def _use_more_racks(self) -> None:
        """Move replicas from racks with two replicas of the partition to racks without one."""
        members, racks = self._draft.members, self._goal.usable
        while True:
            used = Counter(racks[one] for one in members if one in racks)
            doubled = [one for one in members if one in racks and used[racks[one]] > 1]
            free = [one for one in racks if one not in members and racks[one] not in used]
            if not doubled or not free:
                return
            # The preferred leader stays if another replica can move.
            source = max(doubled, key=lambda one: (members.index(one) > 0, self._total[one], one))
            target = min(free, key=lambda one: self._target_key(one, members))
            members[members.index(source)] = target

    def _why_not(self, factor: int) -> str:
        usable = ", ".join(map(str, sorted(self._goal.usable))) or "none"
        text = f"{factor} replicas need {factor} brokers, and the plan can use {usable}"
        gone = sorted(set(self._draft.before.replicas) & self._goal.leaving)
        return f"{text}; no broker can take the replica of {gone[0]}" if gone else text


class _ReplicaShifts:
    """The possible shifts of replicas between brokers, for `Levelling`."""

    def __init__(self, goal: PlanGoal) -> None:
        self._racks = goal.usable
        self._rack_count = len(set(goal.usable.values()))

    def held(self, draft: _Draft) -> Sequence[int]:
        """Return the brokers that have a replica of this partition."""
        return draft.members

    def of(self, draft: _Draft) -> Iterator[Shift]:
        """Yield the possible shifts of the replicas of one partition."""
        members, racks = draft.members, self._racks
        used = self._used(members)
        for source in members:
            if source not in racks:
                continue
            for target in racks:
                if target not in members and self._keeps_racks(used, len(members), source, target):
                    copies = (target not in draft.copied) - (source not in draft.copied)
                    yield source, target, COPY_COST * copies + (source == members[0])

    def shift(self, draft: _Draft, source: int, target: int) -> None:
        """Move one replica."""
        draft.members[draft.members.index(source)] = target

    def can_repeat(self, draft: _Draft) -> bool:
        """Return True if there are no racks, because then the shifts of one partition to different
        brokers do not depend on each other."""
        return self._rack_count == 1

    def _used(self, members: Sequence[int]) -> Counter[str | None]:
        return Counter(self._racks[one] for one in members if one in self._racks)

    def _keeps_racks(self, used: Counter[str | None], count: int, source: int, target: int) -> bool:
        """Return True if the shift of one of `count` replicas uses no fewer racks, and fills no
        rack beyond the fullest one or an equal share. `used` has the replicas on each rack."""
        left, filled = self._racks[source], self._racks[target]
        if left == filled:
            return True
        is_lost = used[left] == 1 and used[filled] > 0
        share = -(-count // self._rack_count)
        return not is_lost and used[filled] < max(*used.values(), share)


class _LeaderShifts:
    """The possible shifts of preferred leaderships between the replicas of a partition, for
    `Levelling`."""

    def __init__(self, goal: PlanGoal) -> None:
        self._racks = goal.usable

    def held(self, draft: _Draft) -> Sequence[int]:
        """Return the broker that has the preferred leadership of this partition."""
        return draft.members[:1]

    def of(self, draft: _Draft) -> Iterator[Shift]:
        """Yield the possible shifts of the preferred leadership of one partition."""
        first, was = draft.members[0], draft.before.replicas[0]
        if first in self._racks:
            for target in draft.members[1:]:
                if target in self._racks:
                    yield first, target, (target != was) - (first != was)

    def shift(self, draft: _Draft, source: int, target: int) -> None:
        """Make another replica the preferred leader."""
        draft.members.remove(target)
        draft.members.insert(0, target)

    def can_repeat(self, draft: _Draft) -> bool:
        """Return False: a partition has one preferred leader."""
        return False


def _level(
    drafts: Mapping[str, Sequence[_Draft]],
    usable: Racks,
    shifts: _ReplicaShifts | _LeaderShifts,
    *,
    is_first: bool,
) -> None:
    """Level the brokers within each topic, and then over all topics together without making a topic
    less level.

    In the first round, a shift that makes a planned copy unnecessary has a negative cost, so that
    each topic is levelled with the fewest copies. In later rounds such a shift costs nothing,
    because a cycle of shifts with a negative total cost would be possible.
    """
    total = dict.fromkeys(usable, 0)
    loads: dict[str, dict[int, int]] = {}
    for topic, of_topic in drafts.items():
        own = loads[topic] = dict.fromkeys(usable, 0)
        for draft in of_topic:
            for broker in shifts.held(draft):
                if broker in own:
                    own[broker] += 1
                    total[broker] += 1
    for topic, of_topic in drafts.items():
        before = dict(loads[topic])
        _run(of_topic, loads[topic], shifts, total, is_first=is_first)
        for broker, load in loads[topic].items():
            total[broker] += load - before[broker]
    if len(drafts) > 1:
        _level_total(drafts, loads, total, shifts)


def _run(
    of_topic: Sequence[_Draft],
    loads: dict[int, int],
    shifts: _ReplicaShifts | _LeaderShifts,
    total: Mapping[int, int],
    *,
    is_first: bool,
) -> None:
    def shifts_of(number: int) -> Iterator[Shift]:
        for source, target, cost in shifts.of(of_topic[number]):
            yield source, target, cost if is_first else max(cost, 0)

    def shift(number: int, source: int, target: int) -> None:
        shifts.shift(of_topic[number], source, target)

    def can_repeat(number: int) -> bool:
        return shifts.can_repeat(of_topic[number])

    if not loads:
        return
    levelling = Levelling(
        *(loads, shifts_of, shift),
        tie=lambda one: total[one],
        can_repeat=can_repeat,
        is_strict=is_first,
    )
    for number in range(len(of_topic)):
        levelling.add(number)
    levelling.level()


def _level_total(
    drafts: Mapping[str, Sequence[_Draft]],
    loads: Mapping[str, dict[int, int]],
    total: dict[int, int],
    shifts: _ReplicaShifts | _LeaderShifts,
) -> None:
    Item = tuple[str, int]
    items: dict[str, list[Item]] = {
        topic: [(topic, number) for number in range(len(of_topic))]
        for topic, of_topic in drafts.items()
    }

    def shifts_of(item: Item) -> Iterator[Shift]:
        topic, number = item
        own = loads[topic]
        for source, target, cost in shifts.of(drafts[topic][number]):
            if own[source] > own[target]:
                yield source, target, max(cost, 0)

    def shift(item: Item, source: int, target: int) -> None:
        topic, number = item
        shifts.shift(drafts[topic][number], source, target)
        loads[topic][source] -= 1
        loads[topic][target] += 1

    if not total:
        return
    levelling = Levelling(total, shifts_of, shift, changed_with=lambda item: items[item[0]])
    for of_topic in items.values():
        for item in of_topic:
            levelling.add(item)
    levelling.level()
