"""ApiVersions names the level of the metadata log, and orders of a later level are refused."""

from __future__ import annotations

import pytest

from broker.controller.features import SAFE_DOWNGRADE, UPGRADE
from broker.metadata.features import LEVEL_4_0_IV1, METADATA_LEVEL, METADATA_VERSION, SUPPORTED
from broker.metadata.records import BROKER_RESOURCE
from protocol.errors import ErrorCode
from protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.messages.scram import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from protocol.wire.schema import Message
from tests.unit.broker.rig import Rig

UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION


def ask_versions(rig: Rig, version: int = 3) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = rig.ask(request, version)
    assert isinstance(answer, ApiVersionsResponse)
    return answer


def set_level(rig: Rig, level: int, kind: int) -> None:
    key = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level, upgrade_type=kind)
    (result,) = rig.ask(UpdateFeaturesRequest(feature_updates=[key]), 1).results
    assert result.error_code == ErrorCode.NONE, result.error_message


def finalised(answer: ApiVersionsResponse) -> dict[str, tuple[int, int]]:
    return {
        one.name: (one.min_version_level, one.max_version_level)
        for one in answer.finalized_features
    }


def test_the_level_and_its_epoch_are_shown() -> None:
    rig = Rig()
    answer = ask_versions(rig)
    (supported,) = answer.supported_features
    assert supported.name == METADATA_VERSION
    assert (supported.min_version, supported.max_version) == SUPPORTED
    assert finalised(answer) == {METADATA_VERSION: (METADATA_LEVEL, METADATA_LEVEL)}
    set_level(rig, LEVEL_4_0_IV1, SAFE_DOWNGRADE)
    again = ask_versions(rig)
    assert finalised(again) == {METADATA_VERSION: (LEVEL_4_0_IV1, LEVEL_4_0_IV1)}
    assert again.finalized_features_epoch > answer.finalized_features_epoch
    assert ask_versions(rig, 2).finalized_features == [], "older clients do not know features"


USER = AlterUserScramCredentialsRequest(
    upsertions=[
        ScramCredentialUpsertion(
            name="shop", mechanism=1, iterations=4_096, salt=b"s" * 16, salted_password=b"p" * 32
        )
    ]
)
CORDON = IncrementalAlterConfigsRequest(
    resources=[
        AlterConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name="1",
            configs=[AlterableConfig(name="cordoned.log.dirs", value="*")],
        )
    ]
)
CORDON_BY_ALL = AlterConfigsRequest(
    resources=[
        AlterConfigsRequestResource(
            resource_type=BROKER_RESOURCE,
            resource_name="1",
            configs=[AlterConfigsRequestConfig(name="cordoned.log.dirs", value="*")],
        )
    ]
)
MOVE = AlterPartitionReassignmentsRequest(
    topics=[
        ReassignableTopic(
            name="logs", partitions=[ReassignablePartition(partition_index=0, replicas=[1])]
        )
    ]
)


def codes_of(answer: Message) -> list[int]:
    """Return the error code of each item of a response."""
    items = getattr(answer, "results", None) or answer.responses  # type: ignore[attr-defined]
    parts = [part for one in items for part in getattr(one, "partitions", [one])]
    return [part.error_code for part in parts]


@pytest.mark.parametrize(
    ("order", "version"), [(USER, 0), (CORDON, 1), (CORDON_BY_ALL, 2), (MOVE, 1)]
)
def test_a_lower_level_refuses_orders_with_a_code_that_no_client_retries(
    order: Message, version: int
) -> None:
    rig = Rig()
    set_level(rig, LEVEL_4_0_IV1, SAFE_DOWNGRADE)
    assert codes_of(rig.ask(order, version)) == [UNSUPPORTED]
    set_level(rig, METADATA_LEVEL, UPGRADE)
    assert UNSUPPORTED not in codes_of(rig.ask(order, version))
