"""`doctor` compares topics with what the file states for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.checks import topic_settings
from appliance.checks.startup import CheckLevel
from appliance.checks.topic_settings import TopicFacts, differences
from appliance.config.load import load_text
from appliance.mill.home import find_home
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill
from tests.unit.appliance.fake_cluster import TOPIC, FakeCluster


def test_a_topic_like_the_file_is_no_finding() -> None:
    stated = {"logs": TopicFacts(3, {"retention.ms": "1000"}), "absent": TopicFacts(9, {})}
    assert list(differences(stated, {"logs": TopicFacts(4, {"retention.ms": "1000"})})) == []


def test_a_topic_that_differs_is_named_with_the_command() -> None:
    stated = {"logs": TopicFacts(6, {"retention.ms": "1000", "cleanup.policy": "delete"})}
    found = {"logs": TopicFacts(3, {"retention.ms": "604800000", "cleanup.policy": "delete"})}
    [check] = differences(stated, found)
    assert check.level is CheckLevel.WARNING
    assert str(check) == (
        "topic logs: the file states retention.ms=1000, found 604800000; 6 partitions, found 3;"
        " the mill does not change a topic that exists; `./millrace topic alter logs"
        " -c retention.ms=1000 -p 6`"
    )


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    cluster = FakeCluster({1: None})
    cluster.topic("logs", [1])
    cluster.settings[TOPIC, "logs"] = {"retention.ms": "604800000"}
    with cluster.serving():
        yield cluster


def mill(folder: Path, servers: str) -> Mill:
    text = f"""
cluster: {{bootstrap_servers: "{servers}"}}
topics: [{{name: logs, settings: {{retention.ms: 172800000}}}}, {{name: absent, partitions: 2}}]
"""
    home = find_home({"MILLRACE_HOME": str(folder)})
    return Mill(home, load_text(text, "mill.yaml", folder, {}).config, Placement())


def test_the_cluster_is_asked(cluster: FakeCluster, tmp_path: Path) -> None:
    [check] = topic_settings.rows(mill(tmp_path, cluster.address))
    assert "retention.ms=172800000, found 604800000" in check.found
    cluster.settings[TOPIC, "logs"] = {"retention.ms": "172800000"}
    assert list(topic_settings.rows(mill(tmp_path, cluster.address))) == []


def test_a_cluster_that_does_not_answer_is_a_warning(tmp_path: Path) -> None:
    [check] = topic_settings.rows(mill(tmp_path, "127.0.0.1:1"), timeout_ms=200)
    assert check.level is CheckLevel.WARNING
    assert "no broker answers" in check.found
