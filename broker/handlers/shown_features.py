"""The features in the answer to ApiVersions: the levels of the metadata log (KIP-584)."""

from __future__ import annotations

from broker.metadata.features import METADATA_VERSION, SUPPORTED
from broker.metadata.image import MetadataImage
from protocol.messages.cluster import FinalizedFeatureKey, SupportedFeatureKey

SUPPORTED_FEATURES = [
    SupportedFeatureKey(
        name=METADATA_VERSION, min_version=SUPPORTED.oldest, max_version=SUPPORTED.newest
    )
]


def finalised_features(image: MetadataImage) -> list[FinalizedFeatureKey]:
    """Return the level of each feature of the cluster."""
    return [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in image.features.items()
    ]
