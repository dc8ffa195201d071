"""Asks the brokers of a cluster for the level of its metadata log and for the levels that they
support."""

from dataclasses import dataclass

from broker.metadata.features import METADATA_VERSION, UNNAMED, LevelRange
from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError
from protocol.client.feature_admin import Features, describe_features
from protocol.errors import ApiError


@dataclass(frozen=True, slots=True)
class BrokerLevels:
    """One broker in service: the levels that it supports, and the level of the cluster that it
    reports.

    `finalised` is None for a broker of 1.0.0-rc1, which reports no level. `error` says why a broker
    did not answer.
    """

    node_id: int
    supported: LevelRange | None
    finalised: int | None
    error: str | None = None


def levels_in(node_id: int, features: Features) -> BrokerLevels:
    """Return the levels in a broker's answer."""
    supported = features.supported.get(METADATA_VERSION)
    return BrokerLevels(
        node_id,
        UNNAMED if supported is None else LevelRange(*supported),
        features.finalised.get(METADATA_VERSION),
    )


async def broker_levels(cluster: Cluster) -> list[BrokerLevels]:
    """Ask all brokers in service; return the answers by id."""
    current = await cluster.metadata((), refresh=True)
    found = []
    for node_id in sorted(current.brokers):
        try:
            found.append(levels_in(node_id, await describe_features(cluster, node_id)))
        except (ApiError, ClientError) as error:
            found.append(BrokerLevels(node_id, None, None, str(error)))
    return found


def finalised_level(brokers: list[BrokerLevels]) -> int | None:
    """Return the level of the cluster, as the brokers report it; None if no broker reports it."""
    return max((one.finalised for one in brokers if one.finalised is not None), default=None)
