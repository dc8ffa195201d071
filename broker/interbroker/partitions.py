"""Requests of partition leaders to the active controller, about in-sync replicas.

The answer only says that the leader need not wait any more. A leader takes its in-sync replicas
only from the replayed metadata log (decision 0029).
"""

from __future__ import annotations

from broker.cluster.controller_driver import ControllerDriver
from broker.interbroker.answers import waiter_of
from broker.sessions.call import Call
from broker.sessions.dispatch import Handler
from protocol.messages.api import ApiKey
from protocol.messages.membership import AlterPartitionRequest


def partition_handlers(controller: ControllerDriver) -> dict[ApiKey, Handler]:
    """Return the handlers for the BROKER listener."""

    def alter_partition(call: Call, request: AlterPartitionRequest) -> None:
        controller.submit(request, waiter_of(call))

    return {ApiKey.ALTER_PARTITION: alter_partition}
