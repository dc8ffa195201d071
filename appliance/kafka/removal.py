"""Asks a cluster about a broker that must leave it, and takes the steps of `removal_plan`."""

import asyncio
from collections.abc import Callable

from appliance.kafka import reassign
from appliance.kafka.membership import StepTaker, numbers_of, quorum_of
from appliance.kafka.membership_steps import MembershipStep, StopBroker, Unregister
from appliance.kafka.removal_plan import RemovalState, remaining_steps
from broker.node_keys import FACTORS
from protocol.client.broker_admin import registered_brokers
from protocol.client.cluster import Cluster
from protocol.copy_progress import CopyEstimate


async def look(cluster: Cluster, node_id: int) -> RemovalState:
    """Ask for the state of the cluster. Raises ApiError and ClientError."""
    replicas = await reassign.look(cluster)
    return RemovalState(
        node_id,
        replicas,
        await registered_brokers(cluster),
        await reassign.cordoned(cluster, replicas.brokers),
        await quorum_of(cluster),
        await numbers_of(cluster, min(replicas.brokers), FACTORS),
    )


class Removal:
    """One run of the steps; another run continues it."""

    def __init__(
        self,
        node_id: int,
        on_step: Callable[[MembershipStep], None],
        on_wait: Callable[[MembershipStep, CopyEstimate | None], None],
        rate: int | None = None,
    ) -> None:
        """The callbacks and the rate are those of `StepTaker`."""
        self._node_id = node_id
        self._taker = StepTaker(on_step, on_wait, rate)
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
            await self._taker.take(cluster, state.replicas, step)
            if isinstance(step, Unregister):
                return None
