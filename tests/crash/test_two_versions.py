"""Brokers of 1.0.0-rc1 and of this version form one cluster, while an acks=all producer writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.controller.features import SAFE_DOWNGRADE, UPGRADE
from broker.metadata.features import (
    LEVEL_4_0_IV1,
    METADATA_LEVEL,
    METADATA_VERSION,
    SUPPORTED,
)
from broker.real.process import EXIT_FAILED
from protocol.errors import ErrorCode
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.messages.scram import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from tests.crash.test_moving_replicas import TOPIC, Writer, read
from tests.harness.broker import BrokerProcess
from tests.harness.cluster import ClusterProcesses
from tests.harness.released import released_code, run_present, run_released
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient

pytestmark = pytest.mark.live

DEADLINE_S = 60.0
MORE = 200
"""Records that must be acknowledged after each restart before the test goes on."""


class Upgrade:
    """Three brokers and a writer. Each broker runs one of two versions."""

    def __init__(self, cluster: ClusterProcesses, code: Path) -> None:
        self.cluster = cluster
        self.code = code
        self.writer = Writer(cluster.bootstrap)

    def restart(self, node_id: int, *, present: bool) -> None:
        """Restart one broker with this version (`present`) or with 1.0.0-rc1."""
        broker = self.cluster.brokers[node_id]
        assert broker.stop() == 0, broker.log_text()
        if present:
            run_present(broker)
        else:
            run_released(broker, self.code)
        broker.start()
        wait_until(self._in_sync, DEADLINE_S, "all replicas are in sync")
        self.writer.wait_for(self.writer.acknowledged + MORE)

    def _in_sync(self) -> bool:
        newest = max(self.cluster.details(), key=lambda one: int(one.get("metadata_offset", -1)))
        return "copies" in newest and newest["copies"]["not_in_sync"] == 0


def features(broker: BrokerProcess) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    with WireClient(broker.bootstrap) as client:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = client.ask(request, 3)
    assert answer.finalized_features_epoch > 0
    return (
        {one.name: (one.min_version, one.max_version) for one in answer.supported_features},
        {one.name: one.max_version_level for one in answer.finalized_features},
    )


def order_level(broker: BrokerProcess, level: int, kind: int = UPGRADE) -> str | None:
    """Order a level of `metadata.version`. Return the reason of a rejection, or None."""
    key = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level, upgrade_type=kind)
    with WireClient(broker.bootstrap) as client:
        (result,) = client.ask(UpdateFeaturesRequest(feature_updates=[key]), 1).results
    message: str | None = result.error_message
    assert (result.error_code == ErrorCode.NONE) == (message is None)
    return message


def add_user(broker: BrokerProcess) -> tuple[ErrorCode, str | None]:
    upsertion = ScramCredentialUpsertion(
        name="shop", mechanism=1, iterations=4_096, salt=b"s" * 16, salted_password=b"p" * 32
    )
    with WireClient(broker.bootstrap) as client:
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
        (result,) = client.ask(request, 0).results
    return ErrorCode(result.error_code), result.error_message


def test_an_upgrade_there_and_back_and_its_end_lose_nothing(tmp_path: Path) -> None:
    """Upgrade one broker and downgrade it again, then upgrade all, then raise
    `metadata.version`."""
    upgraded(tmp_path, [1], is_long=False)


@pytest.mark.slow
def test_the_level_rises_and_falls_and_all_brokers_go_back(tmp_path: Path) -> None:
    upgraded(tmp_path, [1, 2, 3], is_long=True)


def upgraded(folder: Path, there_and_back: list[int], *, is_long: bool) -> None:
    """Upgrade a cluster of three brokers while a producer writes. A reader must then get every
    record once and in order."""
    cluster = ClusterProcesses(folder)
    code = released_code(folder)
    for broker in cluster.brokers.values():
        run_released(broker, code)
    with cluster:
        cluster.wait_for_controller()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
        upgrade = Upgrade(cluster, code)
        upgrade.writer.start()
        upgrade.writer.wait_for(MORE)
        _there_and_back(upgrade, there_and_back)
        for node_id in cluster.node_ids:
            upgrade.restart(node_id, present=True)
        if is_long:
            _rises_and_falls(upgrade)
        _finalised(upgrade)
        upgrade.writer.stop()
        assert upgrade.writer.errors == []
        assert read(cluster, upgrade.writer.sent) == [
            b"%d" % number for number in range(upgrade.writer.sent)
        ]


def _there_and_back(upgrade: Upgrade, node_ids: list[int]) -> None:
    """Run these brokers with this version for a while, and then with 1.0.0-rc1 again. 1.0.0-rc1
    must be able to read everything that this version wrote."""
    (first, *_) = upgrade.cluster.brokers.values()
    for node_id in node_ids:
        upgrade.restart(node_id, present=True)
    assert features(first) == (
        {METADATA_VERSION: tuple(SUPPORTED)},
        {METADATA_VERSION: LEVEL_4_0_IV1},
    )
    if len(node_ids) < upgrade.cluster.size:
        assert order_level(first, METADATA_LEVEL) is not None
    code, message = add_user(first)
    assert code is ErrorCode.UNSUPPORTED_VERSION
    assert "./millrace upgrade finalize" in (message or "")
    for node_id in node_ids:
        upgrade.restart(node_id, present=False)


def _rises_and_falls(upgrade: Upgrade) -> None:
    """Raise `metadata.version`, and lower it again while no stored record needs the higher level.
    Then one broker can run 1.0.0-rc1 again. While it does, the level cannot be raised."""
    (first, second, third) = upgrade.cluster.brokers.values()
    assert order_level(first, METADATA_LEVEL) is None
    assert order_level(second, LEVEL_4_0_IV1, SAFE_DOWNGRADE) is None
    upgrade.restart(third.node_id, present=False)
    refusal = order_level(first, METADATA_LEVEL)
    assert refusal is not None and f"broker {third.node_id} supports 23" in refusal
    upgrade.restart(third.node_id, present=True)


def _finalised(upgrade: Upgrade) -> None:
    """Raise `metadata.version` for good. From then on a broker of 1.0.0-rc1 must not start."""
    (first, second, third) = upgrade.cluster.brokers.values()
    assert order_level(first, METADATA_LEVEL + 1) is not None
    assert order_level(first, METADATA_LEVEL) is None
    # The controller decides by its level, also if this broker does not know the new level yet.
    assert add_user(second) == (ErrorCode.NONE, None)
    refusal = order_level(first, LEVEL_4_0_IV1, SAFE_DOWNGRADE)
    assert refusal is not None and "users with SCRAM credentials" in refusal
    # A broker of 1.0.0-rc1 does not start any more, and its log says why.
    assert third.stop() == 0
    run_released(third, upgrade.code)
    third.spawn()
    assert third.wait() == EXIT_FAILED
    assert "run the version that wrote it, or a later one" in third.log_text()
    run_present(third)
    third.start()
    wait_until(
        lambda: features(third)[1] == {METADATA_VERSION: METADATA_LEVEL}, DEADLINE_S, "it follows"
    )
