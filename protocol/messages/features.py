"""Features that the cluster has enabled.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Struct):
    """The level that a feature should have; below 1 it is disabled.

    `upgrade_type`: 1 upgrade, 2 a downgrade that loses nothing, 3 any downgrade.
    """

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(since=1, default=1)


class UpdateFeaturesRequest(Message, api_key=ApiKey.UPDATE_FEATURES, versions=(0, 1), flexible=0):
    """Change the levels of features. Version 1 adds `validate_only`."""

    timeout_ms: int = int32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


class UpdatableFeatureResult(Struct):
    """The result for one feature of an UpdateFeatures request."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class UpdateFeaturesResponse(Message, api_key=ApiKey.UPDATE_FEATURES, versions=(0, 1), flexible=0):
    """The result of an UpdateFeatures request by feature."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult)
