"""Takes the steps that change which brokers belong to a cluster, and asks what the plans need.

Every step can be repeated: what was done already changes nothing. So a broker that answers with
metadata that are behind does no harm.
"""

import asyncio
from collections.abc import Callable, Mapping

from appliance.kafka import reassign
from appliance.kafka.membership_steps import (
    AddReplicas,
    Cordon,
    GiveUpLeaders,
    GiveVote,
    MembershipStep,
    MoveFolder,
    RaiseMinIsr,
    SpreadLeaders,
    StartBroker,
    StartMoved,
    StartMoves,
    StopBroker,
    TakeVote,
    Uncordon,
    Unregister,
    WaitForAddress,
    WaitForMetadata,
    WaitForMoves,
    WaitForReplicas,
    WaitForService,
)
from appliance.kafka.reassign import CORDON, ClusterReplicas
from appliance.kafka.reassignment_files import Targets
from appliance.kafka.replica_copies import CopyWatch
from appliance.kafka.throttles import plan_throttle, set_throttle
from appliance.kafka.topics import MIN_ISR
from protocol.client.admin_types import ConfigResource
from protocol.client.broker_admin import unregister_broker
from protocol.client.cluster import Cluster
from protocol.client.config_admin import alter_configs, describe_configs
from protocol.client.election_admin import ElectionType, elect_leaders
from protocol.client.errors import ConnectionLost, UnsupportedVersion
from protocol.client.quorum_admin import QuorumInfo, add_voter, describe_quorum, remove_voter
from protocol.copy_progress import CopyEstimate
from protocol.errors import ApiError, ErrorCode

TRIES_MAX = 5
"""The number of times that a change of the voters is tried, `POLL_S` apart.

The quorum refuses a change for a moment while an earlier one is not committed, and while a broker
to add is behind by more than a second.
"""

ALREADY_DONE = frozenset(
    {
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.VOTER_NOT_FOUND,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    }
)
"""The answers to a step that an earlier attempt has completed."""


async def quorum_of(cluster: Cluster) -> QuorumInfo | None:
    """Return the metadata quorum; None for a cluster that has none. Raises ApiError and
    ClientError."""
    try:
        return await describe_quorum(cluster)
    except UnsupportedVersion:
        return None


async def numbers_of(cluster: Cluster, node_id: int, keys: tuple[str, ...]) -> Mapping[str, int]:
    """Return those of these settings of a broker that have a value. Raises ApiError and
    ClientError."""
    resource = ConfigResource.broker(node_id)
    found = (await describe_configs(cluster, [resource], keys))[resource]
    return {key: int(one.value) for key, one in found.items() if one.value}


async def uncordon(cluster: Cluster, node_id: int) -> None:
    """Let a broker get new replicas again. Raises ApiError and ClientError."""
    await alter_configs(cluster, {ConfigResource.broker(node_id): {CORDON: None}})


class StepTaker:
    """Takes the steps of one run of a command. Another run can continue where this one ended."""

    def __init__(
        self,
        on_step: Callable[[MembershipStep], None],
        on_wait: Callable[[MembershipStep, CopyEstimate | None], None],
        rate: int | None = None,
    ) -> None:
        """`on_step` gets each step before it is taken. `on_wait` gets a step that waits, after each
        look, with what is known of the copies. `rate` limits the copies, in bytes a second."""
        self._rate = rate
        self._on_step = on_step
        self._on_wait = on_wait
        self._watch = CopyWatch()
        self._last: MembershipStep | None = None
        self._is_limited = False
        self.tries = 0
        """How often the present step was taken before."""

    async def take(self, cluster: Cluster, replicas: ClusterReplicas, step: MembershipStep) -> None:
        """Take a step. The same step as before is taken again after `POLL_S`.

        `replicas` are those of the state from which the step was planned. Raises CommandError for
        moves that the cluster refuses, and ApiError and ClientError.
        """
        if step == self._last:
            self.tries += 1
            await asyncio.sleep(reassign.POLL_S)
        elif not _both_wait(step, self._last):
            self._on_step(step)
            self.tries = 0
        self._last = step
        try:
            await self._ask(cluster, replicas, step)
        except (ApiError, ConnectionLost) as error:
            if isinstance(error, ApiError) and error.code in ALREADY_DONE:
                return
            # The answer to the removal of the active controller can be lost with its connection.
            if not isinstance(step, GiveVote | TakeVote) or self.tries == TRIES_MAX - 1:
                raise

    async def _ask(self, cluster: Cluster, replicas: ClusterReplicas, step: MembershipStep) -> None:
        match step:
            case Cordon(node_id):
                await alter_configs(cluster, {ConfigResource.broker(node_id): {CORDON: "*"}})
            case Uncordon(node_id):
                await uncordon(cluster, node_id)
            case StartMoves(targets) | AddReplicas(targets):
                await self._limit(cluster, replicas, targets)
                reassign.refuse_errors(await reassign.start(cluster, targets))
            case GiveUpLeaders(partitions) | SpreadLeaders(partitions):
                # A refused partition keeps its leader until its move is complete, or until the
                # next of the cluster's regular elections of preferred leaders.
                await elect_leaders(cluster, ElectionType.PREFERRED, partitions)
            case WaitForMoves(targets) | WaitForReplicas(targets):
                await self._limit(cluster, replicas, {})
                await self._watch.look(cluster, replicas, targets)
                self._on_wait(step, self._watch.estimate)
            case RaiseMinIsr(values):
                await alter_configs(
                    cluster,
                    {ConfigResource.topic(topic): {MIN_ISR: str(to)} for topic, to in values},
                )
            case GiveVote(node_id, directory_id):
                await add_voter(cluster, node_id, directory_id)
            case TakeVote(node_id, directory_id):
                await remove_voter(cluster, node_id, directory_id)
            case Unregister(node_id):
                await unregister_broker(cluster, node_id)
            case WaitForService() | WaitForMetadata() | WaitForAddress():
                self._on_wait(step, None)
            case StopBroker() | StartBroker() | MoveFolder() | StartMoved():
                raise AssertionError("the caller starts and stops processes")

    async def _limit(self, cluster: Cluster, replicas: ClusterReplicas, targets: Targets) -> None:
        """Set the throttle for new moves and for those under way, once."""
        if self._rate is None or (self._is_limited and not targets):
            return
        current = {tp: one.replicas for tp, one in replicas.partitions()}
        plan = plan_throttle(replicas.moving, targets, current, replicas.brokers)
        await set_throttle(cluster, plan, self._rate)
        self._is_limited = True


def _both_wait(step: MembershipStep, last: MembershipStep | None) -> bool:
    """Return whether both steps wait for moves, or both wait for replicas to be added.

    `step` can name fewer partitions than `last`, because some copies are complete.
    """
    return isinstance(step, WaitForMoves | WaitForReplicas) and type(step) is type(last)
