"""The site with a scripted source: it is complete without JavaScript, sends strict headers, and
shows the same numbers on all pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from monitor.config.settings import MonitorSection, MonitorSettings
from monitor.http import PAGES, SECURITY_HEADERS, create_app
from monitor.sampling.sampler import Sampler
from monitor.state.reading import PartAnswer, Reading
from protocol.status import PartState, PartStatus, Problem
from tests.harness.wait import wait_until
from tests.unit.monitor.readings import (
    GROUP,
    kafka_reading,
    part_answer,
    part_down,
    reading,
    row,
)

HOSTILE = "<img src=x onerror=alert(1)>"


class Script:
    """A source that repeats one reading until the test sets another one."""

    def __init__(self, one: Reading) -> None:
        self.one = one

    async def read(self, now_ms: int) -> Reading:
        return self.one

    async def close(self) -> None:
        return None


TOPICS = [{"topic": HOSTILE, "bytes_in": 5 << 20, "bytes_out": 7 << 20, "size_bytes": 9 << 20}]
PHASES = {"queue_us": 3, "local_us": 12, "remote_us": 4_500, "send_us": 27}
APIS = [{"api": "produce", "count": 7_000, **PHASES}]


def some_reading(group_id: str = GROUP) -> Reading:
    kafka = kafka_reading(
        10_000,
        commits={row(0): 7, row(1): 4},
        ends={row(0): 1_241, row(1): 4},
        group_id=group_id,
    )
    files = [{"path": HOSTILE, "topic": "logs.access", "size_bytes": 10, "position": 4}]
    parts = (
        part_answer(
            "broker-1",
            10_000,
            flush="ack",
            topics=1,
            flush_us=1_500,
            loop_late_us_p99=61_000,
            loop_late_us_max=213_000,
            apis=APIS,
            parked_joins=3_003,
            topic_list=TOPICS,
        ),
        part_answer("collector", 10_000, files=files, rate_lines_s=12.5, lines_total=99),
        part_down("stream"),
    )
    return reading(10_000, kafka, parts)


def never(error: BaseException) -> None:
    raise AssertionError("the sampler died") from error


@contextmanager
def site(one: Reading, history_problem: str | None = None) -> Iterator[TestClient]:
    settings = MonitorSettings(
        section=MonitorSection(), bootstrap_servers="127.0.0.1:9092", data_dir="data", parts={}
    )
    sampler = Sampler(settings, Script(one), lambda: 10_000)
    sampler.history_problem = history_problem
    app = create_app(settings, sampler, started_at_ms=0, clock_ms=lambda: 10_000, on_failure=never)
    with TestClient(app, base_url="http://127.0.0.1:8090") as client:
        wait_until(lambda: client.get("/healthz").status_code == 200, 10, "the first snapshot")
        yield client


@pytest.fixture
def client() -> Iterator[TestClient]:
    with site(some_reading()) as opened:
        yield opened


class Addresses(HTMLParser):
    """Collects every address that a page lets the browser request, and all inline code."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.found += [v for k in ("href", "src") if (v := values.get(k)) is not None]
        self.inline += [k for k in values if k.startswith("on") or k == "style"]
        if tag == "style" or (tag == "script" and not values.get("src")):
            self.inline.append(tag)


