"""Requests of other brokers to the active controller, about their membership.

While this node is not the controller, the answer contains NOT_CONTROLLER, and the other broker
looks for another controller.
"""

from __future__ import annotations

from broker.cluster.controller_driver import ControllerDriver
from broker.cluster.liveness_driver import LivenessDriver
from broker.interbroker.answers import waiter_of
from broker.sessions.call import Call
from broker.sessions.dispatch import Handler
from protocol.messages.api import ApiKey
from protocol.messages.membership import BrokerHeartbeatRequest, BrokerRegistrationRequest
from protocol.messages.producer_ids import AllocateProducerIdsRequest
from protocol.messages.voters import UpdateRaftVoterRequest


class BrokerHandlers:
    """The handlers for registrations, heartbeats, blocks of producer ids and addresses of
    voters."""

    def __init__(self, liveness: LivenessDriver, controller: ControllerDriver) -> None:
        self._liveness = liveness
        self._controller = controller

    def register(self, call: Call, request: BrokerRegistrationRequest) -> None:
        """Handle BrokerRegistration."""
        self._liveness.register(request, call.session, waiter_of(call))

    def heartbeat(self, call: Call, request: BrokerHeartbeatRequest) -> None:
        """Handle BrokerHeartbeat."""
        self._liveness.heartbeat(request, call.session, waiter_of(call))

    def allocate_producer_ids(self, call: Call, request: AllocateProducerIdsRequest) -> None:
        """Handle AllocateProducerIds."""
        self._controller.submit(request, waiter_of(call))

    def update_raft_voter(self, call: Call, request: UpdateRaftVoterRequest) -> None:
        """Handle UpdateRaftVoter. The answer is sent when the change is durable at this node."""
        self._controller.submit(request, waiter_of(call))


def membership_handlers(
    liveness: LivenessDriver, controller: ControllerDriver
) -> dict[ApiKey, Handler]:
    """Return the handlers for the BROKER listener."""
    handlers = BrokerHandlers(liveness, controller)
    return {
        ApiKey.BROKER_REGISTRATION: handlers.register,
        ApiKey.BROKER_HEARTBEAT: handlers.heartbeat,
        ApiKey.ALLOCATE_PRODUCER_IDS: handlers.allocate_producer_ids,
        ApiKey.UPDATE_RAFT_VOTER: handlers.update_raft_voter,
    }
