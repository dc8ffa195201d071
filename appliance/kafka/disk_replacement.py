"""Asks a cluster about a broker whose disk was lost, and takes the steps of `disk_plan`."""

import asyncio
from collections.abc import Callable

from appliance.kafka import reassign
from appliance.kafka.disk_plan import DiskState, steps_to_replace
from appliance.kafka.membership import StepTaker, quorum_of
from appliance.kafka.membership_steps import MembershipStep, StartBroker
from protocol.client.broker_admin import registered_brokers
from protocol.client.cluster import Cluster
from protocol.copy_progress import CopyEstimate


async def look(cluster: Cluster, node_id: int) -> DiskState:
    """Ask for the state of the cluster. Raises ApiError and ClientError."""
    return DiskState(
        node_id,
        await reassign.look(cluster),
        await registered_brokers(cluster),
        await quorum_of(cluster),
    )


class DiskReplacement:
    """One run of the steps; another run continues it."""

    def __init__(
        self,
        node_id: int,
        on_step: Callable[[MembershipStep], None],
        on_wait: Callable[[MembershipStep, CopyEstimate | None], None],
    ) -> None:
        """The callbacks are those of `StepTaker`."""
        self._node_id = node_id
        self._taker = StepTaker(on_step, on_wait)
        self.has_started = False
        """True when the caller has started the broker. Other brokers notice it a moment later."""

    async def proceed(self, cluster: Cluster) -> StartBroker | None:
        """Take the steps until the broker must start. Return None when it is whole again.

        Raises ApiError and ClientError.
        """
        while True:
            state = await look(cluster, self._node_id)
            steps = steps_to_replace(state)
            if not steps:
                return None
            step = steps[0]
            if not isinstance(step, StartBroker):
                await self._taker.take(cluster, state.replicas, step)
            elif self.has_started:
                await asyncio.sleep(reassign.POLL_S)
            else:
                return step
