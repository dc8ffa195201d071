"""The levels of the metadata log, and the records that need each level.

This module is pure. The level is Kafka's `metadata.version`. It is in the log itself, before the
first record that needs it. A broker that finds an unknown level must not continue, because it could
miss important changes, such as a new leader. Brokers of two versions form one cluster as long as
the log has a level that both of them read (decision 0145).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from broker.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UnknownMetadataRecord,
    UserScramCredentialRecord,
)
from protocol.messages.membership import RegistrationFeature
from protocol.types import METADATA_VERSION as METADATA_VERSION

LEVEL_4_0_IV1 = 23
"""The level of 1.0.0-rc1. It has eligible leader replicas (KIP-966)."""

LEVEL_4_0_IV2 = 24
"""The level of the versions after 1.0.0-rc1. It has reassignments, users, quotas and cordoned
brokers."""

OLDEST_LEVEL, METADATA_LEVEL = LEVEL_4_0_IV1, LEVEL_4_0_IV2
"""The oldest and the newest level at which this version runs."""

LEVEL_NAMES: Mapping[int, str] = {LEVEL_4_0_IV1: "4.0-IV1", LEVEL_4_0_IV2: "4.0-IV2"}
"""Kafka's names of the levels, which its tools take and show."""


class LevelRange(NamedTuple):
    """The levels of a feature that a broker supports, both ends included."""

    oldest: int
    newest: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.oldest <= level <= self.newest

    def __str__(self) -> str:
        return str(self.oldest) if self.oldest == self.newest else f"{self.oldest} to {self.newest}"


SUPPORTED = LevelRange(OLDEST_LEVEL, METADATA_LEVEL)
"""The levels at which this version runs."""

UNNAMED = LevelRange(LEVEL_4_0_IV1, LEVEL_4_0_IV1)
"""The levels of a registered broker whose registration has no range, as in a snapshot of
1.0.0-rc1."""


class FeatureRange(Protocol):
    """The levels of a feature, in a registration request or in its record."""

    @property
    def name(self) -> str:
        """The name of the feature."""

    @property
    def min_supported_version(self) -> int:
        """The oldest level that the broker supports."""

    @property
    def max_supported_version(self) -> int:
        """The newest level that the broker supports."""


class LevelNeed(NamedTuple):
    """The level that a record or a request needs, and the function of the cluster that needs this
    level."""

    level: int
    what: str


MOVES = LevelNeed(LEVEL_4_0_IV2, "reassignments")
USERS = LevelNeed(LEVEL_4_0_IV2, "users with SCRAM credentials")
CORDONS = LevelNeed(LEVEL_4_0_IV2, "cordoned.log.dirs")
ACLS = LevelNeed(LEVEL_4_0_IV2, "ACLs")
QUOTAS = LevelNeed(LEVEL_4_0_IV2, "client quotas")
VOTER_CHANGES = LevelNeed(LEVEL_4_0_IV2, "changes of the voters")
LONG_LISTS = LevelNeed(LEVEL_4_0_IV2, "values of more than 1,000 characters")

SHORT_VALUE_MAX = 1_000
"""The longest value of a setting that 1.0.0-rc1 reads."""

_OF_TYPES: Mapping[type, LevelNeed] = {
    UserScramCredentialRecord: USERS,
    RemoveUserScramCredentialRecord: USERS,
    AccessControlEntryRecord: ACLS,
    RemoveAccessControlEntryRecord: ACLS,
    ClientQuotaRecord: QUOTAS,
}
"""The levels that the record types after 1.0.0-rc1 need."""

_OF_SETTINGS: Mapping[str, LevelNeed] = {"cordoned.log.dirs": CORDONS}
"""The settings that need a level, because all brokers that can become the controller must know
them."""


def need_of(record: MetadataRecord) -> LevelNeed | None:
    """Return the level that a record needs; None if every supported level has it."""
    match record:
        case PartitionRecord():
            return MOVES if record.adding_replicas or record.removing_replicas else None
        case PartitionChangeRecord():
            lists = (record.replicas, record.adding_replicas, record.removing_replicas)
            return None if lists == (None, None, None) else MOVES
        case ConfigRecord():
            return need_of_setting(record.name, record.value)
    return _OF_TYPES.get(type(record))


def need_of_setting(name: str, value: str | None) -> LevelNeed | None:
    """Return the level that a value of a setting needs; None if every supported level has it."""
    if value is None:
        return None
    return LONG_LISTS if len(value) > SHORT_VALUE_MAX else _OF_SETTINGS.get(name)


def ranges_of(features: Iterable[FeatureRange]) -> dict[str, LevelRange]:
    """Return the levels that a registration names, by feature."""
    return {
        one.name: LevelRange(one.min_supported_version, one.max_supported_version)
        for one in features
    }


def supported_features() -> list[RegistrationFeature]:
    """Return the levels of this version, as its brokers register them."""
    return [
        RegistrationFeature(
            name=METADATA_VERSION,
            min_supported_version=SUPPORTED.oldest,
            max_supported_version=SUPPORTED.newest,
        )
    ]


def named(level: int) -> str:
    """Return a level with Kafka's name, for messages."""
    return f"{level} ({LEVEL_NAMES[level]})" if level in LEVEL_NAMES else str(level)


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
