"""The page, the API and the metrics of the collectors of other hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.site.collectors import PAGE_ROWS, skew_text
from monitor.state.collectors import Heard
from monitor.state.snapshot import Snapshot
from monitor.views.collectors import SILENT_MS, judge
from monitor.views.render import UNKNOWN
from protocol.status import Problem
from tests.unit.monitor.scene import FLOWING, HOSTILE, NOW_MS
from tests.unit.monitor.site.test_pages import Site
from tests.unit.monitor.views.test_collectors import report

NUMBER = 120


def with_collectors(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with 120 collectors, of which three have trouble."""
    heard = [Heard(report(f"web-{number:03}"), NOW_MS) for number in range(NUMBER - 3)]
    problems = (Problem("files", HOSTILE),)
    heard += [
        Heard(report("zz-gone"), NOW_MS - SILENT_MS - 1),
        Heard(report("zz-clock", skew_ms=120_000), NOW_MS),
        Heard(report("zz-bad", problems=problems, problems_total=1, host=HOSTILE), NOW_MS),
    ]
    return replace(snapshot, collectors=judge(heard, NOW_MS))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(FLOWING, tmp_path_factory.mktemp("history"), with_collectors) as made:
        yield made


def names(page: str) -> list[str]:
    return re.findall(r'data-collector="([^"]*)"', page)


def test_without_such_collectors_nothing_is_new(tmp_path: Path) -> None:
    with Site(FLOWING, tmp_path) as plain:
        assert "/collectors" not in plain.text("/")
        assert "millrace_remote" not in plain.text("/metrics")
        assert "collectors" not in plain.client.get("/status").json()["details"]
        assert plain.client.get("/api/v1/collectors").json()["data"] == []
        assert "No collector of another host has reported." in plain.text("/collectors")


def test_the_list_shows_fifty_at_a_time_and_trouble_first(site: Site) -> None:
    assert 'href="/collectors"' in site.text("/")
    first, last = site.text("/collectors"), site.text("/collectors?page=3")
    assert len(names(first)) == PAGE_ROWS
    assert names(first)[:4] == ["zz-gone", "zz-bad", "zz-clock", "web-000"]
    assert names(last) == [f"web-{number:03}" for number in range(97, 117)]
    assert names(site.text("/collectors?page=99")) == names(last)
    assert names(site.text("/collectors?page=-1")) == names(first)
    assert "what each collector says of itself" in first
    assert HOSTILE not in first


def test_the_rows_of_the_api_and_the_metrics_agree(site: Site) -> None:
    rows = site.client.get("/api/v1/collectors").json()["data"]
    assert len(rows) == NUMBER
    assert [row["health"] for row in rows[:4]] == ["silent", "problem", "wrong clock", "working"]
    metrics = site.text("/metrics")
    assert 'millrace_remote_collectors{state="working"} 117.0' in metrics
    assert 'millrace_remote_collector_silent{collector="zz-gone",group="web"} 1.0' in metrics
    skew = 'millrace_remote_collector_skew_seconds{collector="zz-clock",group="web"} 120.0'
    assert skew in metrics
    assert 'skew_seconds{collector="web-000"' not in metrics, "it is unknown"
    details = site.client.get("/status").json()["details"]
    assert details["collectors"]["working"] == 117
    assert details["collectors_troubled"][0]["collector"] == "zz-gone"


def test_a_difference_of_clocks_has_a_sign_only_if_it_is_one() -> None:
    assert [skew_text(one) for one in (None, 1, -99, 0)] == [UNKNOWN, "0 s", "0 s", "0 s"]
    assert [skew_text(one) for one in (120_000, -120_000)] == ["−2 min", "+2 min"]
