"""What leaders of partitions ask of the active controller: who is in sync.

Floor: interbroker. The answer ends a leader's wait and says nothing more: who is in sync comes from
the replayed metadata log alone (decision 0029).
"""

from __future__ import annotations

from broker.cluster.controller_driver import ControllerDriver
from broker.interbroker.answers import waiter_of
from broker.sessions.call import Call
from broker.sessions.dispatch import Handler
from protocol.messages.api import ApiKey
from protocol.messages.membership import AlterPartitionRequest


def partition_handlers(controller: ControllerDriver) -> dict[ApiKey, Handler]:
    """By API, what leaders are answered on BROKER."""

    def alter_partition(call: Call, request: AlterPartitionRequest) -> None:
        controller.submit(request, waiter_of(call))

    return {ApiKey.ALTER_PARTITION: alter_partition}
