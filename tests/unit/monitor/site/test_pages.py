"""Every page for several simulated mills must be complete and valid, and must show unknown values
as unknown."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from monitor.asking.counts import Counts
from monitor.config.settings import InputSettings, MonitorSection, MonitorSettings
from monitor.http import create_app
from monitor.sampling.sampler import Sampler
from monitor.state.snapshot import Snapshot
from tests.unit.monitor import scene
from tests.unit.monitor.scene import (
    BROKER_DOWN,
    CATCHING_UP,
    CHANGING,
    DISK_FULL,
    EMPTY,
    FAILED,
    FLOWING,
    HOSTILE,
    METRICS,
    MYSQL_AWAY,
    NO_BROKER,
    NOW_MS,
    OLDER,
    RESTING,
    SLASHED,
    STUCK,
    Mill,
    ScriptedCounts,
    StandingStill,
    Story,
)
from tests.unit.monitor.test_http import Addresses

STORIES = {
    "flowing": FLOWING,
    "unmatched": Story(unmatched=("/mill/watched/odd/a.log", "/mill/watched/b.log")),
    "catching up": CATCHING_UP,
    "stuck": STUCK,
    "MySQL away": MYSQL_AWAY,
    "no broker": NO_BROKER,
    "empty": EMPTY,
    "failed": FAILED,
    "disk full": DISK_FULL,
    "broker down": BROKER_DOWN,
    "changing": CHANGING,
    "resting": RESTING,
    "older": OLDER,
}
PATHS = [
    "/", "/?range=3h", "/?range=all", "/?range=nonsense", "/counts", "/counts?size=1h",
    "/counts/visitors", "/stream", "/groups", "/groups?sort=lag&q=export", "/topics",
    "/topics/logs.access", "/brokers", "/collector", "/alerts", "/api/docs",
]  # fmt: skip
SLASHED_PATH = f"/groups/{quote(SLASHED, safe='')}"
LOAD_BYTES_MAX = 100_000


class Site:
    """The site of a simulated mill. The test calls it without a browser, and its snapshot never
    changes. `last` replaces the snapshot at the end of the story."""

    def __init__(
        self, story: Story, folder: Path, last: Callable[[Snapshot], Snapshot] | None = None
    ) -> None:
        self.mill = Mill(story, folder)
        snapshot = self.mill.run()
        self.mill.snapshot = snapshot if last is None else last(snapshot)
        settings = MonitorSettings(
            section=MonitorSection(),
            bootstrap_servers="127.0.0.1:19092",
            data_dir=str(folder),
            parts={},
            inputs=(InputSettings(paths=("watched/access/**",), topic="logs.access"),),
            metrics=METRICS,
        )
        sampler = Sampler(settings, StandingStill(self.mill), lambda: NOW_MS, self.mill.recorder)
        sampler.resume(self.mill.snapshot, self.mill.memory, self.mill.progress)
        app = create_app(
            settings,
            sampler,
            started_at_ms=NOW_MS - 600_000,
            clock_ms=lambda: NOW_MS,
            on_failure=lambda error: None,
            counts=Counts(ScriptedCounts, lambda: NOW_MS),
        )
        # Without its lifespan the application runs no sampler, so the snapshot stays the same.
        self.client = TestClient(app, base_url="http://127.0.0.1:8090")

    def text(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200, path
        return str(answer.text)

    def close(self) -> None:
        """Close the file of the history."""
        assert self.mill.recorder is not None
        self.mill.recorder.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sites(dict[str, Site]):
    """The sites of all stories by name. Each is created when it is first used."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        super().__init__()
        self._factory = factory

    def __missing__(self, name: str) -> Site:
        self[name] = Site(STORIES[name], self._factory.mktemp("history"))
        return self[name]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    made = Sites(tmp_path_factory)
    yield made
    for site in made.values():
        site.close()


