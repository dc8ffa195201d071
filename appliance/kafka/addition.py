"""Makes a broker that has started a full member of its cluster: it gets replicas, and can vote.

`steps_to_add` is pure. As for a removal, the steps that are left follow from what the cluster
reports, and each of them can be repeated.
"""

from collections.abc import Callable
from dataclasses import dataclass

from appliance.kafka import reassign
from appliance.kafka.membership import StepTaker, quorum_of
from appliance.kafka.membership_steps import (
    GiveVote,
    MembershipStep,
    Uncordon,
    WaitForMetadata,
    WaitForService,
)
from appliance.kafka.reassign import ClusterReplicas
from protocol.client.broker_admin import registered_brokers
from protocol.client.cluster import Cluster
from protocol.client.quorum_admin import QuorumInfo
from protocol.copy_progress import CopyEstimate


@dataclass(frozen=True, slots=True)
class AdditionState:
    """What a cluster reports about a broker that joins it. `quorum` is None if there is none."""

    node_id: int
    replicas: ClusterReplicas
    registered: frozenset[int]
    is_cordoned: bool
    quorum: QuorumInfo | None

    @property
    def is_in_service(self) -> bool:
        """True if the broker runs and serves clients."""
        return self.node_id in self.replicas.brokers

    @property
    def voters(self) -> frozenset[int]:
        """The ids of all voters."""
        return frozenset(one.node_id for one in self.quorum.voters) if self.quorum else frozenset()


AdditionStep = WaitForService | Uncordon | WaitForMetadata | GiveVote


def steps_to_add(state: AdditionState, *, votes: bool) -> list[AdditionStep]:
    """Return the steps that are left, in order; empty if the broker is a full member.

    A step of voters can only be planned when the quorum observes the broker.
    """
    node_id = state.node_id
    steps: list[AdditionStep] = []
    if not state.is_in_service:
        steps.append(WaitForService(node_id))
    elif state.is_cordoned:
        steps.append(Uncordon(node_id))
    if votes and state.quorum is not None and node_id not in state.voters:
        observer = state.quorum.observer(node_id)
        directory_id = None if observer is None else observer.directory_id
        steps.append(
            WaitForMetadata(node_id) if directory_id is None else GiveVote(node_id, directory_id)
        )
    return steps


async def look(cluster: Cluster, node_id: int) -> AdditionState:
    """Ask for the state of the cluster. Raises ApiError and ClientError."""
    replicas = await reassign.look(cluster, ())
    is_in_service = node_id in replicas.brokers
    return AdditionState(
        node_id,
        replicas,
        frozenset(await registered_brokers(cluster)),
        is_in_service and bool(await reassign.cordoned(cluster, [node_id])),
        await quorum_of(cluster),
    )


async def add(
    cluster: Cluster,
    node_id: int,
    *,
    votes: bool,
    on_step: Callable[[MembershipStep], None],
    on_wait: Callable[[MembershipStep, CopyEstimate | None], None],
) -> None:
    """Take the steps until the broker is a full member. The callbacks are those of `StepTaker`.

    Raises ApiError and ClientError.
    """
    taker = StepTaker(on_step, on_wait)
    while True:
        state = await look(cluster, node_id)
        steps = steps_to_add(state, votes=votes)
        if not steps:
            return
        await taker.take(cluster, state.replicas, steps[0])