@pytest.mark.parametrize("path", [*PAGES, f"/groups/{GROUP}", "/topics/logs.access", "/api/docs"])
def test_pages_are_whole_strict_and_name_no_other_host(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    for name, value in SECURITY_HEADERS.items():
        assert answer.headers[name] == value
    page = Addresses()
    page.feed(answer.text)
    assert page.inline == []
    assert all(address.startswith(("/", "#")) for address in page.found), page.found
    assert set(PAGES) <= set(page.found), "every page leads to every other"
    assert answer.text.count("<h1>") == 1
    for never in ("NaN", "Infinity", "undefined", ">-1<", ">None<"):
        assert never not in answer.text


def test_page_api_and_metrics_show_the_same_lag(client: TestClient) -> None:
    assert ">1,234<" in client.get("/").text
    assert ">1,234<" in client.get(f"/groups/{GROUP}").text
    totals = client.get("/api/v1/lag", params={"per": "group"}).json()["data"]
    assert [(one["group"], one["lag"]) for one in totals] == [(GROUP, 1234)]
    cells = client.get(f"/api/v1/groups/{GROUP}").json()
    assert cells["schema"] == "lag/1"
    assert [one["lag"] for one in cells["data"]] == [1234, 0]
    line = f'millrace_group_lag_offsets{{group="{GROUP}",partition="0",topic="logs.access"}} 1234.0'
    assert line in client.get("/metrics").text


def test_a_copy_that_counts_twice_is_named_on_the_page() -> None:
    files = [
        {"path": "access/a.bak", "topic": "t", "size_bytes": 9, "position": 9,
         "same_as": "access/a"}
    ]  # fmt: skip
    parts = (part_answer("collector", 10_000, files=files),)
    with site(reading(10_000, None, parts)) as client:
        assert "access/a.bak holds the same bytes as access/a" in client.get("/collector").text


def test_lag_rows_can_be_narrowed(client: TestClient) -> None:
    rows = client.get("/api/v1/lag", params={"per": "topic", "topic": "logs.access"}).json()["data"]
    assert [(one["lag"], one["known"]) for one in rows] == [(1234, 2)]
    assert client.get("/api/v1/lag", params={"group": "other"}).json()["data"] == []


def test_a_part_that_is_down_is_down_and_its_numbers_unknown(client: TestClient) -> None:
    page = client.get("/").text
    assert 'data-part="stream"' in page
    assert "✕ down" in page
    station = page[page.index('data-station="stream"') :]
    station = station[: station.index("</li>")]
    assert "✕ down" in station
    assert "Connection refused" in station
    assert "<b>The stream does not answer</b>" in page
    assert "stream is down" in client.get("/stream").text
    assert 'millrace_part_up{part="stream"} 0.0' in client.get("/metrics").text


def test_what_users_named_stays_text(client: TestClient) -> None:
    page = client.get("/collector").text
    assert HOSTILE not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    with site(some_reading(group_id=HOSTILE)) as other:
        assert HOSTILE not in other.get("/groups").text


def test_an_unchanged_page_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/groups")
    answer = client.get("/groups", headers={"If-None-Match": first.headers["ETag"]})
    assert answer.status_code == 304


def test_only_names_of_this_machine_are_answered(client: TestClient) -> None:
    assert client.get("/", headers={"Host": "evil.example:8090"}).status_code == 421
    assert client.get("/", headers={"Host": "localhost:8090"}).status_code == 200
    assert client.get("/", headers={"Host": "[::1]:8090"}).status_code == 200


def test_what_is_not_there_is_404(client: TestClient) -> None:
    assert client.get("/groups/none").status_code == 404
    assert client.get("/topics/none").status_code == 404
    assert client.get("/api/v1/groups/none").status_code == 404
    assert client.get("/api/v1/topics/none").status_code == 404
    assert client.get("/../secrets").status_code == 404


def test_the_api_describes_itself(client: TestClient) -> None:
    paths = client.get("/api/openapi.json").json()["paths"]
    assert "/api/v1/lag" in paths
    assert all(path.startswith("/api/v1/") for path in paths)
    for path in paths:
        if "{" not in path:
            assert client.get(path).json()["ts_ms"] == 10_000


def test_before_the_first_cycle_everything_says_so() -> None:
    settings = MonitorSettings(bootstrap_servers="127.0.0.1:9092", data_dir="data", parts={})
    sampler = Sampler(settings, Script(some_reading()), lambda: 0)
    app = create_app(settings, sampler, started_at_ms=0, clock_ms=lambda: 0, on_failure=never)
    quiet = TestClient(app, base_url="http://127.0.0.1:8090")
    for path in ("/", "/healthz", "/metrics", "/api/v1/lag"):
        assert quiet.get(path).status_code == 503
    assert quiet.get("/status").json()["state"] == "starting"


def test_every_static_file_a_page_uses_is_served(client: TestClient) -> None:
    folder = Path(__file__).parents[3] / "monitor" / "static"
    for file in folder.iterdir():
        assert client.get(f"/static/{file.name}").content == file.read_bytes()


def test_a_sampler_that_dies_is_reported_and_never_hidden() -> None:
    class Broken(Script):
        async def read(self, now_ms: int) -> Reading:
            raise ZeroDivisionError

    settings = MonitorSettings(bootstrap_servers="127.0.0.1:9092", data_dir="data", parts={})
    failures: list[BaseException] = []
    app = create_app(
        settings,
        Sampler(settings, Broken(some_reading()), lambda: 0),
        started_at_ms=0,
        clock_ms=lambda: 0,
        on_failure=failures.append,
    )
    with TestClient(app, base_url="http://127.0.0.1:8090"):
        wait_until(lambda: failures, 10, "the failure is reported")
    assert isinstance(failures[0], ZeroDivisionError)


def test_the_brokers_page_says_how_long_requests_take(client: TestClient) -> None:
    page = client.get("/brokers").text
    assert "1.5 ms" in page
    for fact, value in (("Loop late, 99 %", "61.0 ms"), ("Loop late, most", "213.0 ms")):
        row = page[page.index(f"<dt>{fact}</dt>") :]
        assert f"<dd>{value}</dd>" in row[: row.index("</div>")]
    head = page[page.index(">Request</th>") :]
    for label in ("Served", "Queue", "Handler", "Waiting", "Sending"):
        head = head[head.index(f">{label}<") :]
    row = head[head.index(">produce<") :]
    row = row[: row.index("</tr>")]
    found = [row.index(f">{text}<") for text in ("7,000", "3 µs", "12 µs", "4.5 ms", "27 µs")]
    assert found == sorted(found)


def test_the_brokers_page_tells_what_came_in_and_left_by_topic_and_who_waits_to_join(
    client: TestClient,
) -> None:
    page = client.get("/brokers").text
    assert HOSTILE not in page
    row = page[page.index("&lt;img src=x") :]
    row = row[: row.index("</tr>")]
    found = [row.index(f">{size}<") for size in ("5.0 MiB", "7.0 MiB", "9.0 MiB")]
    assert found == sorted(found)
    assert ">3,003<" in page


def test_lines_set_aside_are_named_and_the_stream_is_degraded_until_then() -> None:
    line = {
        "topic": "logs.app",
        "file": HOSTILE,
        "partition": 2,
        "offset": 1_234_567,
        "reason": "OutOfMemoryError: <heap>",
    }
    status = PartStatus(
        part="stream",
        state=PartState.DEGRADED,
        ready=True,
        started_at_ms=1,
        now_ms=10_000,
        problems=(Problem("poison", "a line cannot be counted"),),
        details={
            "poison_total": 3,
            "poison": [line],
            "left_out_total": 6_543_210,
            "notices": [
                {
                    "metric": HOSTILE,
                    "size": "1m",
                    "keep": "90d",
                    "cells": 2_345_678,
                    "from_ms": 1_785_578_400_000,
                }
            ],
            "recounts": [{"metric": "slow", "left": 7_654_321, "problem": HOSTILE}],
            "archive": {
                "folder": HOSTILE,
                "topics": [{"topic": "t", "pieces": 2, "lines": 8_765_432, "lost": 7_531}],
            },
        },
    )
    answer = PartAnswer("stream", "127.0.0.1:8092", status)
    with site(reading(10_000, None, (answer,))) as client:
        page = client.get("/stream").text
        section = page[page.index('id="poison"') :]
        assert "1,234,567" in section
        assert "OutOfMemoryError: &lt;heap&gt;" in section
        assert "6,543,210" in page
        assert "2,345,678" in page[page.index('id="notices"') :]
        assert "2026-08-01T10:00:00Z" in page[page.index('id="notices"') :]
        assert "7,654,321" in page[page.index('id="recounts"') :]
        assert "8,765,432" in page[page.index('id="archive"') :]
        assert "7,531" in page[page.index('id="archive"') :]
        assert HOSTILE not in page
        assert "▲ a line cannot be counted" in page
        overview = client.get("/").text
        assert "▲ degraded" in overview
        assert "a line cannot be counted" in overview
        assert "MySQL will delete 2,345,678 cells" in overview


def test_a_stream_without_trouble_has_no_lists_of_it(client: TestClient) -> None:
    page = client.get("/stream").text
    assert 'id="poison"' not in page
    assert 'id="recounts"' not in page
    assert 'id="archive"' not in page
    assert 'id="notices"' not in page
    assert "too old to keep" not in page


def test_pages_are_there_without_a_history_and_say_why_there_is_none() -> None:
    with site(some_reading(), "the history cannot be opened: disk full") as client:
        answers = [client.get(path) for path in PAGES]
        assert {answer.status_code for answer in answers} == {200}
        assert "the history cannot be opened: disk full" in answers[0].text
        told = {one["code"]: one["text"] for one in client.get("/status").json()["problems"]}
        assert told["history"] == "the history cannot be opened: disk full"
