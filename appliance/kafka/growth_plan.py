"""Plans how a cluster of one broker becomes one of three, with its data: the steps that are left.

This module is pure. As for a removal, a growth has no state of its own: the steps that are left
follow from what the cluster reports, and an interrupted growth continues with the same command.
The steps, in order:

1. wait until the new brokers are in service, and let them get replicas;
2. wait until all new voters have the metadata, then make them voters, one after the other. With
   two voters no broker can fail, so the third one must be ready before the second one votes;
3. add replicas to the internal topics, because every consumer and every transaction needs them;
4. add replicas to the other topics;
5. raise `min.insync.replicas` of topics that state a lower value than new topics get. The other
   topics follow the setting of the brokers, which never asks for more replicas than there are;
6. elect the preferred leaders, so that each broker leads its share.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from appliance.kafka.membership_steps import (
    AddReplicas,
    GiveVote,
    MembershipStep,
    RaiseMinIsr,
    SpreadLeaders,
    Uncordon,
    WaitForMetadata,
    WaitForReplicas,
    WaitForService,
)
from appliance.kafka.move_plan import PlanGoal, make_plan
from appliance.kafka.reassign import ClusterReplicas, named_partitions
from appliance.kafka.reassignment_files import Targets
from appliance.output import CommandError, Exit, counted
from protocol.client.quorum_admin import QuorumInfo, QuorumReplica
from protocol.types import TopicPartition, Uuid

BROKERS_MIN = 3
"""The number of brokers of which one can fail."""

CAUGHT_UP_MS = 1_000
"""How long ago, at its last fetch, an observer may have had all metadata (KIP-853: it must have
caught up recently)."""

INTERNAL_PREFIXES = ("__", "millrace.")
"""The beginnings of the names of topics that Kafka's clients or the mill's parts need themselves.
"""


@dataclass(frozen=True)
class GrowthGoal:
    """What the cluster must become.

    `voters` are the brokers that must vote. `factors` and `min_isrs` have the topics that differ
    from the defaults. `topics` are those that get replicas besides the internal ones; None: all.
    """

    voters: tuple[int, ...]
    factors: Mapping[str, int]
    default_factor: int
    min_isrs: Mapping[str, int]
    default_min_isr: int
    topics: frozenset[str] | None = None

    def is_chosen(self, topic: str) -> bool:
        """Return whether a topic gets replicas."""
        return self.topics is None or topic in self.topics or is_internal(topic)

    def factor(self, topic: str) -> int:
        """Return the number of replicas that a topic must have at least."""
        return self.factors.get(topic, self.default_factor)

    def min_isr(self, topic: str) -> int:
        """Return the least value for a `min.insync.replicas` that the topic states itself."""
        wanted = self.min_isrs.get(topic, self.default_min_isr)
        # A topic with as many replicas in sync as it has would take no write while one is away.
        return max(1, min(wanted, self.factor(topic) - 1))


@dataclass(frozen=True)
class GrowthState:
    """What a cluster reports about its growth. `quorum` is None if the cluster has none.

    `stated_min_isr` has the topics that state a `min.insync.replicas` of their own.
    """

    replicas: ClusterReplicas
    cordoned: frozenset[int]
    quorum: QuorumInfo | None
    stated_min_isr: Mapping[str, int]
    goal: GrowthGoal

    @property
    def voting(self) -> frozenset[int]:
        """The ids of the brokers that vote now."""
        return frozenset(one.node_id for one in self.quorum.voters) if self.quorum else frozenset()

    @property
    def newcomers(self) -> list[int]:
        """The brokers that must become voters."""
        return [] if self.quorum is None else sorted(set(self.goal.voters) - self.voting)

    @cached_property
    def targets(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The new replicas of each partition that has too few and gets none yet."""
        racks = {
            one: broker.rack
            for one, broker in sorted(self.replicas.brokers.items())
            if one not in self.cordoned
        }
        short: dict[int, set[str]] = {}
        for tp in self.short:
            short.setdefault(self.goal.factor(tp.topic), set()).add(tp.topic)
        found: dict[TopicPartition, tuple[int, ...]] = {}
        for factor, names in short.items():
            # All partitions of a topic are planned together, so that its leaders are spread also
            # if an earlier run was interrupted. Only partitions that lack replicas change.
            placed = [one for one in self.replicas.placed() if one.tp.topic in names]
            plan = make_plan(placed, PlanGoal(racks, factor=min(factor, len(racks))))
            found |= {tp: to for tp, to in plan.targets.items() if tp in self.short}
        return found

    @cached_property
    def short(self) -> frozenset[TopicPartition]:
        """The partitions that have too few replicas, those that they get included."""
        return frozenset(
            tp
            for tp, one in self.replicas.partitions()
            if self.goal.is_chosen(tp.topic)
            and len(self.replicas.future(tp, one)) < self.goal.factor(tp.topic)
        )


def is_internal(topic: str) -> bool:
    """Return whether clients or parts of the mill need a topic themselves."""
    return topic.startswith(INTERNAL_PREFIXES)


