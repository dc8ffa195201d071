"""The page of a topic's messages: what it requests, what it displays, and what it refuses."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from monitor.asking.browse import BrowseFailed
from monitor.asking.messages import Begin, Found, Wanted
from monitor.config.settings import MonitorSettings
from monitor.http import create_app
from monitor.sampling.sampler import Sampler
from monitor.site.messages import steps
from protocol.types import TopicPartition
from protocol.wire.record import Record
from tests.unit.monitor.scene import FLOWING, HOSTILE, NOW_MS, Mill, StandingStill
from tests.unit.monitor.test_http import Addresses

PATH = "/topics/logs.access/messages"
ROW = TopicPartition("logs.access", 1)
RECORDS = (
    (ROW, Record(40, NOW_MS, b"k", f'{{"a":"{HOSTILE}"}}'.encode(), (("h", b"v"),), -1)),
    (ROW, Record(41, -1, None, None, (), -1)),
    (ROW, Record(42, 1 << 62, b"=1+1", b"\xff", (), -1)),
)


class Script:
    """A double of the message reader. It records requests, and returns the same records or
    fails."""

    def __init__(self) -> None:
        self.asked: list[tuple[Wanted, list[int]]] = []
        self.fails = False
        self.found = Found(RECORDS, ("partition 2: no leader",), 17, {ROW: 5}, {ROW: 100})

    async def read(self, wanted: Wanted, partitions: Sequence[int]) -> Found:
        self.asked.append((wanted, list(partitions)))
        if self.fails:
            raise BrowseFailed("no broker answers")
        return self.found


def client_of(script: Script | None) -> TestClient:
    mill = Mill(FLOWING, None)
    mill.run(3)
    settings = MonitorSettings(bootstrap_servers="b:1", data_dir=str(Path("data")), parts={})
    sampler = Sampler(settings, StandingStill(mill), lambda: NOW_MS)
    sampler.resume(mill.snapshot, mill.memory, mill.progress)
    app = create_app(
        settings, sampler, started_at_ms=0, clock_ms=lambda: NOW_MS,
        on_failure=lambda error: None, browser=script,
    )  # fmt: skip
    return TestClient(app, base_url="http://127.0.0.1:8090")


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def client(script: Script) -> Iterator[TestClient]:
    yield client_of(script)


def test_records_are_shown_as_text_and_links_lead_on(client: TestClient, script: Script) -> None:
    answer = client.get(PATH, params={"partition": "1", "from": "offset", "at": "40"})
    assert answer.status_code == 200
    page = Addresses()
    page.feed(answer.text)
    assert page.inline == []
    assert all(one.startswith(("/", "#")) for one in page.found)
    assert HOSTILE not in answer.text
    assert "&lt;img src=x onerror" in answer.text
    assert answer.text.count("<h1>") == 1
    assert "partition 2: no leader" in answer.text
    assert "3 messages" in answer.text
    assert 'data-still="/topics/logs.access"' in answer.text
    for moment in ("none", f"{1 << 62} ms"):
        assert f"<td>{moment}</td>" in answer.text
    assert "at=20&amp;n=20" in answer.text, "older"
    assert "at=43&amp;n=20" in answer.text, "newer"
    assert script.asked == [(Wanted("logs.access", 1, Begin.OFFSET, 40), [1])]


def test_all_partitions_are_read_unless_one_is_named(client: TestClient, script: Script) -> None:
    client.get(PATH)
    assert script.asked == [(Wanted("logs.access"), [0, 1, 2])]


def test_what_was_typed_stays_in_the_form(client: TestClient) -> None:
    text = client.get(
        PATH, params={"q": '"><b>', "at": "9", "uncommitted": "1", "from": "time"}
    ).text
    assert 'value="&#34;&gt;&lt;b&gt;"' in text
    assert '<option value="time" selected>' in text
    assert "checked" in text
    assert "<b>&#34;" not in text


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"partition": "9"}, "partition: found 9, expected 0 to 2"),
        ({"from": "offset", "at": "x", "partition": "0"}, "expected a number from 0"),
        ({"n": "100000"}, "expected one of 10, 20, 50, 100"),
    ],
)
def test_a_wrong_request_is_refused_before_a_broker_is_asked(
    client: TestClient, script: Script, params: dict[str, str], words: str
) -> None:
    answer = client.get(PATH, params=params)
    assert answer.status_code == 400
    assert words in answer.text
    rows = client.get(f"/api/v1{PATH}", params=params)
    assert (rows.status_code, words in rows.json()["detail"]) == (422, True)
    assert script.asked == []


def test_brokers_that_are_away_and_topics_that_are_not(client: TestClient, script: Script) -> None:
    script.fails = True
    answer = client.get(PATH)
    assert (answer.status_code, "no broker answers" in answer.text) == (503, True)
    assert client.get(f"/api/v1{PATH}").status_code == 503
    assert client.get("/topics/none/messages").status_code == 404
    assert client.get("/api/v1/topics/none/messages").status_code == 404


def test_head_asks_no_broker(client: TestClient, script: Script) -> None:
    assert client.head(PATH).status_code == 200
    assert script.asked == []


def test_a_monitor_may_be_told_to_show_none() -> None:
    client = client_of(None)
    answer = client.get(PATH)
    assert answer.status_code == 503
    assert "monitor.messages is false" in answer.text
    assert "monitor.messages is false" in client.get(f"/api/v1{PATH}").json()["detail"]


def test_rows_for_programs(client: TestClient) -> None:
    rows = client.get(f"/api/v1{PATH}").json()
    assert rows["schema"] == "messages/1"
    assert [row["offset"] for row in rows["data"]] == [40, 41, 42]
    assert json.loads(rows["data"][0]["value"]) == {"a": HOSTILE}
    table = client.get(f"/api/v1{PATH}", params={"format": "csv"}).text
    lines = list(csv.DictReader(io.StringIO(table)))
    assert lines[2]["key"] == "'=1+1"
    assert lines[1]["value"] == ""


def test_what_the_page_says_in_words_the_api_says_in_errors(
    client: TestClient, script: Script
) -> None:
    problems = ("partition 1: stopped at offset 7, after 3 s or 16 MiB", "partition 2: no leader")
    script.found = Found(RECORDS, problems, 17)
    assert all(text in client.get(PATH).text for text in problems)
    errors = client.get(f"/api/v1{PATH}").json()["errors"]
    assert [(one["source"], one["text"]) for one in errors] == [
        ("topic logs.access", text) for text in problems
    ]
    table = client.get(f"/api/v1{PATH}", params={"format": "csv"}).text
    lines = list(csv.DictReader(io.StringIO(table)))
    assert [one["errors"] for one in lines] == ["", "", "", *problems]
    assert [one["offset"] for one in lines] == ["40", "41", "42", "", ""]
    script.found = Found((), problems, 17)
    table = client.get(f"/api/v1{PATH}", params={"format": "csv"}).text
    assert [one["errors"] for one in csv.DictReader(io.StringIO(table))] == [*problems]
    script.found = Found(RECORDS, (), 3)
    assert client.get(f"/api/v1{PATH}").json()["errors"] == []
    heads = csv.DictReader(io.StringIO(client.get(f"/api/v1{PATH}?format=csv").text)).fieldnames
    assert heads is not None and "errors" in heads, "the column is there without any"


def test_a_record_without_a_timestamp_has_none(client: TestClient) -> None:
    rows = client.get(f"/api/v1{PATH}").json()["data"]
    assert [one["timestamp_ms"] for one in rows] == [NOW_MS, None, 1 << 62]


def test_links_end_where_the_log_does() -> None:
    found = Found(RECORDS, (), 3, {ROW: 40}, {ROW: 43})
    assert steps(Wanted("logs.access", 1), found) == []
    assert steps(Wanted("logs.access"), Found(RECORDS, (), 3, {ROW: 0}, {ROW: 99})) == []
    (older,) = steps(Wanted("logs.access", 1, count=50), Found(RECORDS, (), 3, {ROW: 5}, {ROW: 43}))
    assert older == ("Older", f"{PATH}?partition=1&from=offset&at=5&n=50")
