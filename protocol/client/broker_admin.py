"""Lists the registered brokers of a cluster, and removes registrations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.client.connection import ByVersion
from protocol.client.errors import raise_for
from protocol.messages.api import ApiKey
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.membership import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster

FENCED_SINCE = 2
"""The first version of DescribeCluster that can name fenced brokers."""


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """One registered broker, with its address on the listener that received the request."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    """True if the controller has fenced the broker, because the broker sends no heartbeats or has
    not caught up with the metadata log.
    """


async def registered_brokers(
    cluster: "Cluster", *, timeout_ms: int | None = None
) -> Mapping[int, RegisteredBroker]:
    """Return the registered brokers by id, fenced ones included (KIP-1073).

    Brokers before Kafka 4.0 and Millrace 1.0.0-rc1 leave the fenced ones out. Raises ApiError and
    the errors of `Cluster.request`.
    """

    async def attempt(left_ms: int) -> Mapping[int, RegisteredBroker]:
        request = ByVersion(
            ApiKey.DESCRIBE_CLUSTER,
            lambda version: DescribeClusterRequest(include_fenced_brokers=version >= FENCED_SINCE),
        )
        response: DescribeClusterResponse = await cluster.request(None, request, timeout_ms=left_ms)
        raise_for(response.error_code, response.error_message)
        return {
            one.broker_id: RegisteredBroker(
                one.broker_id, one.host, one.port, one.rack, one.is_fenced
            )
            for one in response.brokers
        }

    return await cluster.repeat(attempt, timeout_ms)


async def unregister_broker(cluster: "Cluster", node_id: int) -> None:
    """Remove the registration of a broker that will not come back. Any broker accepts the request.

    The request is sent once. Raises ApiError (BROKER_ID_NOT_REGISTERED; INVALID_REQUEST for a
    broker that is in service or has replicas) and the errors of `Cluster.request`.
    """
    response: UnregisterBrokerResponse = await cluster.request(
        None, UnregisterBrokerRequest(broker_id=node_id)
    )
    raise_for(response.error_code, response.error_message)
