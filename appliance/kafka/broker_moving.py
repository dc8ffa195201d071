"""Follows a broker that has started at its new place, with the steps of `broker_move_plan`."""

import asyncio
from collections.abc import Callable

from appliance.kafka import disk_replacement, reassign
from appliance.kafka.broker_move_plan import MovePlace, steps_to_move
from appliance.kafka.membership import StepTaker
from appliance.kafka.membership_steps import MembershipStep, StartMoved
from protocol.client.cluster import Cluster
from protocol.copy_progress import CopyEstimate


class BrokerMoving:
    """The wait until a broker works at its new place."""

    def __init__(
        self,
        node_id: int,
        address: str,
        on_step: Callable[[MembershipStep], None],
        on_wait: Callable[[MembershipStep, CopyEstimate | None], None],
    ) -> None:
        """`address` is the new one, as `host:port`. The callbacks are those of `StepTaker`."""
        self._node_id = node_id
        self._place = MovePlace(address, runs=True)
        self._taker = StepTaker(on_step, on_wait)

    async def proceed(self, cluster: Cluster) -> None:
        """Take the steps that are left. Raises ApiError and ClientError."""
        while True:
            state = await disk_replacement.look(cluster, self._node_id)
            steps = steps_to_move(state, self._place)
            if not steps:
                return
            if isinstance(steps[0], StartMoved):
                # The process runs, and the other brokers notice it a moment later.
                await asyncio.sleep(reassign.POLL_S)
            else:
                await self._taker.take(cluster, state.replicas, steps[0])
