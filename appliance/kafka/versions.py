"""The versions of each request that the brokers support."""

from dataclasses import dataclass

from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError, raise_for
from protocol.client.metadata import BrokerInfo
from protocol.client.versions import CLIENT_SOFTWARE_NAME
from protocol.errors import ApiError
from protocol.messages.api import DECLARED, request_class
from protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from protocol.status import VERSION


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """The version ranges of one broker by API key, or the reason why it did not answer."""

    broker: BrokerInfo
    ranges: dict[int, range] | ApiError | ClientError


async def broker_versions(cluster: Cluster) -> list[BrokerVersions]:
    """Ask all brokers; return the answers by id."""
    current = await cluster.metadata((), refresh=True)
    found = []
    for node_id in sorted(current.brokers):
        try:
            response: ApiVersionsResponse = await cluster.request(
                node_id,
                ApiVersionsRequest(
                    client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=VERSION
                ),
            )
            raise_for(response.error_code)
            ranges: dict[int, range] | ApiError | ClientError = {
                one.api_key: range(one.min_version, one.max_version + 1)
                for one in response.api_keys
            }
        except (ApiError, ClientError) as error:
            ranges = error
        found.append(BrokerVersions(current.brokers[node_id], ranges))
    return found


def usable_version(api_key: int, offered: range) -> int | None:
    """Return the version that this client would use; None if client and broker have no version in
    common.
    """
    if api_key not in DECLARED:
        return None
    ours = request_class(api_key).valid_versions
    version = min(ours[-1], offered[-1])
    return version if version >= max(ours[0], offered[0]) else None