def steps_to_grow(state: GrowthState) -> list[MembershipStep]:
    """Return the steps that are left, in order; empty if the cluster has grown.

    Each step is complete when it is not among them any more. Only the first one can be taken.
    """
    return list(_steps(state))


def _steps(state: GrowthState) -> Iterator[MembershipStep]:
    for node_id in state.goal.voters:
        if node_id not in state.replicas.brokers:
            yield WaitForService(node_id)
        elif node_id in state.cordoned:
            yield Uncordon(node_id)
    yield from _voter_steps(state)
    for what, is_one in (("internal topics", is_internal), ("topics", _is_other)):
        new = {tp: to for tp, to in sorted(state.targets.items()) if is_one(tp.topic)}
        if new:
            yield AddReplicas(new, what)
        waiting = new | {tp: to for tp, to in sorted(_growing(state).items()) if is_one(tp.topic)}
        if waiting:
            yield WaitForReplicas(waiting, what)
    low = _low_min_isr(state)
    if low:
        yield RaiseMinIsr(low)
    led = tuple(
        tp for tp, one in sorted(state.replicas.partitions()) if _is_led_elsewhere(state, tp)
    )
    if led:
        yield SpreadLeaders(led)


def _is_other(topic: str) -> bool:
    return not is_internal(topic)


def _voter_steps(state: GrowthState) -> Iterator[MembershipStep]:
    ready = {one: directory_of_ready(state.quorum, one) for one in state.newcomers}
    for node_id, directory_id in ready.items():
        if directory_id is None:
            yield WaitForMetadata(node_id)
    for node_id, directory_id in ready.items():
        if directory_id is not None:
            yield GiveVote(node_id, directory_id)


def directory_of_ready(quorum: QuorumInfo | None, node_id: int) -> Uuid | None:
    """Return the directory of an observer that has all metadata; None if there is no such one."""
    observer = None if quorum is None else quorum.observer(node_id)
    return observer.directory_id if observer is not None and has_caught_up(observer) else None


def has_caught_up(one: QuorumReplica) -> bool:
    """Return True if the leader of the quorum knows that a replica has had all its records a moment
    ago."""
    if one.fetched_at_ms is None or one.caught_up_at_ms is None:
        return False
    return one.fetched_at_ms - one.caught_up_at_ms <= CAUGHT_UP_MS


def _growing(state: GrowthState) -> Targets:
    """Return the partitions that get replicas now, with all replicas that they will have."""
    found = {}
    for tp, moving in state.replicas.moving.items():
        partition = state.replicas.find(tp)
        if partition is not None and moving.adding and state.goal.is_chosen(tp.topic):
            found[tp] = state.replicas.future(tp, partition)
    return found


def _low_min_isr(state: GrowthState) -> tuple[tuple[str, int], ...]:
    return tuple(
        (topic, state.goal.min_isr(topic))
        for topic, stated in sorted(state.stated_min_isr.items())
        if state.goal.is_chosen(topic) and stated < state.goal.min_isr(topic)
    )


def _is_led_elsewhere(state: GrowthState, tp: TopicPartition) -> bool:
    """Return whether the preferred leader of a partition could lead it, and does not."""
    partition = state.replicas.find(tp)
    if partition is None or not state.goal.is_chosen(tp.topic) or not partition.replicas:
        return False
    preferred = partition.replicas[0]
    return (
        tp not in state.replicas.moving
        and partition.leader_id != preferred
        and preferred in partition.in_sync_replicas
        and preferred in state.replicas.brokers
    )


def refuse_growth(state: GrowthState) -> None:
    """Raise CommandError if the cluster cannot grow: with all reasons, and what to do."""
    faults = [*_refused_voters(state), *_refused_partitions(state)]
    if faults:
        raise CommandError("\n".join(["the cluster cannot grow:", *faults]), Exit.CONDITION)


def _refused_voters(state: GrowthState) -> Iterator[str]:
    if len(state.goal.voters) < BROKERS_MIN:
        known = ", ".join(map(str, state.goal.voters))
        yield (
            f"there are {counted(len(state.goal.voters), 'broker')} ({known}), but a cluster of "
            f"fewer than {BROKERS_MIN} stops when one fails: start more brokers first"
        )
    others = sorted(state.voting - set(state.goal.voters))
    if others:
        yield (
            f"broker {others[0]} is a voter, but the voters must be brokers "
            f"{', '.join(map(str, state.goal.voters))}: run `./millrace broker remove {others[0]}` "
            "first"
        )


def _refused_partitions(state: GrowthState) -> Iterator[str]:
    silent = []
    for tp in sorted(state.short):
        partition = state.replicas.find(tp)
        if partition is None or partition.leader_id not in state.replicas.brokers:
            silent.append(tp)
    if silent:
        yield (
            f"no broker in service leads {named_partitions(silent)}, so they cannot be copied: "
            "start the brokers that have them, or delete these topics"
        )
