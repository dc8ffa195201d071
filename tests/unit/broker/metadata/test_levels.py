"""The levels of the metadata log: which records need which level."""

from __future__ import annotations

from typing import get_args

import pytest

from broker.metadata.broker_image import registered_broker
from broker.metadata.features import (
    ACLS,
    CORDONS,
    LEVEL_4_0_IV1,
    LEVEL_NAMES,
    LONG_LISTS,
    METADATA_LEVEL,
    METADATA_VERSION,
    MOVES,
    OLDEST_LEVEL,
    QUOTAS,
    SUPPORTED,
    UNNAMED,
    USERS,
    LevelNeed,
    LevelRange,
    named,
    need_of,
    supported_features,
)
from broker.metadata.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

RELEASED = {
    0: 3, 1: 0, 2: 0, 3: 2, 4: 0, 5: 2, 7: 0, 8: 0, 9: 0, 12: 0, 15: 0, 17: 2, 20: 0,
}  # fmt: skip
"""The record types that 1.0.0-rc1 reads, each with its newest version."""


def cordon(value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name="1", name="cordoned.log.dirs", value=value
    )


def throttled(length: int) -> ConfigRecord:
    name = "leader.replication.throttled.replicas"
    return ConfigRecord(
        resource_type=TOPIC_RESOURCE, resource_name="t", name=name, value="0" * length
    )


@pytest.mark.parametrize(
    ("record", "need"),
    [
        (NoOpRecord(), None),
        (RegisterBrokerRecord(rack="a", features=[BrokerFeature(name="f")]), None),
        (PartitionRecord(replicas=[1, 2], isr=[1]), None),
        (PartitionRecord(replicas=[1, 2], adding_replicas=[2]), MOVES),
        (PartitionRecord(replicas=[1, 2], removing_replicas=[2]), MOVES),
        (PartitionChangeRecord(isr=[1], leader=1, eligible_leader_replicas=[2]), None),
        (PartitionChangeRecord(replicas=[2, 1]), MOVES),
        (PartitionChangeRecord(adding_replicas=[]), MOVES),
        (PartitionChangeRecord(removing_replicas=[1]), MOVES),
        (UserScramCredentialRecord(name="shop"), USERS),
        (RemoveUserScramCredentialRecord(name="shop"), USERS),
        (AccessControlEntryRecord(), ACLS),
        (RemoveAccessControlEntryRecord(), ACLS),
        (ClientQuotaRecord(key="producer_byte_rate", value=1.0), QUOTAS),
        (cordon("*"), CORDONS),
        (cordon(None), None),
        (throttled(1_000), None),
        (throttled(1_001), LONG_LISTS),
    ],
)
def test_a_record_needs_the_level_that_first_had_it(
    record: MetadataRecord, need: LevelNeed | None
) -> None:
    assert need_of(record) == need


def test_what_1_0_0_rc1_does_not_read_needs_a_later_level() -> None:
    """A new record type fails here until `need_of` gives it a level. So does a new version of a
    record, for which `need_of` looks at the fields."""
    for cls in get_args(MetadataRecord):
        newest = cls.valid_versions[-1]
        if cls.api_key in RELEASED:
            assert newest == RELEASED[cls.api_key], f"{cls.__name__} {newest} needs a level"
        else:
            need = need_of(cls())
            assert need is not None and need.level > LEVEL_4_0_IV1, f"{cls.__name__} has no level"


def test_every_supported_level_has_kafkas_name() -> None:
    assert set(LEVEL_NAMES) == set(range(OLDEST_LEVEL, METADATA_LEVEL + 1))
    assert named(23) == "23 (4.0-IV1)"
    assert named(99) == "99"


def test_a_registration_names_the_levels_of_its_broker() -> None:
    (feature,) = supported_features()
    named_range = BrokerFeature(
        name=feature.name,
        min_supported_version=feature.min_supported_version,
        max_supported_version=feature.max_supported_version,
    )
    other = BrokerFeature(name="other", min_supported_version=1, max_supported_version=2)
    broker = registered_broker(RegisterBrokerRecord(broker_id=1, features=[named_range, other]))
    assert broker.levels == SUPPORTED
    assert broker.features == {METADATA_VERSION: SUPPORTED, "other": LevelRange(1, 2)}
    assert registered_broker(RegisterBrokerRecord(broker_id=1)).levels == UNNAMED


def test_a_range_has_both_ends() -> None:
    one = LevelRange(23, 25)
    assert [level for level in range(20, 30) if level in one] == [23, 24, 25]
    assert (str(one), str(LevelRange(7, 7))) == ("23 to 25", "7")
