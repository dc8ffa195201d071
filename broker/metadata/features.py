"""The level of the metadata log: what stands in it, and whether this version can read it.

Floor: metadata. Pure. The level is Kafka's `metadata.version` and stands in the log itself, before
the first record that needs it: whoever finds a level that he does not know must not go on,
for what he would overlook may be who leads. A log without a level is one of version 0.1.0.
"""

from __future__ import annotations

from broker.metadata.records import FeatureLevelRecord, UnknownMetadataRecord

METADATA_VERSION = "metadata.version"

METADATA_LEVEL = 23
"""The latest that this version reads: Kafka's 4.0-IV1, with eligible leader replicas (KIP-966)."""


def check_level(record: FeatureLevelRecord) -> None:
    """Raise UnknownMetadataRecord for a feature, or a level of one, that this version lacks."""
    name, level = record.name, record.feature_level
    if level == 0 or (name == METADATA_VERSION and 0 < level <= METADATA_LEVEL):
        return
    known = f"{METADATA_VERSION} up to {METADATA_LEVEL}"
    raise UnknownMetadataRecord(
        f"the metadata log is at {name} {level}, this version reads {known}: "
        "run the version that wrote it, or a later one"
    )
