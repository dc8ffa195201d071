"""Decides UpdateFeatures, and keeps records out of the log that the log's level does not have.

This module is pure. The level of the metadata log changes only when an operator requests it
(KIP-584, KIP-778). It rises when every registered broker, in service or not, and every voter
supports the new level (KIP-1073). It falls only if nothing in the image needs the present level.
The errors are Kafka's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from broker.controller.outcome import ControllerDecision
from broker.metadata.broker_image import BrokerImage
from broker.metadata.features import (
    ACLS,
    METADATA_LEVEL,
    METADATA_VERSION,
    MOVES,
    QUOTAS,
    SUPPORTED,
    USERS,
    VOTER_CHANGES,
    LevelNeed,
    named,
    need_of,
    need_of_setting,
)
from broker.metadata.image import MetadataImage
from broker.metadata.records import FeatureLevelRecord, MetadataRecord
from broker.metadata.snapshot import records_of
from protocol.errors import ApiError, ErrorCode
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest
from protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from protocol.messages.elections import AlterPartitionReassignmentsRequest
from protocol.messages.features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.messages.quotas import AlterClientQuotasRequest
from protocol.messages.scram import AlterUserScramCredentialsRequest
from protocol.messages.voters import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

NAMED_MAX = 10
"""The most brokers and voters that a refusal names."""


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """An UpdateFeatures request to decide, with the node ids of the quorum's voters."""

    request: UpdateFeaturesRequest
    voters: Sequence[int]


def birth_level(image: MetadataImage) -> int:
    """Return the level of a log that has no level yet: the newest level that all brokers
    support."""
    return min([METADATA_LEVEL, *(one.levels.newest for one in image.brokers.values())])


def refuse_order(order: object, image: MetadataImage) -> None:
    """Raise UNSUPPORTED_VERSION if the log's level has no records for a controller request.

    The controller checks every request. A broker checks its clients' requests before it forwards
    them to a controller of an older version, which does not know these requests.
    """
    match order:
        case AlterPartitionReassignmentsRequest():
            _refuse(MOVES, image)
        case AlterUserScramCredentialsRequest():
            _refuse(USERS, image)
        case CreateAclsRequest() | DeleteAclsRequest():
            _refuse(ACLS, image)
        case AlterClientQuotasRequest():
            _refuse(QUOTAS, image)
        case AddRaftVoterRequest() | RemoveRaftVoterRequest() | UpdateRaftVoterRequest():
            _refuse(VOTER_CHANGES, image)
        case IncrementalAlterConfigsRequest() | AlterConfigsRequest():
            for resource in order.resources:
                for one in resource.configs:
                    if need := need_of_setting(one.name, one.value):
                        _refuse(need, image)


def refuse_newer(records: Iterable[MetadataRecord], image: MetadataImage) -> None:
    """Raise UNSUPPORTED_VERSION if the log's level does not have one of the records."""
    for record in records:
        need = need_of(record)
        if need is not None:
            _refuse(need, image)


def _refuse(need: LevelNeed, image: MetadataImage) -> None:
    level = image.features.get(METADATA_VERSION, 0)
    if level < need.level:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{need.what} need {METADATA_VERSION} {named(need.level)}, and this cluster is at "
            f"{named(level)}: when all brokers run this version, run "
            f"'./millrace upgrade finalize' or 'bin/kafka-features upgrade --feature "
            f"{METADATA_VERSION}={need.level}'",
        )


def update_features(
    order: FeatureUpdate, image: MetadataImage
) -> ControllerDecision[UpdateFeaturesResponse]:
    """Return one result per feature: NONE if the feature gets or has the requested level, else the
    reason. With `validate_only` nothing is written."""
    results = []
    records: list[MetadataRecord] = []
    counts = Counter(update.feature for update in order.request.feature_updates)
    for update in order.request.feature_updates:
        present = image.features.get(update.feature, 0)
        why = (
            f"feature {update.feature} is named twice"
            if counts[update.feature] > 1
            else _refusal(update, present, order.voters, image)
        )
        code = ErrorCode.NONE if why is None else ErrorCode.INVALID_UPDATE_VERSION
        results.append(
            UpdatableFeatureResult(feature=update.feature, error_code=code, error_message=why)
        )
        if why is None and update.max_version_level != present:
            level = update.max_version_level
            records.append(FeatureLevelRecord(name=update.feature, feature_level=level))
    if order.request.validate_only:
        records.clear()
    return ControllerDecision(records, UpdateFeaturesResponse(results=results))


def _refusal(
    update: FeatureUpdateKey, level: int, voters: Sequence[int], image: MetadataImage
) -> str | None:
    """Return the reason why a feature cannot get the requested level; None if it can."""
    wanted = update.max_version_level
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return (
            f"found upgrade type {update.upgrade_type}, expected 1 (upgrade), 2 (safe "
            "downgrade) or 3 (unsafe downgrade)"
        )
    if wanted < 0:
        return f"found level {wanted}, expected 0 or more"
    if wanted == level:
        return None
    if update.feature != METADATA_VERSION:
        return f"feature {update.feature} is not supported: the only feature is {METADATA_VERSION}"
    if wanted not in SUPPORTED:
        return (
            f"level {wanted} is not supported: this version of the broker has the levels "
            f"{SUPPORTED}"
        )
    if wanted > level and update.upgrade_type != UPGRADE:
        return (
            f"level {wanted} is above the present level {level}, but the request is for a "
            "downgrade: request an upgrade"
        )
    if wanted < level and update.upgrade_type == UPGRADE:
        return (
            f"level {wanted} is below the present level {level}, but the request is for an "
            "upgrade: request a downgrade"
        )
    if update.upgrade_type == UNSAFE_DOWNGRADE:
        return "a downgrade that loses metadata is not supported: restore a backup instead"
    if wanted < level and (needs := _needs_above(wanted, image)):
        return (
            f"level {wanted} does not have {needs}: remove them, or restore a backup of the "
            "time before the upgrade"
        )
    if behind := list(_not_following(wanted, voters, image)):
        more = len(behind) - NAMED_MAX
        return (
            f"these brokers and voters do not support level {wanted}: "
            f"{', '.join(behind[:NAMED_MAX])}{f' and {more} more' if more > 0 else ''}. Start "
            "them with a version that supports it, or remove brokers that will not come back"
        )
    return None


def _needs_above(level: int, image: MetadataImage) -> str:
    """Return a text that names what the image has and a lower level does not have, with the number
    of records."""
    needs = (need_of(record) for record in records_of(image))
    counts = Counter(need.what for need in needs if need is not None and need.level > level)
    return ", ".join(f"{what} ({count})" for what, count in sorted(counts.items()))


def _not_following(level: int, voters: Sequence[int], image: MetadataImage) -> Iterator[str]:
    """Yield the brokers and voters that do not support a level, with the reason."""
    for node_id, broker in sorted(image.brokers.items()):
        if level not in broker.levels:
            yield f"broker {node_id}{_state_of(broker)} supports {broker.levels}"
    for node_id in sorted(set(voters) - image.brokers.keys()):
        yield f"voter {node_id} is not registered"


def _state_of(broker: BrokerImage) -> str:
    return "" if broker.is_active else " (not in service)"
