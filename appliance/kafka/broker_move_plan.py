"""Plans how a broker moves with its data to another folder or to other ports: the steps that are
left.

This module is pure. As for a removal, there is no state of its own: the steps that are left follow
from what the cluster reports and from where the broker's folder is. So an interrupted move
continues with the same command. The steps, in order:

1. stop the broker in an orderly way, so that its leaderships move first and its folder is whole;
2. move the folder;
3. start the broker at its new place. Its folder can be an old copy as far as the cluster knows, so
   it votes only when it has caught up (decision 0220);
4. wait until all its replicas are in sync;
5. wait until the voters' record has the new address, so that voters find it that no file names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance.kafka.disk_plan import DiskState
from appliance.kafka.growth_plan import has_caught_up
from appliance.kafka.membership_steps import (
    MembershipStep,
    MoveFolder,
    StartMoved,
    StopBroker,
    WaitForAddress,
    WaitForReplicas,
)
from appliance.kafka.reassign import named_partitions
from appliance.output import CommandError, Exit


@dataclass(frozen=True, slots=True)
class MovePlace:
    """What this machine knows of a broker that moves."""

    address: str
    """The address at which other brokers will reach it, as `host:port`."""
    runs: bool
    """True if its process runs, at the old place or at the new one."""
    folder: tuple[Path, Path] | None = None
    """The present and the future place of its folder; None if the folder is where it will be."""
    has_new_ports: bool = False
    """True if the file has other ports for it than those with which the mill runs."""

    @property
    def must_move(self) -> bool:
        """True if the broker is not at its new place yet."""
        return self.has_new_ports or self.folder is not None


def steps_to_move(state: DiskState, place: MovePlace) -> list[MembershipStep]:
    """Return the steps that are left, in order; empty if the broker works at its place."""
    return list(_steps(state, place))


def _steps(state: DiskState, place: MovePlace) -> Iterator[MembershipStep]:
    node_id = state.node_id
    if place.must_move:
        if place.runs:
            yield StopBroker(node_id)
        if place.folder is not None:
            yield MoveFolder(node_id, *place.folder)
    is_away = place.must_move or not state.is_in_service
    if is_away:
        yield StartMoved(node_id, place.address)
    to_copy = (
        {tp: one.replicas for tp, one in state.held.items() if state.sources[tp]}
        if is_away
        else state.to_copy
    )
    if to_copy:
        yield WaitForReplicas(to_copy, f"broker {node_id}")
    if state.vote is not None and (place.has_new_ports or not is_recorded(state, place.address)):
        yield WaitForAddress(node_id, place.address)


def is_recorded(state: DiskState, address: str) -> bool:
    """Return True if the leader of the quorum names this address for the broker."""
    endpoints = () if state.quorum is None else state.quorum.endpoints.get(state.node_id, ())
    return any(one.rpartition("://")[2] == address for one in endpoints)


def refuse_move(state: DiskState) -> None:
    """Raise CommandError if the broker cannot stop for a move now: with all reasons."""
    node_id = state.node_id
    if node_id not in state.registered:
        known = ", ".join(map(str, sorted(state.registered)))
        raise CommandError(f"there is no broker {node_id}; registered are {known}", Exit.NOT_FOUND)
    faults = [*_refused_voters(state), *_refused_partitions(state)]
    if faults:
        text = "\n".join([f"broker {node_id} cannot move now:", *faults])
        raise CommandError(text, Exit.CONDITION)


def _refused_voters(state: DiskState) -> Iterator[str]:
    """A broker that moves votes only when it has caught up, so the others must be a majority."""
    if state.vote is None:
        return
    others = [one for one in state.voters if one is not state.vote]
    ready = [
        one.node_id
        for one in others
        if one.node_id in state.replicas.brokers and has_caught_up(one)
    ]
    if len(ready) <= len(state.voters) // 2:
        yield (
            f"of the other voters {', '.join(str(one.node_id) for one in others) or '(none)'}, "
            f"{', '.join(map(str, ready)) or 'none'} have all metadata, which is no majority: only "
            "a minority of the voters can move at a time, so start the others first"
        )


def _refused_partitions(state: DiskState) -> Iterator[str]:
    if state.silent:
        yield (
            f"no other broker in service has all records of {named_partitions(state.silent)}: "
            "wait until the replicas there are in sync"
        )