@pytest.mark.parametrize(
    "name",
    ["catching up", "no broker", "empty", "broker down", "changing"]
    + [
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("flowing", "stuck", "MySQL away", "failed")
    ],
)
def test_every_page_of_every_story_is_whole_and_strict(sites: Sites, name: str) -> None:
    paths = [*PATHS]
    if name != "empty":
        paths += ["/groups/millrace-stream", "/groups/millrace-stream?sort=lag", SLASHED_PATH]
    for path in paths:
        text = sites[name].text(path)
        page = Addresses()
        page.feed(text)
        assert page.inline == [], path
        assert all(one.startswith(("/", "#", "?")) for one in page.found), path
        assert text.count("<h1>") == 1, path
        assert HOSTILE not in text, path
        shown = re.sub(r"<[^>]*>", " ", text)
        for never in (r"NaN", r"Infinity", r"undefined", r"None(?!\.)", r"(?<![\w.])-\d"):
            assert not re.search(rf"(?<![\w]){never}\b", shown), f"{path} shows {never}"
        # A table that scrolls must be reachable with the keyboard.
        for tag in re.findall(r'<div class="scroll[^>]*>', text):
            assert 'tabindex="0"' in tag, path
            assert "aria-label=" in tag, path
        ids = re.findall(r'\bid="([^"]+)"', text)
        assert len(ids) == len(set(ids)), path


@pytest.mark.parametrize(
    ("name", "badge", "sentence"),
    [
        ("flowing", "files", "1 file is not read to the end"),
        ("catching up", "catching up", "The stream lags"),
        ("stuck", "stream stuck", "The stream has made no progress for"),
        ("MySQL away", "mysql down", "MySQL does not answer"),
        ("no broker", "no broker", "No broker answers"),
        ("empty", "waiting for lines", "The mill is ready."),
        ("failed", "stream failed", "The stream has given up"),
        ("broker down", "broker-2 down", "Broker 2 does not answer"),
    ],
)
def test_one_look_says_what_is_wrong(sites: Sites, name: str, badge: str, sentence: str) -> None:
    text = sites[name].text("/")
    verdict = text[text.index('class="verdict"') : text.index("</h1>")]
    assert badge in verdict
    assert sentence in verdict
    if name != "empty":
        elsewhere = sites[name].text("/topics")
        assert badge in elsewhere[: elsewhere.index("</header>")], "in the head of other pages"


def test_a_failed_part_is_said_with_its_own_words(sites: Sites) -> None:
    assert "its key has changed" in sites["failed"].text("/")
    assert "its key has changed" in sites["failed"].text("/stream")


def test_stuck_is_said_alike_everywhere(sites: Sites) -> None:
    client = sites["stuck"].client
    assert "✕ stuck" in client.get("/").text
    parts = {row["part"]: row for row in client.get("/api/v1/parts").json()["data"]}
    assert parts["stream"]["health"] == "stuck"
    assert "wait in logs.access" in parts["stream"]["stuck_over"]
    assert "stream has made no progress" in client.get("/healthz").text
    status = client.get("/status").json()
    assert status["problems"][0]["code"] == "part-stuck"
    assert status["details"]["stuck_parts"] == {"stream": status["problems"][0]["text"]}
    found = re.search(r'stuck_seconds\{part="stream"\} (\d+)', client.get("/metrics").text)
    assert found is not None
    assert int(found[1]) >= 60
    assert client.get("/api/v1/health").json()["data"][0]["what"] == "stream stuck"


def test_what_was_not_counted_comes_from_mysql_as_lines_and_as_faults(
    sites: Sites,
) -> None:
    page = sites["flowing"].text("/stream")
    for label, value in (
        ("Lines not parsed, ever", "214"),
        ("Lines set aside, ever", "3"),
        ("Faults of single metrics, ever", "1,130"),
    ):
        assert f"<dt>{label}</dt><dd>{value}</dd>" in page
    assert "slow_ms could not be measured (a fault of this metric)" in page
    metrics = sites["flowing"].client.get("/metrics").text
    assert "millrace_lines_unparsed 214.0" in metrics
    assert "millrace_metric_faults 1130.0" in metrics


