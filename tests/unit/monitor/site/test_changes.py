"""A cluster that changes, on its pages and in the API: moves, cordons, racks, levels, restarts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.api.rows import MOVES_LISTED_MAX, changes_row
from monitor.site.brokers import MAPPED_CELLS_MAX, brokers_view
from monitor.site.moves import MOVES_SHOWN_MAX, moves_view, replicas_text
from monitor.state.snapshot import Snapshot
from tests.unit.monitor.scene import CHANGING
from tests.unit.monitor.site.test_pages import LOAD_BYTES_MAX, Site

PARTITIONS = 4_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(CHANGING, tmp_path_factory.mktemp("history")) as made:
        yield made


def shown(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def wide(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with a topic of 4,000 partitions that all move."""
    topic = snapshot.topic("logs.access")
    assert topic is not None
    part, move = topic.partitions[0], snapshot.moves[0]
    parts = tuple(replace(part, partition=number) for number in range(PARTITIONS))
    moves = tuple(replace(move, partition=number) for number in range(PARTITIONS))
    topics = tuple(
        replace(one, partitions=parts) if one.name == topic.name else one for one in snapshot.topics
    )
    return replace(snapshot, topics=topics, moves=moves)


def test_the_page_of_brokers_shows_each_change_with_its_command(site: Site) -> None:
    page = shown(site.text("/brokers"))
    for text in (
        "3 partitions move, 1 waits in a queue, 1 stands; at least 3.4 GiB to copy at 3.8 MiB/s",
        "ends them: ./millrace reassign cancel --all",
        "Broker 3 leaves: 11 of 11 partitions are left on it, 3.0 GiB",
        "takes that back: ./millrace broker remove 3 --abort",
        "broker-2 restarts in its turn; waits for 2 partitions that are not in sync",
        "ends the upgrade: ./millrace upgrade finalize",
        "Rack east",
        "Quorum observer, 40 behind",
        "Quorum voter, no lag",
        "Metadata level 23 of 23 to 24",
        "Version 1.0.0-rc1",
        "Copies 2 replicas, 1 in the queue",
        "Replicas a broker 3 to 12",
        "Leaders a broker 0 to 6",
        "Racks 4, rule kept",
        "Restart restarts in its turn; waits for 2 partitions",
    ):
        assert text in page, text
    assert "<button" not in site.text("/brokers").split("<main")[1], "the page orders nothing"


def test_the_table_of_moves_begins_with_those_that_stand(site: Site) -> None:
    page = site.text("/brokers")
    assert re.findall(r'data-move="([^"]+)"', page) == [
        "logs.json-0", "logs.access-0", "logs.access-1",
    ]  # fmt: skip
    rows = shown(page)
    assert "logs.access-0 +4 −3 ● copies 572.2 MiB 3.8 MiB/s about 2 min 30 s left" in rows
    assert "logs.access-1 +4 −3 ○ queued" in rows
    assert "logs.json-0 +5 −3 ▲ stands unknown unknown – waits for broker 5, away since" in rows


def test_the_map_marks_replicas_that_come_and_go(site: Site) -> None:
    assert site.mill.snapshot is not None
    view = brokers_view(site.mill.snapshot)
    access = next(one for one in view.topics if one.name == "logs.access")
    column = {node: cells[0] for node, cells in access.rows}
    assert column[1] == ("lead", "L", "leader")
    assert column[3] == ("isr", "f−", "follower, in sync; being removed")
    assert column[4] == ("behind", "▲+", "behind, not in sync; being added")
    assert column[5] == ("none", "·", "no replica")
    json = next(one for one in view.topics if one.name == "logs.json")
    assert dict(json.rows)[5][0] == ("off", "✕+", "offline; being added")


def test_the_page_of_a_topic_shows_its_own_moves(site: Site) -> None:
    page = site.text("/topics/logs.access")
    assert re.findall(r'data-move="([^"]+)"', page) == ["logs.access-0", "logs.access-1"]
    assert "1, 2, +4, −3" in page
    assert "data-move" not in site.text("/topics/__consumer_offsets")
    assert replicas_text((2, 1), (), ()) == "2, 1"


def test_every_page_says_in_its_head_that_something_is_under_way(site: Site) -> None:
    overview = shown(site.text("/"))
    assert "○ moves 3 partitions move, 1 waits in a queue" in overview
    assert "○ restart broker-2 restarts in its turn; waits for 2 partitions" in overview
    topics = site.text("/topics")
    assert "○ 4 under way" in topics[: topics.index("</header>")]
    parts = {row["part"]: row for row in site.client.get("/api/v1/parts").json()["data"]}
    assert parts["broker-2"]["turn"].startswith("restarts in its turn; waits for 2 partitions")
    status = site.client.get("/status").json()["details"]
    assert list(status["restarts_in_turn"]) == ["broker-2"]


def test_the_api_has_moves_and_changes(site: Site) -> None:
    rows = site.client.get("/api/v1/moves").json()["data"]
    assert [(one["topic"], one["partition"], one["eta_s"]) for one in rows] == [
        ("logs.access", 0, 150.0), ("logs.access", 1, None), ("logs.json", 0, None),
    ]  # fmt: skip
    assert rows[2]["waits"] == rows[2]["says"]
    assert site.client.get("/api/v1/moves?format=csv").text.splitlines()[0].startswith("topic,")
    (row,) = site.client.get("/api/v1/changes").json()["data"]
    assert row["moves"]["count"] == 3
    assert row["voters"] == 3
    assert row["skew"] == {"replicas": [3, 12], "leaders": [0, 6]}
    assert [one["kind"] for one in row["operations"]] == ["moves", "leaving", "restart", "upgrade"]
    assert {one["code"] for one in row["advice"]} == {
        "move_stands", "broker_gone", "level_not_finalised",
    }  # fmt: skip
    brokers = {one["node_id"]: one for one in row["brokers"]}
    assert (brokers[3]["cordoned"], brokers[3]["left_replicas"]) == (True, 11)
    assert (brokers[4]["role"], brokers[4]["quorum_lag"], brokers[4]["rack"]) == (
        "observer", 40, "north",
    )  # fmt: skip
    (access,) = site.client.get("/api/v1/topics/logs.access").json()["data"]
    assert access["partitions"][0]["adding_replicas"] == [4]
    assert access["partitions"][0]["removing_replicas"] == [3]


def test_trap_17_4000_partitions_that_move_stay_within_the_budgets(
    site: Site, tmp_path: Path
) -> None:
    """What is drawn has a limit: the map, the table and the row for `status`."""
    assert site.mill.snapshot is not None
    snapshot = wide(site.mill.snapshot)
    view = brokers_view(snapshot)
    assert sum(len(one.numbers) for one in view.topics) == MAPPED_CELLS_MAX // 5
    assert view.hidden == "40 of 4001 partitions that move or are not well are drawn"
    table = moves_view(snapshot.moves)
    assert len(table.rows) == MOVES_SHOWN_MAX
    assert table.says == "4,000 partitions, 30 are shown"
    row = changes_row(snapshot)
    assert isinstance(row["moves"], dict)
    assert row["moves"]["count"] == PARTITIONS
    assert len(row["moves"]["list"]) == MOVES_LISTED_MAX
    with Site(CHANGING, tmp_path, wide) as large:
        paths = ("/brokers", "/static/mill.css", "/static/mill.js", "/static/ticks.js")
        sizes = [len(large.client.get(path).content) for path in paths]
        assert sum(sizes) <= LOAD_BYTES_MAX, sizes
