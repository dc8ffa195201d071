"""Makes a broker that has started a full member of its cluster: it gets replicas, and can vote.

`steps_to_add` is pure. As for a removal, the steps that are left follow from what the cluster
reports, and each of them can be repeated.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from appliance.kafka import reassign
from appliance.kafka.removal import ALREADY_DONE, TRIES_MAX, quorum_of, uncordon
from appliance.kafka.removal_plan import GiveVote
from protocol.client.broker_admin import registered_brokers
from protocol.client.cluster import Cluster
from protocol.client.quorum_admin import QuorumInfo, add_voter
from protocol.errors import ApiError


@dataclass(frozen=True, slots=True)
class AdditionState:
    """What a cluster reports about a broker that joins it. `quorum` is None if there is none."""

    node_id: int
    registered: frozenset[int]
    is_in_service: bool
    is_cordoned: bool
    quorum: QuorumInfo | None

    @property
    def voters(self) -> frozenset[int]:
        """The ids of all voters."""
        return frozenset(one.node_id for one in self.quorum.voters) if self.quorum else frozenset()


@dataclass(frozen=True, slots=True)
class WaitForService:
    """Wait until the broker has the cluster's metadata and serves clients."""

    node_id: int

    def __str__(self) -> str:
        return f"wait until broker {self.node_id} is in service"


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Let the broker get new replicas. An id that was removed comes back cordoned."""

    node_id: int

    def __str__(self) -> str:
        return f"let broker {self.node_id} get new replicas"


@dataclass(frozen=True, slots=True)
class WaitForMetadata:
    """Wait until the leader of the quorum knows the broker as an observer."""

    node_id: int

    def __str__(self) -> str:
        return f"wait until the quorum observes broker {self.node_id}"


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
        observed = [one.directory_id for one in state.quorum.observers if one.node_id == node_id]
        directory_id = next((one for one in observed if one is not None), None)
        steps.append(
            WaitForMetadata(node_id) if directory_id is None else GiveVote(node_id, directory_id)
        )
    return steps


async def look(cluster: Cluster, node_id: int) -> AdditionState:
    """Ask for the state of the cluster. Raises ApiError and ClientError."""
    current = await cluster.metadata((), refresh=True)
    is_in_service = node_id in current.brokers
    return AdditionState(
        node_id,
        frozenset(await registered_brokers(cluster)),
        is_in_service,
        is_in_service and bool(await reassign.cordoned(cluster, [node_id])),
        await quorum_of(cluster),
    )


async def add(
    cluster: Cluster,
    node_id: int,
    *,
    votes: bool,
    on_step: Callable[[AdditionStep], None],
    on_wait: Callable[[AdditionStep], None],
) -> None:
    """Take the steps until the broker is a full member.

    `on_step` gets each step before it is taken, `on_wait` a step that waits. Raises ApiError
    and ClientError.
    """
    last: AdditionStep | None = None
    tries = 0
    while steps := steps_to_add(await look(cluster, node_id), votes=votes):
        step = steps[0]
        if step == last:
            on_wait(step)
            await asyncio.sleep(reassign.POLL_S)
        else:
            on_step(step)
            tries = 0
        last = step
        try:
            await _take(cluster, step)
        except ApiError as error:
            tries += 1
            is_done = error.code in ALREADY_DONE
            # An observer that is behind by more than a second is refused for a moment.
            if not is_done and (not isinstance(step, GiveVote) or tries == TRIES_MAX):
                raise


async def _take(cluster: Cluster, step: AdditionStep) -> None:
    match step:
        case Uncordon(node_id):
            await uncordon(cluster, node_id)
        case GiveVote(node_id, directory_id):
            await add_voter(cluster, node_id, directory_id)
        case WaitForService() | WaitForMetadata():
            pass
