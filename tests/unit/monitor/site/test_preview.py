"""The page that previews a file: what it displays, what it escapes, and what it refuses."""

from collections.abc import Mapping
from typing import Any

import pytest
from fastapi.testclient import TestClient

from monitor.asking.preview import PreviewFailed
from monitor.config.settings import MonitorSettings
from monitor.http import create_app
from monitor.sampling.sampler import Sampler
from tests.unit.monitor.scene import FLOWING, HOSTILE, NOW_MS, Mill, StandingStill
from tests.unit.monitor.test_http import Addresses

FOUND: dict[str, Any] = {
    "lines": 1_200,
    "is_part": True,
    "format": "json",
    "title": "JSON lines",
    "share": 0.99999,
    "columns": [
        {"name": "time", "type": "timestamp", "about": ""},
        {"name": "who", "type": "string", "about": HOSTILE},
    ],
    "rows": [{"time": "2026-11-29 10:00:00", "who": HOSTILE}, {"time": None, "who": None}],
    "not_parsed": {"count": 1, "lines": [{"line": 7, "text": HOSTILE}]},
    "multiline": {"rule": "java", "events": 3, "places": [[4, 9]]},
    "runner_up": {"format": "docker_json", "share": 0.5},
    "input": {"name": "shop", "collector": {}, "stream": {}},
    "metrics": [],
    "notes": ["two more fields are text"],
    "reason": None,
    "remedy": None,
    "yaml": "collector:\n  inputs: []\n",
    "command": "./millrace detect 'watched/my shop/app.log' --apply shop",
}
NOTHING: dict[str, Any] = {
    **FOUND,
    "format": None,
    "rows": [],
    "input": None,
    "yaml": None,
    "command": None,
    "reason": "its bytes are no text",
    "remedy": "leave it out of watched/",
}


class Script:
    """A double of the preview command. It records requests, and returns one answer or fails."""

    def __init__(self, answer: Mapping[str, Any] | Exception) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def preview(self, name: str) -> Mapping[str, Any]:
        self.asked.append(name)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def client_of(script: Script | None) -> TestClient:
    mill = Mill(FLOWING, None)
    mill.run(3)
    settings = MonitorSettings(bootstrap_servers="b:1", data_dir="data", parts={})
    sampler = Sampler(settings, StandingStill(mill), lambda: NOW_MS)
    sampler.resume(mill.snapshot, mill.memory, mill.progress)
    app = create_app(
        settings, sampler, started_at_ms=0, clock_ms=lambda: NOW_MS,
        on_failure=lambda error: None, previews=script,
    )  # fmt: skip
    return TestClient(app, base_url="http://127.0.0.1:8090")


def test_rows_are_shown_as_text_with_the_command_that_counts_the_file() -> None:
    script = Script(FOUND)
    answer = client_of(script).get("/preview", params={"file": "my shop/app.log"})
    assert answer.status_code == 200
    assert script.asked == ["my shop/app.log"]
    page = Addresses()
    page.feed(answer.text)
    assert page.inline == []
    assert all(one.startswith(("/", "#")) for one in page.found)
    assert HOSTILE not in answer.text
    assert answer.text.count("&lt;img src=x onerror") >= 3
    assert answer.text.count("<h1>") == 1
    assert "99.9 % of the first 1,200 lines parse" in answer.text
    assert "./millrace detect &#39;watched/my shop/app.log&#39; --apply shop" in answer.text
    assert "lines 4 to 9" in answer.text
    assert 'data-still="/counts"' in answer.text


def test_a_file_without_a_format_says_what_to_do() -> None:
    text = client_of(Script(NOTHING)).get("/preview", params={"file": "a.bin"}).text
    assert "No format fits: its bytes are no text. What to do: leave it out of watched/." in text
    assert "--apply" not in text


@pytest.mark.parametrize(
    ("failure", "code"), [(ValueError("no such file"), 400), (PreviewFailed("not in time"), 503)]
)
def test_failures_are_shown(failure: Exception, code: int) -> None:
    answer = client_of(Script(failure)).get("/preview", params={"file": "a.log"})
    assert answer.status_code == code
    assert str(failure) in answer.text


def test_names_outside_the_folder_are_not_asked() -> None:
    script = Script(FOUND)
    answer = client_of(script).get("/preview", params={"file": "../secrets"})
    assert answer.status_code == 400
    assert script.asked == []


def test_the_counts_page_has_the_form_unless_it_is_switched_off() -> None:
    assert 'action="/preview"' in client_of(Script(FOUND)).get("/counts").text
    client = client_of(None)
    assert 'action="/preview"' not in client.get("/counts").text
    answer = client.get("/preview", params={"file": "a.log"})
    assert answer.status_code == 503
    assert "monitor.messages is false" in answer.text


def test_a_page_without_a_file_only_asks_for_one() -> None:
    script = Script(FOUND)
    assert client_of(script).get("/preview").status_code == 200
    assert script.asked == []
