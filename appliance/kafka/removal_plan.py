"""Plans how a broker leaves a running cluster: the steps that are left, and why it cannot leave.

This module is pure. A removal has no state of its own. Everything is in the metadata log: the
cordon, the reassignments, the voters, the registration. So the steps that are left follow from
what the cluster reports, and an interrupted removal continues with the same command. The steps, in
order:

1. cordon the broker, so that it gets no new replicas;
2. move its replicas to other brokers, and its leaderships to replicas that are in sync already;
3. wait until it has no replica, neither an old one nor a new one of a reassignment;
4. make another broker a voter in its place, if one can, and remove its vote;
5. stop it;
6. unregister it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from appliance.kafka.membership_steps import (
    Cordon,
    GiveUpLeaders,
    GiveVote,
    StartMoves,
    StopBroker,
    TakeVote,
    Unregister,
    WaitForMoves,
)
from appliance.kafka.move_plan import MovePlan, PlanGoal, make_plan
from appliance.kafka.reassign import NAMED_MAX, ClusterReplicas, named_partitions
from appliance.output import CommandError, Exit, counted
from protocol.client.broker_admin import RegisteredBroker
from protocol.client.quorum_admin import QuorumInfo, QuorumReplica
from protocol.types import TopicPartition


@dataclass(frozen=True)
class RemovalState:
    """What a cluster reports about a broker that must leave it.

    `quorum` is None if the cluster has none. `factors` has the settings for the number of replicas
    of new topics.
    """

    node_id: int
    replicas: ClusterReplicas
    registered: Mapping[int, RegisteredBroker]
    cordoned: frozenset[int]
    quorum: QuorumInfo | None
    factors: Mapping[str, int]

    @property
    def is_in_service(self) -> bool:
        """True if the broker runs and serves clients."""
        return self.node_id in self.replicas.brokers

    @property
    def is_member(self) -> bool:
        """True if the cluster knows the broker in any way."""
        is_known = self.node_id in self.registered or self.is_in_service
        return bool(is_known or self.held or self.vote)

    @property
    def usable(self) -> tuple[int, ...]:
        """The other brokers that can get replicas now."""
        others = set(self.replicas.brokers) - self.cordoned - {self.node_id}
        return tuple(sorted(others))

    @property
    def vote(self) -> QuorumReplica | None:
        """The broker among the voters; None if it does not vote."""
        return None if self.quorum is None else self.quorum.voter(self.node_id)

    @property
    def voters(self) -> tuple[QuorumReplica, ...]:
        """All voters of the metadata quorum."""
        return () if self.quorum is None else self.quorum.voters

    @property
    def successor(self) -> QuorumReplica | None:
        """The observer that can vote in the broker's place; None if there is none.

        A set of an even number of voters survives no more failures than one voter less. So no
        observer is added to such a set, and a removal that was interrupted after the addition adds
        no second one.
        """
        if self.quorum is None or len(self.voters) % 2 == 0:
            return None
        voting = {one.node_id for one in self.voters}
        found = (self.quorum.observer(one) for one in self.usable if one not in voting)
        able = [one for one in found if one is not None and one.directory_id is not None]
        return max(able, key=lambda one: (one.log_end_offset or 0, -one.node_id), default=None)

    @property
    def held(self) -> list[TopicPartition]:
        """The partitions of which the broker has a replica, or gets one."""
        return [tp for tp, one in self.replicas.partitions() if self.node_id in one.replicas]

    @cached_property
    def plan(self) -> MovePlan:
        """The moves that take replicas from this broker, and are not under way."""
        futures = {
            tp: self.replicas.future(tp, one)
            for tp, one in self.replicas.partitions()
            if self.node_id in one.replicas
        }
        staying = {tp for tp, future in futures.items() if self.node_id in future}
        if not staying:
            return MovePlan({}, {}, ())
        racks = {one: self.replicas.brokers[one].rack for one in self.usable}
        # The plan levels all topics. Here only what must move is moved.
        plan = make_plan(self.replicas.placed(), PlanGoal(racks, frozenset({self.node_id})))
        targets = {tp: target for tp, target in plan.targets.items() if tp in staying}
        return MovePlan(targets, plan.refused, ())


RemovalStep = (
    Cordon
    | StartMoves
    | GiveUpLeaders
    | WaitForMoves
    | GiveVote
    | TakeVote
    | StopBroker
    | Unregister
)


def remaining_steps(state: RemovalState) -> list[RemovalStep]:
    """Return the steps that are left, in order; empty if the broker has left the cluster.

    Each step is complete when it is not among them any more. Only the first one can be taken.
    """
    return list(_steps(state))


def _steps(state: RemovalState) -> Iterator[RemovalStep]:
    node_id = state.node_id
    # The settings of a broker are changed by the broker itself. A broker that is away gets no
    # replicas as long as there are enough others.
    if state.is_in_service and node_id not in state.cordoned:
        yield Cordon(node_id)
    targets = dict(state.plan.targets)
    if targets:
        yield StartMoves(targets)
    led = tuple(tp for tp in state.held if _can_give_up(state, tp))
    if led:
        yield GiveUpLeaders(led)
    waiting = {tp: targets.get(tp, _future(state, tp)) for tp in state.held}
    if waiting:
        yield WaitForMoves(waiting)
    yield from _voter_steps(state)
    if state.is_in_service:
        yield StopBroker(node_id)
    if node_id in state.registered or state.is_in_service:
        yield Unregister(node_id)


def _future(state: RemovalState, tp: TopicPartition) -> tuple[int, ...]:
    partition = state.replicas.find(tp)
    assert partition is not None, "the partition is one of these"
    return state.replicas.future(tp, partition)


def _can_give_up(state: RemovalState, tp: TopicPartition) -> bool:
    """Return whether the broker leads a partition whose preferred leader can lead it now."""
    partition = state.replicas.find(tp)
    assert partition is not None, "the partition is one of these"
    preferred = partition.replicas[0]
    return (
        partition.leader_id == state.node_id != preferred
        and preferred in partition.in_sync_replicas
        and preferred in state.replicas.brokers
    )


def _voter_steps(state: RemovalState) -> Iterator[RemovalStep]:
    vote = state.vote
    if vote is None or vote.directory_id is None:
        return
    left = [one.node_id for one in state.voters if one is not vote]
    successor = state.successor
    if successor is not None and successor.directory_id is not None:
        yield GiveVote(successor.node_id, successor.directory_id)
        left.append(successor.node_id)
    yield TakeVote(state.node_id, vote.directory_id, tuple(sorted(left)))


def refuse_removal(state: RemovalState) -> None:
    """Raise CommandError if the broker cannot leave: with all reasons, and what to do."""
    node_id = state.node_id
    if not state.is_member:
        known = ", ".join(map(str, sorted({*state.registered, *state.replicas.brokers})))
        raise CommandError(
            f"there is no broker {node_id}; registered are {known}. If it was removed before, "
            "nothing is left to do in the cluster",
            Exit.NOT_FOUND,
        )
    faults = [*_refused_partitions(state), *_refused_factors(state), *_refused_voters(state)]
    if faults:
        raise CommandError("\n".join([f"broker {node_id} cannot be removed:", *faults]))


def _refused_partitions(state: RemovalState) -> Iterator[str]:
    silent = [tp for tp in state.held if _is_silent(state, tp)]
    if silent:
        start = "" if state.is_in_service else f"start broker {state.node_id}, or "
        yield (
            f"no broker in service has all records of {named_partitions(silent)}, so they cannot "
            f"be copied: {start}delete these topics, or accept the loss of records with "
            "`./millrace elect-leader --type unclean`"
        )
    refused = sorted(state.plan.refused.items())
    yield from (f"{tp}: {why}" for tp, why in refused[:NAMED_MAX])
    if len(refused) > NAMED_MAX:
        yield f"and {len(refused) - NAMED_MAX} more"
    if refused:
        yield (
            "add a broker first, or plan fewer replicas with `./millrace reassign generate --rf`"
        )


def _is_silent(state: RemovalState, tp: TopicPartition) -> bool:
    partition = state.replicas.find(tp)
    assert partition is not None, "the partition is one of these"
    return partition.leader_id not in state.replicas.brokers


def _refused_factors(state: RemovalState) -> Iterator[str]:
    """Yield the settings that new topics could not have without the broker."""
    others = len({*state.registered, *state.replicas.brokers} - state.cordoned - {state.node_id})
    for key, factor in sorted(state.factors.items()):
        if factor > others:
            yield (
                f"{key} is {factor}, and {counted(others, 'broker')} would be left for new "
                "replicas: add a broker first, or lower the setting"
            )


def _refused_voters(state: RemovalState) -> Iterator[str]:
    removal = next((one for one in _voter_steps(state) if isinstance(one, TakeVote)), None)
    if removal is None:
        return
    if not removal.left:
        yield (
            f"broker {state.node_id} is the only voter of the metadata quorum, and there is no "
            "other broker in service that could vote"
        )
        return
    live = [one for one in removal.left if one in state.replicas.brokers]
    if len(live) <= len(removal.left) // 2:
        voters = ", ".join(map(str, removal.left))
        live_text = ", ".join(map(str, live)) or "none"
        yield (
            f"without broker {state.node_id} the voters are brokers {voters}, and those in service "
            f"({live_text}) are no majority: start the others first"
        )


@dataclass(frozen=True, slots=True)
class WayBack:
    """What takes a removal back that has not ended: moves to cancel, and the cordon."""

    cancelled: tuple[TopicPartition, ...]
    is_cordoned: bool
    notes: tuple[str, ...]


def way_back(state: RemovalState) -> WayBack:
    """Return how to take a removal back. Raises CommandError if the broker is away or has left."""
    node_id = state.node_id
    if not state.is_in_service:
        if node_id not in state.registered:
            raise CommandError(
                f"broker {node_id} is not registered, so there is no removal to undo. To add it "
                "again, start it with an empty folder",
                Exit.NOT_FOUND,
            )
        raise CommandError(
            f"broker {node_id} is not in service: start it, and then run the same command again",
            Exit.CONDITION,
        )
    cancelled = tuple(
        tp for tp, moving in sorted(state.replicas.moving.items()) if node_id in moving.removing
    )
    notes = [
        "replicas that have moved already stay where they are: "
        f"`./millrace reassign generate --add {node_id}` plans to move some back"
    ]
    if state.quorum is not None and state.vote is None:
        notes.append(
            f"broker {node_id} is no longer a voter of the metadata quorum, and this command does "
            "not make it one again"
        )
    return WayBack(cancelled, node_id in state.cordoned, tuple(notes))
