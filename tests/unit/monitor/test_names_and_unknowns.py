"""Every name that a broker allows works in every route, and unknown values are null everywhere."""

import re
from dataclasses import replace
from urllib.parse import quote, urljoin

import pytest
from fastapi.testclient import TestClient
from httpx import Response

from monitor.api.rows import group_row, lag_rows
from monitor.lag.rules import Bound
from monitor.state.reading import Commit, GroupReading
from monitor.views.links import group_href
from tests.unit.monitor.assembly.test_assemble import Cycles
from tests.unit.monitor.readings import (
    GROUP,
    kafka_reading,
    reading,
    row,
    topic_reading,
)
from tests.unit.monitor.test_http import Addresses, site, some_reading

NOW_MS = 1_800_000_000_000
GROUP_IDS = (
    "b2-new\nline", "ends with one\n", "\n", "\r\n", "tab\there", "team/x", "/lead", "a//b",
    "ends/", "50%", "%2F", "100%25", 'q"uote', "o'q", "a?b#c", "a&b=c;d", "ünï ✓", "a b+c", ".",
    "..", "../admin", "", " ", "<b>", "a\\b", "{x}", "\u2028", "x" * 300,
)  # fmt: skip
TOPICS = (".hidden", "...", "a.b_c-D9", "-", "_", "messages", "x" * 249)


def ask(client: TestClient, address: str) -> Response:
    """Request a path as a browser does. The test client unquotes a path once more than a server, so
    `%25` is quoted twice."""
    path, mark, query = address.partition("?")
    answer: Response = client.get(path.replace("%25", "%2525") + mark + query)
    return answer


@pytest.mark.parametrize("group_id", GROUP_IDS)
def test_a_group_is_found_by_each_route_whatever_its_name(group_id: str) -> None:
    with site(some_reading(group_id)) as client:
        listed = client.get("/api/v1/groups").json()["data"]
        assert [one["group"] for one in listed] == [group_id]
        in_path = quote(group_id, safe="")
        path = f"/{in_path}" if group_id not in (".", "..") else f"/?id={in_path}"
        answer = ask(client, f"/api/v1/groups{path}")
        assert (answer.status_code, {one["group"] for one in answer.json()["data"]}) == (
            200,
            {group_id},
        )
        rows = client.get("/api/v1/lag", params={"group": group_id}).json()["data"]
        assert len(rows) == 2
        page = Addresses()
        page.feed(client.get("/groups").text)
        assert group_href(group_id) in page.found, "the list of groups links to it"
        found = ask(client, group_href(group_id))
        assert found.status_code == 200
        page = Addresses()
        page.feed(found.text)
        own = [one for one in page.found if re.search(r"/groups/", one)]
        assert len(own) >= 5, "ranges, orders, CSV and JSON"
        for href in own:
            where = urljoin(f"http://host{group_href(group_id)}", href).removeprefix("http://host")
            assert ask(client, where).status_code == 200, href


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_is_found_by_each_route_whatever_its_name(name: str) -> None:
    topics = (topic_reading(name),)
    kafka = kafka_reading(
        10_000, commits={row(0, name): 1}, ends={row(0, name): 3, row(1, name): 3}, topics=topics
    )
    with site(reading(10_000, kafka)) as client:
        for path in (f"/topics/{quote(name)}", f"/api/v1/topics/{quote(name)}"):
            assert client.get(path).status_code == 200, path
        page = Addresses()
        page.feed(client.get("/topics").text)
        assert f"/topics/{quote(name)}" in page.found
        assert client.get("/api/v1/lag", params={"topic": name, "per": "topic"}).json()["data"]


def test_a_sum_over_topics_is_not_narrowed_to_one_in_silence() -> None:
    with site(some_reading()) as client:
        answer = client.get("/api/v1/lag", params={"per": "group", "topic": "logs.access"})
        assert answer.status_code == 422
        assert "expected per=topic or per=partition" in answer.json()["detail"]
        for per in ("topic", "partition"):
            narrowed = client.get("/api/v1/lag", params={"per": per, "topic": "logs.access"})
            assert narrowed.json()["data"], per
        assert client.get("/api/v1/lag", params={"per": "group", "group": GROUP}).json()["data"]


def rows_of(**keys: object) -> tuple[dict[str, object], dict[str, object], dict[str, object]]:
    """Run some cycles. Return the API rows of the group, of its first partition and of its
    topic."""
    cycles = Cycles()
    for step in range(8):
        now_ms = NOW_MS + step * 2_000
        kafka = kafka_reading(now_ms, topics=(topic_reading(partitions=1),), **keys)  # type: ignore[arg-type]
        snapshot = cycles.feed(reading(now_ms, kafka))
    group = snapshot.group(GROUP)
    assert group is not None
    (by_topic,) = lag_rows(snapshot, "topic")
    return group_row(group), lag_rows(snapshot)[0], by_topic


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"commits": {row(0): 1_000_000}, "ends": {row(0): 1}}, id="past the end"),
        pytest.param({"commits": {row(0): 1}, "ends": {}}, id="end unknown"),
        pytest.param(
            {"commits": {row(0, "gone"): 5}, "ends": {row(0): 9}}, id="of a deleted topic"
        ),
    ],
)
def test_of_an_unknown_lag_nothing_is_known(keys: dict[str, object]) -> None:
    group, cell, topic = rows_of(**keys)
    assert group["known"] == 0
    for name in ("lag", "eta_s", "time_lag_ms"):
        assert group[name] is None, name
    for name in ("lag", "lost", "time_lag_ms"):
        assert cell[name] is None, name
    for name in ("lag", "time_lag_ms"):
        assert topic[name] is None, name
    assert topic["time_lag_bound"] == Bound.UNKNOWN


def test_the_eta_of_a_group_that_has_read_all_is_0_and_of_one_with_an_unknown_part_is_null() -> (
    None
):
    read_all, _, _ = rows_of(commits={row(0): 5}, ends={row(0): 5})
    assert (read_all["lag"], read_all["eta_s"]) == (0, 0.0)
    empty = {row(0): 5, row(1): 0}
    waiting = {row(0): 5, row(1): 7}
    for ends, expected in ((empty, 0.0), (waiting, None), ({row(0): 5}, None)):
        cycles = Cycles()
        kafka = kafka_reading(NOW_MS, commits={row(0): 5}, ends=ends)
        group = cycles.feed(reading(NOW_MS, kafka)).group(GROUP)
        assert group is not None
        assert group_row(group)["eta_s"] == expected, ends


def test_a_group_that_reads_nothing_has_no_eta() -> None:
    kafka = kafka_reading(NOW_MS, commits={}, ends={row(0): 5})
    group = Cycles().feed(reading(NOW_MS, kafka)).group(GROUP)
    assert group is not None
    assert group_row(group)["eta_s"] is None


def test_two_groups_whose_names_differ_by_a_line_end_are_two() -> None:
    other = GroupReading("a\n", "Empty", (), {row(0): Commit(1)})
    kafka = kafka_reading(10_000, commits={row(0): 7}, ends={row(0): 9}, group_id="a")
    kafka = replace(kafka, groups=(*kafka.groups, other))
    with site(reading(10_000, kafka)) as client:
        for group_id, offset in (("a", 7), ("a\n", 1)):
            rows = client.get(f"/api/v1/groups/{quote(group_id)}").json()["data"]
            offsets = {one["committed_offset"] for one in rows if one["partition"] == 0}
            assert offsets == {offset}, repr(group_id)
