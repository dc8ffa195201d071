"""Decides UpdateFeatures: check the requested levels of `metadata.version`.

This module is pure. A controller raises the level to its own before it decides anything
(`active.begin`), and older levels cannot read what it writes. So this request never changes the
level; the requested level is only checked. The errors are Kafka's.
"""

from __future__ import annotations

from broker.controller.outcome import ControllerDecision
from broker.metadata.features import METADATA_LEVEL, METADATA_VERSION
from broker.metadata.image import MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def update_features(
    request: UpdateFeaturesRequest, image: MetadataImage
) -> ControllerDecision[UpdateFeaturesResponse]:
    """Return one result per feature: NONE if the feature already has the requested level, else the
    reason."""
    results = []
    for update in request.feature_updates:
        why = _refusal(update, image.features.get(update.feature, 0))
        code = ErrorCode.NONE if why is None else ErrorCode.INVALID_UPDATE_VERSION
        results.append(
            UpdatableFeatureResult(feature=update.feature, error_code=code, error_message=why)
        )
    return ControllerDecision([], UpdateFeaturesResponse(results=results))


def _refusal(update: FeatureUpdateKey, level: int) -> str | None:
    """Return the reason why a feature cannot get the requested level; None if the feature has this
    level."""
    wanted = update.max_version_level
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"upgrade type {update.upgrade_type} is not known, expected 1, 2 or 3"
    if wanted < 0:
        return f"found level {wanted}, expected 0 or more"
    if wanted == level:
        return None
    if update.feature != METADATA_VERSION:
        return f"feature {update.feature} is not supported, there is {METADATA_VERSION} alone"
    if wanted > level:
        return f"level {wanted} is not supported: this version writes {METADATA_LEVEL}"
    if update.upgrade_type == UPGRADE:
        return f"level {wanted} is below the present {level}, and a downgrade was not asked for"
    return f"what is written at level {level} cannot be read at {wanted}"
