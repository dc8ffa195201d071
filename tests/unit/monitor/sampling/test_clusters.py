"""Other clusters on the page: each is shown by its name, and an unreachable cluster does not affect
the others."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from monitor.config.settings import CLUSTERS_MAX, ClusterSection, MonitorSection, MonitorSettings
from monitor.http import create_app
from monitor.sampling.clusters import clusters_of
from monitor.sampling.sampler import Sampler
from monitor.state.reading import Reading
from monitor.state.snapshot import SourceError
from monitor.views.clusters import cluster_view
from tests.harness.wait import wait_until
from tests.unit.monitor.readings import kafka_reading, reading, row
from tests.unit.monitor.test_http import HOSTILE, Addresses, Script, never, some_reading

NAMES = ("shop", "away")


def other(group_id: str = "billing", at_ms: int = 10_000) -> Reading:
    kafka = kafka_reading(
        at_ms, commits={row(0): 7, row(1): 4}, ends={row(0): 77, row(1): 4}, group_id=group_id
    )
    return reading(at_ms, kafka, ())


def away(at_ms: int = 10_000) -> Reading:
    return Reading(at_ms, (), None, (SourceError("brokers", "10.0.0.9:9092: refused"),))


SOURCES = {"shop": Script(other()), "away": Script(away())}


@pytest.fixture
def client() -> Iterator[TestClient]:
    SOURCES["shop"].one, SOURCES["away"].one = other(), away()
    sections = tuple(
        ClusterSection(name=name, bootstrap_servers=f"{name}.example:9092") for name in NAMES
    )
    settings = MonitorSettings(
        section=MonitorSection(clusters=sections, refresh="200ms"),
        bootstrap_servers="127.0.0.1:9092", data_dir="data", parts={},
    )  # fmt: skip
    clusters = clusters_of(settings, lambda: 10_000, lambda one: SOURCES[one.name])
    app = create_app(
        settings, Sampler(settings, Script(some_reading()), lambda: 10_000), started_at_ms=0,
        clock_ms=lambda: 10_000, on_failure=never, clusters=clusters,
    )  # fmt: skip
    with TestClient(app, base_url="http://127.0.0.1:8090") as opened:
        wait_until(lambda: opened.get("/healthz").status_code == 200, 10, "the first snapshot")
        wait_until(
            lambda: all(view.snapshot is not None for view in clusters.views()), 10, "all are asked"
        )
        yield opened


def test_each_is_shown_by_its_name_and_the_mills_own_as_before(client: TestClient) -> None:
    page = client.get("/clusters").text
    for text in (
        'data-cluster="shop"',
        "● up",
        'data-cluster="away"',
        "✕ away",
        "billing",
        "10.0.0.9:9092: refused",
        "It has never answered",
        'data-cluster="this mill"',
    ):
        assert text in page
    assert 'href="/clusters"' in client.get("/").text
    # Groups of other clusters are not in the tables of the mill's own cluster.
    assert "billing" not in client.get("/groups").text
    assert ">1,234<" in client.get("/").text
    assert client.get("/healthz").text == "ok\n"


def test_a_cluster_has_its_groups_topics_brokers_and_lag(client: TestClient) -> None:
    page = client.get("/clusters/shop").text
    for text in ('data-group="billing"', ">70<", 'data-topic="logs.access"', 'data-node="1"'):
        assert text in page
    lag = client.get("/api/v1/clusters/shop/lag").json()
    assert [(one["group"], one["lag"]) for one in lag["data"]] == [("billing", 70), ("billing", 0)]
    for what in ("brokers", "topics", "groups"):
        assert client.get(f"/api/v1/clusters/shop/{what}").json()["data"]
    rows = client.get("/api/v1/clusters").json()["data"]
    assert [(one["cluster"], one["state"], one["partitions"]) for one in rows] == [
        ("shop", "up", 2),
        ("away", "away", None),
    ]
    table = client.get("/api/v1/clusters/shop/topics", params={"format": "csv"}).text
    assert table.splitlines()[1].startswith("logs.access,")


def test_one_that_is_away_is_known_by_nothing_that_was_not_read(client: TestClient) -> None:
    page = client.get("/clusters/away").text
    assert "unknown brokers answer" in page
    assert "10.0.0.9:9092: refused" in page
    answer = client.get("/api/v1/clusters/away/lag").json()
    assert answer["data"] == []
    assert answer["errors"] == [{"source": "brokers", "text": "10.0.0.9:9092: refused"}]
    metrics = client.get("/metrics").text
    assert 'millrace_cluster_up{cluster="away"} 0.0' in metrics
    assert 'millrace_cluster_up{cluster="shop"} 1.0' in metrics
    assert 'millrace_cluster_group_lag_offsets{cluster="shop",group="billing"} 70.0' in metrics
    assert 'millrace_cluster_partitions{cluster="away"}' not in metrics


def test_one_that_goes_away_keeps_what_was_known_of_it(client: TestClient) -> None:
    SOURCES["shop"].one = away(40_000)
    wait_until(lambda: "30 s old" in client.get("/clusters").text, 10, "shop is away")
    page = client.get("/clusters/shop").text
    assert 'data-group="billing"' in page
    assert "✕ away" in page
    assert 'millrace_cluster_up{cluster="shop"} 0.0' in client.get("/metrics").text
    SOURCES["shop"].one = other(at_ms=50_000)
    wait_until(lambda: "● up" in client.get("/clusters/shop").text, 10, "shop is back")


def test_what_is_not_there_is_404_and_names_stay_text(client: TestClient) -> None:
    assert client.get("/clusters/none").status_code == 404
    assert client.get("/api/v1/clusters/none/lag").status_code == 404
    assert client.get("/api/v1/clusters/shop/weather").status_code == 422
    SOURCES["shop"].one = other(HOSTILE)
    wait_until(lambda: "&lt;img" in client.get("/clusters/shop").text, 10, "the group is seen")
    for path in ("/clusters", "/clusters/shop"):
        text = client.get(path).text
        assert HOSTILE not in text
        page = Addresses()
        page.feed(text)
        assert page.inline == []
        assert text.count("<h1>") == 1


def test_a_mill_without_other_clusters_has_no_such_page() -> None:
    settings = MonitorSettings(bootstrap_servers="127.0.0.1:9092", data_dir="data", parts={})
    sampler = Sampler(settings, Script(some_reading()), lambda: 10_000)
    app = create_app(settings, sampler, started_at_ms=0, clock_ms=lambda: 10_000, on_failure=never)
    with TestClient(app, base_url="http://127.0.0.1:8090") as client:
        wait_until(lambda: client.get("/healthz").status_code == 200, 10, "the first snapshot")
        assert client.get("/clusters").status_code == 404
        assert "/clusters" not in client.get("/").text


def test_before_it_is_asked_it_is_being_measured() -> None:
    view = cluster_view("shop", "shop:9092", None)
    assert (view.level, view.badge, view.brokers) == ("unknown", "measuring", "unknown")
    assert (view.groups, view.topics, view.worst) == ([], [], None)


@pytest.mark.parametrize(
    ("clusters", "complaint"),
    [
        ([{"name": "Shop", "bootstrap_servers": "a:1"}], "small letters"),
        ([{"name": "s" * 41, "bootstrap_servers": "a:1"}], "at most 40"),
        ([{"name": "shop", "bootstrap_servers": "a"}], "expected host:port"),
        ([{"name": "shop", "bootstrap_servers": "a:1"}] * 2, "twice"),
        (
            [{"name": f"c{n}", "bootstrap_servers": "a:1"} for n in range(CLUSTERS_MAX + 1)],
            "expected at most 8",
        ),
    ],
)
def test_clusters_that_cannot_be_are_faults(clusters: list[dict[str, str]], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        MonitorSection.model_validate({"clusters": clusters})
