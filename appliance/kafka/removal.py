"""Asks a cluster about a broker that must leave it, and takes the steps of `removal_plan`.

Every step can be repeated: what was done already changes nothing. So a broker that answers with
metadata that are behind does no harm.
"""

import asyncio
from collections.abc import Callable, Mapping

from appliance.kafka import reassign
from appliance.kafka.reassign import CORDON, CopyWatch
from appliance.kafka.reassignment_files import Targets
from appliance.kafka.removal_plan import (
    Cordon,
    GiveUpLeaders,
    GiveVote,
    RemovalState,
    RemovalStep,
    StartMoves,
    StopBroker,
    TakeVote,
    Unregister,
    WaitForMoves,
    remaining_steps,
)
from appliance.kafka.throttles import plan_throttle, set_throttle
from broker.node_keys import FACTORS
from protocol.client.admin_types import ConfigResource
from protocol.client.broker_admin import registered_brokers, unregister_broker
from protocol.client.cluster import Cluster
from protocol.client.config_admin import alter_configs, describe_configs
from protocol.client.election_admin import ElectionType, elect_leaders
from protocol.client.errors import ConnectionLost, UnsupportedVersion
from protocol.client.quorum_admin import QuorumInfo, add_voter, describe_quorum, remove_voter
from protocol.copy_progress import CopyEstimate
from protocol.errors import ApiError, ErrorCode

TRIES_MAX = 5
"""The number of times that a change of the voters is tried, `POLL_S` apart.

The quorum refuses a change for a moment while an earlier one is not committed.
"""

ALREADY_DONE = frozenset(
    {
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.VOTER_NOT_FOUND,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    }
)
"""The answers to a step that an earlier attempt has completed."""


async def look(cluster: Cluster, node_id: int) -> RemovalState:
    """Ask for the state of the cluster. Raises ApiError and ClientError."""
    replicas = await reassign.look(cluster)
    return RemovalState(
        node_id,
        replicas,
        await registered_brokers(cluster),
        await reassign.cordoned(cluster, replicas.brokers),
        await quorum_of(cluster),
        await _factors(cluster, min(replicas.brokers)),
    )


async def quorum_of(cluster: Cluster) -> QuorumInfo | None:
    """Return the metadata quorum; None for a cluster that has none. Raises ApiError and
    ClientError."""
    try:
        return await describe_quorum(cluster)
    except UnsupportedVersion:
        return None


async def _factors(cluster: Cluster, node_id: int) -> Mapping[str, int]:
    resource = ConfigResource.broker(node_id)
    found = (await describe_configs(cluster, [resource], FACTORS))[resource]
    return {key: int(one.value) for key, one in found.items() if one.value}


async def uncordon(cluster: Cluster, node_id: int) -> None:
    """Let a broker get new replicas again. Raises ApiError and ClientError."""
    await alter_configs(cluster, {ConfigResource.broker(node_id): {CORDON: None}})


class Removal:
    """One run of the steps; another run continues it."""

    def __init__(
        self,
        node_id: int,
        on_step: Callable[[RemovalStep], None],
        on_wait: Callable[[int, CopyEstimate | None], None],
        rate: int | None = None,
    ) -> None:
        """`on_step` gets each step before it is taken. `on_wait` gets the number of partitions that
        have not moved away yet, and what is known of their copies. `rate` limits the copies, in
        bytes a second."""
        self._node_id = node_id
        self._rate = rate
        self._on_step = on_step
        self._on_wait = on_wait
        self._watch = CopyWatch()
        self._last: RemovalStep | None = None
        self._tries = 0
        self._is_limited = False
        self.has_stopped = False
        """True when the caller has stopped the broker. Other brokers notice it a moment later."""

    async def proceed(self, cluster: Cluster) -> StopBroker | None:
        """Take the steps until the broker must stop. Return None when it has left the cluster.

        Raises CommandError for moves that the cluster refuses, and ApiError and ClientError.
        """
        while True:
            state = await look(cluster, self._node_id)
            steps = remaining_steps(state)
            if not steps:
                return None
            step = steps[0]
            if isinstance(step, StopBroker):
                if not self.has_stopped:
                    return step
                await asyncio.sleep(reassign.POLL_S)
                continue
            await self._take(cluster, state, step)
            if isinstance(step, Unregister):
                return None

    async def _take(self, cluster: Cluster, state: RemovalState, step: RemovalStep) -> None:
        if step == self._last:
            await asyncio.sleep(reassign.POLL_S)
        elif not (isinstance(step, WaitForMoves) and isinstance(self._last, WaitForMoves)):
            self._on_step(step)
            self._tries = 0
        self._last = step
        try:
            await self._ask(cluster, state, step)
        except (ApiError, ConnectionLost) as error:
            if isinstance(error, ApiError) and error.code in ALREADY_DONE:
                return
            self._tries += 1
            # The answer to the removal of the active controller can be lost with its connection.
            if not isinstance(step, GiveVote | TakeVote) or self._tries == TRIES_MAX:
                raise

    async def _ask(self, cluster: Cluster, state: RemovalState, step: RemovalStep) -> None:
        match step:
            case Cordon(node_id):
                await alter_configs(cluster, {ConfigResource.broker(node_id): {CORDON: "*"}})
            case StartMoves(targets):
                await self._limit(cluster, state, targets)
                reassign.refuse_errors(await reassign.start(cluster, targets))
            case GiveUpLeaders(partitions):
                # A partition that is refused gets another leader when its move is complete.
                await elect_leaders(cluster, ElectionType.PREFERRED, partitions)
            case WaitForMoves(targets):
                await self._limit(cluster, state, {})
                await self._watch.look(cluster, state.replicas, targets)
                self._on_wait(len(targets), self._watch.estimate)
            case GiveVote(node_id, directory_id):
                await add_voter(cluster, node_id, directory_id)
            case TakeVote(node_id, directory_id):
                await remove_voter(cluster, node_id, directory_id)
            case Unregister(node_id):
                await unregister_broker(cluster, node_id)

    async def _limit(self, cluster: Cluster, state: RemovalState, targets: Targets) -> None:
        """Set the throttle for new moves and for those under way, once."""
        if self._rate is None or (self._is_limited and not targets):
            return
        found = state.replicas
        current = {tp: one.replicas for tp, one in found.partitions()}
        plan = plan_throttle(found.moving, targets, current, found.brokers)
        await set_throttle(cluster, plan, self._rate)
        self._is_limited = True
