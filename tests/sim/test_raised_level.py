"""A raised level of the metadata log: every broker takes the requests that need it at once."""

from __future__ import annotations

from typing import Any

import pytest

from broker.controller.features import UPGRADE
from broker.metadata.features import LEVEL_4_0_IV1, METADATA_LEVEL, METADATA_VERSION
from broker.metadata.image import MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from tests.sim.test_whole_brokers import is_in_service
from tests.sim.whole_brokers import WholeBroker, WholeCluster


def level_of(image: MetadataImage) -> int | None:
    return image.features.get(METADATA_VERSION)


def add_user() -> AlterUserScramCredentialsRequest:
    upsertion = ScramCredentialUpsertion(
        name="shop", mechanism=1, iterations=4_096, salt=b"s" * 16, salted_password=b"p" * 32
    )
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


class Asked:
    """A request to one broker, and its answer."""

    def __init__(self, node: WholeBroker, order: Any) -> None:
        self.answer: Any = None
        node.metadata.submit(order, self._told, self._told)

    def _told(self, answer: Any) -> None:
        self.answer = answer


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> WholeCluster:
    """Three brokers of this version, whose log has the level of 1.0.0-rc1."""
    monkeypatch.setattr("broker.controller.features.METADATA_LEVEL", LEVEL_4_0_IV1)
    found = WholeCluster("raised level")
    for node in found.nodes:
        node.start()
    found.run_until(lambda: is_in_service(found), 60_000, "all in service")
    monkeypatch.undo()
    return found


def test_a_broker_that_does_not_know_the_raised_level_yet_asks_the_controller(
    cluster: WholeCluster,
) -> None:
    """The controller answers as soon as the level is committed. Until the next answer to its fetch
    a follower has the image of before."""
    leader = cluster.active()
    assert leader is not None
    followers = [node for node in cluster.nodes if node is not leader]
    asked: list[Asked] = []

    def raised(answer: Any) -> None:
        assert answer.results[0].error_code == ErrorCode.NONE
        assert level_of(leader.metadata.image) == METADATA_LEVEL
        assert {level_of(one.metadata.image) for one in followers} == {LEVEL_4_0_IV1}
        asked.extend(Asked(one, add_user()) for one in followers)

    key = FeatureUpdateKey(
        feature=METADATA_VERSION, max_version_level=METADATA_LEVEL, upgrade_type=UPGRADE
    )
    order = UpdateFeaturesRequest(feature_updates=[key], timeout_ms=5_000)
    refusals: list[ApiError] = []
    leader.metadata.submit(order, raised, refusals.append)
    cluster.run_until(
        lambda: len(asked) == 2 and all(one.answer for one in asked), 10_000, "both are answered"
    )
    assert refusals == []
    for one in asked:
        assert isinstance(one.answer, AlterUserScramCredentialsResponse), one.answer
        assert [result.error_code for result in one.answer.results] == [ErrorCode.NONE]


def test_a_level_that_was_not_raised_refuses_on_every_broker(cluster: WholeCluster) -> None:
    asked = [Asked(node, add_user()) for node in cluster.nodes]
    cluster.run_until(lambda: all(one.answer for one in asked), 10_000, "all are answered")
    for one in asked:
        assert isinstance(one.answer, ApiError)
        assert one.answer.code is ErrorCode.UNSUPPORTED_VERSION
        assert "upgrade finalize" in one.answer.message
