"""The level of the metadata log: its start, its changes, and the orders that a level refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.controller.active import ActiveController, OrderLimits, OrderWaiter
from broker.controller.features import (
    NAMED_MAX,
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    refuse_order,
    update_features,
)
from broker.controller.registration import register
from broker.controller.registration_checks import RegistrationFacts
from broker.metadata.features import (
    LEVEL_4_0_IV1,
    METADATA_LEVEL,
    METADATA_VERSION,
    SUPPORTED,
    LevelRange,
)
from broker.metadata.image import MetadataImage
from broker.metadata.records import (
    BROKER_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.elections import AlterPartitionReassignmentsRequest
from protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.messages.membership import RegistrationFeature
from protocol.messages.scram import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from protocol.messages.topics import CreateTopicsRequest
from protocol.messages.voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from protocol.wire.records import iterate_records
from tests.unit.broker.controller.kit import (
    CLUSTER,
    CONFIG,
    NODES,
    ONE,
    THREE,
    TWO,
    after,
    image_of,
    partition,
    registration,
)
from tests.unit.broker.controller.test_orders_of_brokers import CONTROLLER

OLD, NEW = LEVEL_4_0_IV1, METADATA_LEVEL
ONLY_OLD = LevelRange(OLD, OLD)
USER = UserScramCredentialRecord(name="shop", mechanism=1, iterations=4_096)
CORDON = ConfigRecord(
    resource_type=BROKER_RESOURCE, resource_name="1", name="cordoned.log.dirs", value="*"
)
DEAD = RegistrationFacts(CLUSTER, is_live=False, voter_directory=None)


def at(level: int, image: MetadataImage | None = None, **ranges: LevelRange) -> MetadataImage:
    """Return an image at this level. Brokers support all levels, unless `ranges` names them:
    `b2=ONLY_OLD`."""
    image = image or image_of(partition())
    brokers = {
        node_id: replace(one, features={METADATA_VERSION: ranges.get(f"b{node_id}", SUPPORTED)})
        for node_id, one in image.brokers.items()
    }
    return replace(image, brokers=brokers, features={METADATA_VERSION: level})


def update(
    level: int,
    image: MetadataImage,
    kind: int = UPGRADE,
    *,
    voters: tuple[int, ...] = NODES,
    validate_only: bool = False,
) -> tuple[list[MetadataRecord], str | None]:
    key = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[key], validate_only=validate_only)
    outcome = update_features(FeatureUpdate(request, voters), image)
    (result,) = outcome.reply.results
    expected = ErrorCode.INVALID_UPDATE_VERSION if result.error_message else ErrorCode.NONE
    assert result.error_code == expected
    return list(outcome.records), result.error_message


def level_record(level: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)


def test_the_level_rises_when_all_can_follow() -> None:
    assert update(NEW, at(OLD)) == ([level_record(NEW)], None)
    assert update(NEW, at(OLD), validate_only=True) == ([], None)
    assert update(OLD, at(OLD)) == ([], None), "it has this level"


def test_trap_33_a_broker_that_is_away_keeps_the_level_down() -> None:
    """KIP-1073: a registered broker that is out of service blocks the upgrade, and the answer names
    it."""
    image = at(OLD, image_of(partition((ONE, TWO)), active=(ONE, TWO)), b3=ONLY_OLD)
    records, why = update(NEW, image)
    assert records == []
    assert why is not None
    assert "broker 3 (not in service) supports 23" in why
    assert "broker 1" not in why and "broker 2" not in why


def test_a_voter_that_is_not_registered_keeps_the_level_down() -> None:
    records, why = update(NEW, at(OLD), voters=(ONE, TWO, THREE, 4))
    assert records == [] and why is not None
    assert "voter 4 is not registered" in why


def test_a_refusal_names_a_limited_number() -> None:
    records, why = update(NEW, at(OLD), voters=tuple(range(10, 10 + NAMED_MAX + 2)))
    assert records == [] and why is not None
    assert f"voter {10 + NAMED_MAX - 1} is" in why
    assert f"voter {10 + NAMED_MAX} is" not in why and "and 2 more" in why


@pytest.mark.parametrize("level", [OLD - 1, NEW + 1, 0])
def test_a_level_that_this_version_does_not_have_is_refused(level: int) -> None:
    """The cases are an upgrade over two versions, and a downgrade below the oldest level."""
    for kind in (UPGRADE, SAFE_DOWNGRADE):
        records, why = update(level, at(OLD), kind)
        assert records == []
        known = "this version of the broker has the levels 23 to 24"
        assert why == f"level {level} is not supported: {known}"


def test_the_level_falls_while_nothing_needs_it() -> None:
    assert update(OLD, at(NEW), SAFE_DOWNGRADE) == ([level_record(OLD)], None)
    moved = at(NEW, image_of(partition(adding=(THREE,))))
    for image, what in (
        (moved, "reassignments (1)"),
        (after(at(NEW), [USER]), "users with SCRAM credentials (1)"),
        (after(at(NEW), [CORDON]), "cordoned.log.dirs (1)"),
    ):
        records, why = update(OLD, image, SAFE_DOWNGRADE)
        assert records == [] and why is not None and what in why
        records, why = update(OLD, image, UNSAFE_DOWNGRADE)
        assert records == [] and why is not None and "restore a backup" in why


def test_the_direction_must_be_asked_for() -> None:
    _, why = update(OLD, at(NEW), UPGRADE)
    assert why is not None and "request a downgrade" in why
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        _, why = update(NEW, at(OLD), kind)
        assert why is not None and "but the request is for a downgrade" in why


def test_a_feature_is_named_once() -> None:
    key = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=NEW)
    order = FeatureUpdate(UpdateFeaturesRequest(feature_updates=[key, key]), NODES)
    outcome = update_features(order, at(OLD))
    assert outcome.records == []
    assert {one.error_code for one in outcome.reply.results} == {ErrorCode.INVALID_UPDATE_VERSION}


# How a log begins.


def begun(image: MetadataImage) -> list[MetadataRecord]:
    active = ActiveController(CONTROLLER, OrderLimits(9, 9), image)
    batch = active.begin(image.end_offset, 0)
    return [] if batch is None else [decode_record(one.value) for one in iterate_records(batch)]


def test_a_new_log_begins_at_the_newest_level() -> None:
    assert begun(MetadataImage()) == [level_record(NEW)]


def test_guard_65_a_log_of_an_earlier_version_keeps_its_level() -> None:
    """Otherwise a broker of the earlier version that follows would stop at a record of a later
    level."""
    assert begun(at(OLD)) == []
    assert begun(at(NEW)) == []


def test_a_log_without_a_level_gets_one_that_all_its_brokers_support() -> None:
    image = replace(at(OLD, b2=ONLY_OLD), features={})
    assert begun(image) == [level_record(OLD)]


# What a level refuses.


def reassign() -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest()


def add_user() -> AlterUserScramCredentialsRequest:
    upsertion = ScramCredentialUpsertion(
        name="shop", mechanism=1, iterations=4_096, salt=b"s" * 16, salted_password=b"p" * 32
    )
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


def set_cordon(value: str | None) -> IncrementalAlterConfigsRequest:
    change = AlterableConfig(name="cordoned.log.dirs", value=value)
    resource = AlterConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="1", configs=[change]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def replace_settings() -> AlterConfigsRequest:
    change = AlterConfigsRequestConfig(name="cordoned.log.dirs", value="*")
    resource = AlterConfigsRequestResource(
        resource_type=BROKER_RESOURCE, resource_name="1", configs=[change]
    )
    return AlterConfigsRequest(resources=[resource])


@pytest.mark.parametrize(
    ("order", "what"),
    [
        (reassign(), "reassignments"),
        (add_user(), "users"),
        (set_cordon("*"), "cordoned.log.dirs"),
        (replace_settings(), "cordoned.log.dirs"),
        (CreateAclsRequest(), "ACLs"),
        (DeleteAclsRequest(), "ACLs"),
        (AddRaftVoterRequest(), "changes of the voters"),
        (RemoveRaftVoterRequest(), "changes of the voters"),
    ],
)
def test_an_order_of_a_later_level_is_refused_with_what_to_run(order: Any, what: str) -> None:
    with pytest.raises(ApiError) as caught:
        refuse_order(order, at(OLD))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert caught.value.message.startswith(what)
    for text in ("24 (4.0-IV2)", "23 (4.0-IV1)", "./millrace upgrade finalize"):
        assert text in caught.value.message
    refuse_order(order, at(NEW))


@pytest.mark.parametrize("order", [set_cordon(None), CreateTopicsRequest()])
def test_other_orders_are_taken_at_every_level(order: Any) -> None:
    refuse_order(order, at(OLD))


def test_guard_65_no_record_above_the_level_is_written() -> None:
    """This holds even if a broker of another version forwards an order without checking it."""
    image = at(OLD)
    active = ActiveController(CONTROLLER, OrderLimits(9, 9), image)
    refusals: list[ApiError] = []
    waiter = OrderWaiter(lambda _: None, refusals.append)
    assert active.decide(add_user(), waiter, image.end_offset, 0, 0) is None
    (refusal,) = refusals
    assert refusal.code is ErrorCode.UNSUPPORTED_VERSION
    key = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=NEW)
    raised = FeatureUpdate(UpdateFeaturesRequest(feature_updates=[key]), NODES)
    assert active.decide(raised, waiter, image.end_offset, 0, 0) is not None
    # The second order is decided by the raised level, although that level is not committed yet.
    assert active.decide(add_user(), waiter, image.end_offset + 1, 0, 0) is not None
    assert len(refusals) == 1


# Registrations.


def with_levels(node_id: int, oldest: int, newest: int, life: int = 1) -> Any:
    request = registration(node_id, life=life)
    request.features = [
        RegistrationFeature(
            name=METADATA_VERSION, min_supported_version=oldest, max_supported_version=newest
        )
    ]
    return request


@pytest.mark.parametrize(
    ("oldest", "newest", "level", "way"),
    [(23, 23, 24, "run the version that the other"), (25, 26, 23, "upgrade over the version")],
)
def test_a_broker_that_lacks_the_level_is_refused_with_both_sides(
    oldest: int, newest: int, level: int, way: str
) -> None:
    request = with_levels(ONE, oldest, newest)
    with pytest.raises(ApiError) as caught:
        register(request, at(level), CONFIG, DEAD)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    for text in ("broker 1 at BROKER://broker-1:9094", str(LevelRange(oldest, newest)), way):
        assert text in caught.value.message


def test_brokers_of_two_versions_register_in_one_cluster() -> None:
    image = at(OLD)
    for request, levels in (
        (with_levels(ONE, OLD, OLD), ONLY_OLD),
        (with_levels(TWO, OLD, NEW + 1), LevelRange(OLD, NEW + 1)),
    ):
        image = after(image, register(request, image, CONFIG, DEAD).records)
        assert image.brokers[request.broker_id].levels == levels


def test_levels_that_a_snapshot_has_lost_come_back_with_the_next_registration() -> None:
    """1.0.0-rc1 writes no level ranges into its snapshots. A broker without them registers again,
    and keeps its epoch and its state."""
    image = after(at(OLD), register(with_levels(ONE, OLD, NEW), at(OLD), CONFIG, DEAD).records)
    known = image.brokers[ONE]
    lost = replace(image, brokers={**image.brokers, ONE: replace(known, features={})})
    again = register(with_levels(ONE, OLD, NEW), lost, CONFIG, DEAD)
    (record,) = again.records
    assert isinstance(record, RegisterBrokerRecord)
    assert again.reply.broker_epoch == known.broker_epoch
    assert after(lost, again.records).brokers[ONE] == known
    assert register(with_levels(ONE, OLD, NEW), image, CONFIG, DEAD).records == []


def test_a_controller_passes_the_order_on() -> None:
    image = at(OLD)
    key = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=NEW)
    order = FeatureUpdate(UpdateFeaturesRequest(feature_updates=[key]), NODES)
    assert CONTROLLER.handle(order, image, 0).records == [level_record(NEW)]
