"""`kafka-features` prints Kafka's messages and exit codes, beside a scripted cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from appliance.kafka_tools.features import main
from appliance.output import Exit
from protocol.messages.features import UpdateFeaturesRequest
from tests.unit.appliance.fake_cluster import NODE_IDS, FakeCluster

SERVER = ("--bootstrap-server", "127.0.0.1:1")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    fake = FakeCluster(
        dict.fromkeys((1, 2, 3)), supported=dict.fromkeys(NODE_IDS, (23, 24)), level=23
    )
    with fake.serving():
        yield fake


def call(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, list[str], list[str]]:
    code = main(("--bootstrap-server", cluster.address, *arguments))
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err.splitlines()


def test_describe_prints_a_line_for_each_feature(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    line = (
        f"Feature: metadata.version{' ' * 26}SupportedMinVersion: 4.0-IV1{' ' * 10}"
        f"SupportedMaxVersion: 4.0-IV2{' ' * 10}FinalizedVersionLevel: 4.0-IV1{' ' * 10}Epoch: 7"
    )
    assert call(cluster, capsys, "describe") == (0, [line], [])
    assert call(cluster, capsys, "describe", "--node-id", "2") == (0, [line], [])
    cluster.supported[1] = 25, 26
    _, (line,), _ = call(cluster, capsys, "describe", "--node-id", "1")
    assert "SupportedMaxVersion: UNKNOWN 26 " in line


def test_upgrade_and_downgrade_by_name_and_by_level(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = call(cluster, capsys, "upgrade", "--metadata", "4.0-IV2", "--dry-run")
    notice = " `metadata` flag is deprecated and may be removed in a future release."
    assert (dry, cluster.level) == (
        (0, [notice, "metadata.version can be upgraded to 24."], []),
        23,
    )
    done = call(cluster, capsys, "upgrade", "--release-version", "4.0-IV2")
    assert (done, cluster.level) == ((0, ["metadata.version was upgraded to 24."], []), 24)
    done = call(cluster, capsys, "downgrade", "--feature", "metadata.version=23")
    assert (done, cluster.level) == ((0, ["metadata.version was downgraded to 23."], []), 23)
    kinds = [
        one.feature_updates[0].upgrade_type
        for one in cluster.asked
        if isinstance(one, UpdateFeaturesRequest)
    ]
    assert kinds == [1, 1, 2]
    call(cluster, capsys, "disable", "--feature", "metadata.version", "--unsafe")
    assert cluster.asked[-1].feature_updates[0].max_version_level == 0
    assert cluster.asked[-1].feature_updates[0].upgrade_type == 3


def test_a_refusal_is_printed_with_its_reason(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.supported[3] = 23, 23
    code, out, err = call(cluster, capsys, "upgrade", "--feature", "metadata.version=24")
    assert code == Exit.FAILED
    assert out == [
        "Could not upgrade metadata.version to 24. broker 3 cannot follow",
    ]
    assert err == ["1 out of 1 operation(s) failed."]
    code, out, _ = call(cluster, capsys, "upgrade", "--metadata", "4.0-IV2", "--dry-run")
    assert out[1:] == ["Can not upgrade metadata.version to 24. broker 3 cannot follow"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "expected a command"),
        (("describe", "--unsafe"), 2, "--unsafe does not belong to describe"),
        (("upgrade", "--node-id", "1"), 2, "--node-id does not belong to upgrade"),
        (("upgrade", "--metadata", "a", "--release-version", "b"), 2, "not allowed with"),
        (("upgrade",), 1, "You must specify at least one feature to upgrade"),
        (("upgrade", "--metadata", "9.9"), 1, "Unknown metadata.version '9.9'. Supported"),
        (("upgrade", "--feature", "f"), 1, "equals sign not found"),
        (("upgrade", "--feature", "f=x"), 1, "unable to parse x as a short"),
        (("upgrade", "--feature", "f=40000"), 1, "unable to parse 40000 as a short"),
        (("upgrade", "--feature", "f=1", "--feature", "f=2"), 1, "more than once"),
        (("version-mapping",), 2, "4.0-IV1, 4.0-IV2"),
        (("--bootstrap-controller", "x", "describe"), 2, "ask a broker"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main((*SERVER, *arguments)) == code
    assert said in capsys.readouterr().err