def test_the_saved_file_is_said_on_the_page(tmp_path: Path) -> None:
    site = Site(Story(problem="millrace.yaml:7: a fault", notice="takes 9 of 11 away"), tmp_path)
    text = site.text("/")
    assert "millrace.yaml:7: a fault" in text
    assert "takes 9 of 11 away" in text
    assert "millrace_config_problem 1.0" in site.client.get("/metrics").text


def test_a_group_named_with_a_slash_has_its_page_and_its_rows(sites: Sites) -> None:
    site = sites["catching up"]
    assert f'href="{SLASHED_PATH}"' in site.text("/groups")
    page = site.text(SLASHED_PATH)
    assert "billing-1" in page
    assert "10.0.7.21" in page
    assert "cooperative-sticky" in page
    assert "logs.json-2" in page, "assigned, and never committed"
    rows = site.client.get(f"/api/v1{SLASHED_PATH}").json()["data"]
    assert len(rows) == 6
    assert {row["member"] for row in rows} == {"export-1"}


def test_a_stream_that_has_not_begun_shows_no_numbers_below_zero(sites: Sites) -> None:
    page = sites["empty"].text("/stream")
    assert "<dt>Batch, epoch</dt><dd>none yet, none yet</dd>" in page
    assert "<dt>Last batch</dt><dd>none yet</dd>" in page


@pytest.mark.parametrize("path", ["/", "/groups", "/healthz", "/metrics", "/status"])
def test_head_is_answered_as_get_is(sites: Sites, path: str) -> None:
    answer = sites["flowing"].client.head(path)
    assert answer.status_code == 200
    assert answer.text == ""


def test_history_is_there_by_range_with_gaps_as_null(sites: Sites) -> None:
    client = sites["stuck"].client
    rows = client.get("/api/v1/history", params={"series": ["lag", "counted", "none"]}).json()
    assert rows["schema"] == "history/1"
    assert len(rows["data"]) == 120
    assert rows["data"][-10]["lag"] > 200_000
    assert rows["data"][-10]["counted"] == 0
    assert {row["none"] for row in rows["data"]} == {None}
    names = client.get("/api/v1/history").json()["data"]
    assert {"series": "lag"} in names
    assert client.get("/api/v1/history?range=2y").status_code == 422
    many = client.get("/api/v1/history", params={"series": [str(n) for n in range(13)]})
    assert many.status_code == 422


def test_events_are_kept_and_lettered(sites: Sites) -> None:
    text = sites["MySQL away"].text("/")
    assert "mysql does not answer" in text
    assert '<span class="tag">A</span>' in text
    told = sites["MySQL away"].client.get("/api/v1/events").json()["data"]
    assert [row["kind"] for row in told].count("part") == 2


