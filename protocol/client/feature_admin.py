"""Describes the features of a cluster, and changes their levels (KIP-584)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from protocol.client.errors import raise_for
from protocol.client.versions import CLIENT_SOFTWARE_NAME
from protocol.errors import ApiError, ErrorCode
from protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.status import VERSION

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster

UPDATE_TIMEOUT_MS = 30_000


class UpgradeType(IntEnum):
    """The permitted direction of a change, with Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a cluster as one broker sees them.

    `supported` has the oldest and the newest level that this broker supports, `finalised` the
    levels of the cluster. `epoch` rises with each change of the metadata; None if unknown.
    """

    supported: Mapping[str, tuple[int, int]]
    finalised: Mapping[str, int]
    epoch: int | None


async def describe_features(
    cluster: "Cluster", node_id: int | None = None, *, timeout_ms: int | None = None
) -> Features:
    """Return the features that one broker knows: the named one, or any."""
    request = ApiVersionsRequest(
        client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=VERSION
    )

    async def attempt(left_ms: int) -> Features:
        response: ApiVersionsResponse = await cluster.request(node_id, request, timeout_ms=left_ms)
        raise_for(response.error_code)
        epoch = response.finalized_features_epoch
        return Features(
            {one.name: (one.min_version, one.max_version) for one in response.supported_features},
            {one.name: one.max_version_level for one in response.finalized_features},
            None if epoch < 0 else epoch,
        )

    return await cluster.repeat(attempt, timeout_ms)


async def update_features(
    cluster: "Cluster",
    levels: Mapping[str, int],
    upgrade_type: UpgradeType,
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> dict[str, ApiError | None]:
    """Change the levels of features. Return for each feature None, or the error if it was refused.

    With `validate_only` nothing changes. Raises ApiError if the whole request is refused.
    """
    request = UpdateFeaturesRequest(
        timeout_ms=UPDATE_TIMEOUT_MS,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )

    async def attempt(left_ms: int) -> dict[str, ApiError | None]:
        response: UpdateFeaturesResponse = await cluster.request(None, request, timeout_ms=left_ms)
        raise_for(response.error_code, response.error_message)
        return {
            one.feature: ApiError(ErrorCode.of(one.error_code), one.error_message or "")
            if one.error_code
            else None
            for one in response.results
        }

    return await cluster.repeat(attempt, timeout_ms)
