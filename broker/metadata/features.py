"""The level of the metadata log, and the check whether this version can read it.

This module is pure. The level is Kafka's `metadata.version`. It is in the log itself, before the
first record that needs it. A broker that finds an unknown level must not continue, because it could
miss important changes, such as a new leader.
"""

from __future__ import annotations

from broker.metadata.records import FeatureLevelRecord, UnknownMetadataRecord

METADATA_VERSION = "metadata.version"

METADATA_LEVEL = 23
"""The latest level that this version reads: Kafka's 4.0-IV1, with KIP-966."""


def check_level(record: FeatureLevelRecord) -> None:
    """Raise UnknownMetadataRecord if a record names an unknown feature or level."""
    name, level = record.name, record.feature_level
    if level == 0 or (name == METADATA_VERSION and 0 < level <= METADATA_LEVEL):
        return
    known = f"{METADATA_VERSION} up to {METADATA_LEVEL}"
    raise UnknownMetadataRecord(
        f"the metadata log is at {name} {level}, this version reads {known}: "
        "run the version that wrote it, or a later one"
    )