@pytest.mark.parametrize(
    "path",
    ["/api/v1/groups", "/api/v1/lag", "/api/v1/topics", "/api/v1/topics/logs.access",
     "/api/v1/parts", "/api/v1/collector", "/api/v1/counts", "/api/v1/events", "/api/v1/health",
     "/api/v1/rules"],
)  # fmt: skip
def test_every_table_comes_as_csv_too(sites: Sites, path: str) -> None:
    answer = sites["flowing"].client.get(path, params={"format": "csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    table = list(csv.DictReader(io.StringIO(answer.text)))
    assert table
    if path.endswith("logs.access"):
        assert [row["partition"] for row in table] == ["0", "1", "2"]


def test_a_name_that_a_spreadsheet_would_calculate_is_given_as_text() -> None:
    from monitor.api.routes import as_csv

    answer = as_csv([{"group": "=1+1", "lag": -3, "note": None}], "t")
    assert bytes(answer.body).decode().splitlines()[1] == "'=1+1,-3,"


def test_a_first_load_is_small(sites: Sites) -> None:
    client = sites["catching up"].client
    sizes = [
        len(client.get(path).content)
        for path in ("/", "/static/mill.css", "/static/mill.js", "/static/ticks.js")
    ]
    assert sum(sizes) <= LOAD_BYTES_MAX, sizes


def test_the_stories_say_what_they_are_meant_to(sites: Sites) -> None:
    """Check the stories themselves, because tests of pages would prove nothing with a wrong
    story."""
    stuck = sites["stuck"].mill.snapshot
    assert stuck is not None
    part = stuck.part("stream")
    assert part is not None
    assert part.state == "running", "it says of itself that all is well"
    assert scene.STEPS * scene.STEP_MS == 600_000


def test_an_alert_is_in_the_verdict_on_its_page_in_the_rows_and_in_prometheus(
    sites: Sites,
) -> None:
    site = sites["disk full"]
    verdict = site.text("/")
    assert "alert disk-full" in verdict[verdict.index('class="verdict"') : verdict.index("</h1>")]
    page = site.text("/alerts")
    assert "<b>1 alert is open</b>" in page
    assert "5.0 GiB of 120.0 GiB are free on the disk of data" in page
    assert "no webhook" in page
    (row,) = site.client.get("/api/v1/alerts").json()["data"]
    assert (row["rule"], row["subject"], row["on"]) == ("disk-full", "data", "disk_free")
    assert row["value"] == pytest.approx(5 / 120)
    rules = {row["rule"]: row for row in site.client.get("/api/v1/rules").json()["data"]}
    assert (rules["disk-full"]["open"], rules["disk-full"]["limit"]) == (1, 0.05)
    metrics = site.client.get("/metrics").text
    assert 'millrace_alert_open{rule="disk-full",subject="data"} 1.0' in metrics
    told = site.client.get("/api/v1/events").json()["data"]
    assert [one["text"] for one in told if one["kind"] == "alert"] == [
        "alert disk-full: 5.0 GiB of 120.0 GiB are free on the disk of data"
    ]


def test_a_part_that_is_down_is_said_once_though_an_alert_is_open(sites: Sites) -> None:
    health = sites["MySQL away"].client.get("/api/v1/health").json()["data"]
    assert [row["what"] for row in health].count("mysql down") == 1
    assert not [row for row in health if row["what"] == "alert part-down"]
    assert 'data-alert="part-down"' in sites["MySQL away"].text("/alerts")


def test_a_mill_without_alerts_says_so(sites: Sites) -> None:
    page = sites["flowing"].text("/alerts")
    assert "No alert is open." in page
    assert page.count("● well") == 10
    assert "▲ 1 about to open" in page, "an archive is damaged"


def test_the_collector_says_what_it_does_not_read_on_and_why(sites: Sites) -> None:
    page = sites["flowing"].text("/collector")
    table = page[page.index('aria-label="Files that are not read on"') :]
    table = table[: table.index("</table>")]
    assert "damaged after byte 17" in table
    assert "✕ stands still" in table
    assert "○ waits for a line end" in table
    assert "its last 96 bytes have no line end" in table
    assert "access.log" not in table, "it is at its end"
    assert "<dt>Dead letters since its start</dt><dd>none</dd>" in page


def test_the_collector_tells_of_dead_letters_and_lost_lines(tmp_path: Path) -> None:
    site = Site(Story(counters={"dead_lettered": 7, "lost_possible": 2}), tmp_path)
    page = site.text("/collector")
    assert "<dt>Dead letters since its start</dt><dd>" in page
    assert "▲ 7" in page
    assert 'href="/topics/millrace.dead-letters/messages"' in page
    assert "▲ 2" in page


def test_a_partition_never_lags_more_than_the_most_there_was(sites: dict[str, Site]) -> None:
    text = sites["catching up"].client.get(SLASHED_PATH).text
    minis = re.findall(r'<div class="mini.*?<b>([\d,]+)</b>.*?most ([\d,]+)', text, re.DOTALL)
    assert len(minis) == 5
    for now, most in minis:
        assert int(most.replace(",", "")) >= int(now.replace(",", ""))


def test_a_reason_that_stands_alone_is_a_sentence(sites: dict[str, Site]) -> None:
    assert (
        "<p>Its lag has only grown for 4 min" in sites["catching up"].client.get(SLASHED_PATH).text
    )


def test_what_is_counted_by_reason_is_not_called_lines(sites: dict[str, Site]) -> None:
    """The counts include faults of single metrics, and these are not lines."""
    table = sites["flowing"].client.get("/stream").text.partition("Lines that did not parse")[2]
    assert ">Times</th>" in table
    assert ">Lines</th>" not in table


def test_a_group_that_rests_is_shown_as_old_as_its_last_look(sites: Sites) -> None:
    site = sites["resting"]
    assert site.mill.snapshot is not None
    group = site.mill.snapshot.group(SLASHED)
    assert group is not None
    row = site.text("/groups").partition(f'data-group="{SLASHED}"')[2].partition("</tr>")[0]
    assert "as of 10 s ago" in row
    assert f"{group.total.lag:,}" in row
    others = site.text("/groups").replace(row, "")
    assert "as of 10 s ago" not in others
    page = site.text(SLASHED_PATH)
    assert "Its numbers are as of 10 s ago" in page
    lags = {cell.lag.lag for cell in group.cells if cell.lag.lag is not None}
    assert all(f"<b>{lag:,}</b>" in page for lag in lags), "its partitions are made for the page"
    (cell, *_) = site.client.get(f"/api/v1{SLASHED_PATH}").json()["data"]
    assert cell["looked_at_ms"] == NOW_MS - 10_000


def test_a_group_whose_turn_has_not_come_is_counted(sites: Sites) -> None:
    site = sites["resting"]
    assert "1 more not looked at yet" in site.text("/groups")
    assert "1 more not looked at yet" not in sites["flowing"].text("/groups")


@pytest.mark.parametrize("key", ["now", "10m", "3h", "1d", "all", "nonsense"])
def test_the_stages_are_there_for_every_range(sites: Sites, key: str) -> None:
    text = sites["catching up"].text(f"/stream?range=3h&stages={key}")
    shown = "now" if key == "nonsense" else key
    assert f'stages={shown}" aria-current="true"' in text
    assert 'href="/stream?range=1d&amp;stages=' in text, "the other range keeps this one"
    cards = dict(re.findall(r'data-stage="(\w+)">(.*?)</li>', text, re.S))
    assert list(cards) == ["Collect", "Source", "Parse", "Fold", "MySQL", "Redis", "Commit"]
    for name in list(cards)[1:]:
        assert "ms a batch" in cards[name], name
        assert "unknown" not in cards[name], name
    assert "busy <b>3 %</b>" in cards["Collect"]
    assert "busiest" in cards["MySQL"]


def test_of_an_older_stream_the_page_says_unknown_and_not_0(sites: Sites) -> None:
    text = sites["older"].text("/stream")
    cards = dict(re.findall(r'data-stage="(\w+)">(.*?)</li>', text, re.S))
    for name in cards:
        assert "busy <b>unknown</b>" in cards[name], name
        assert "busiest" not in cards[name], name
    assert "Not known." in text
    assert "From a line to its number: unknown, this stream does not tell." in sites["older"].text(
        "/"
    )


def test_files_that_are_not_counted_come_with_the_command_for_them(sites: Sites) -> None:
    page = sites["unmatched"].text("/collector")
    assert "▲ 2 in watched/ without an input" in page
    assert "<code>./millrace detect /mill/watched/odd/a.log</code>" in page
    assert "without an input" not in sites["flowing"].text("/collector")
    page = sites["flowing"].text("/stream")
    assert "<code>./millrace detect watched/access/edge-2.log</code>" in page
