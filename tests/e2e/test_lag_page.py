"""The overview in a real browser. The lag grows while the stream is stopped, and falls to zero
afterwards."""

import json
import re
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.mill import TempMill
from tests.e2e.reading import Reading, stopped
from tests.harness.browser import beyond_the_edge
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

SETTLED_S = 60.0
WRITTEN = 1_234
PAGES = ("/", "/counts", "/groups", "/groups/millrace-stream", "/topics", "/topics/logs.text",
         "/brokers", "/collector", "/stream", "/api/docs")  # fmt: skip
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}


def text_of(chrome: Any, selector: str) -> str:
    """Return an element's text. A single script finds the element and reads it, because the page
    can replace its elements at any moment."""
    script = "return document.querySelector(arguments[0])?.textContent ?? ''"
    return str(chrome.execute_script(script, selector)).strip()


def append(mill: TempMill, name: str, count: int) -> None:
    with (mill.home.folder / "watched" / "text" / name).open("a") as file:
        file.writelines(f"line {number} of {name}\n" for number in range(count))


def committed(reading: Reading) -> dict[tuple[str, int], int]:
    """Return the offsets that the stream's group has committed for `logs.text`, by partition."""
    rows = reading.api("lag?group=millrace-stream&topic=logs.text")
    return {(row["topic"], row["partition"]): row["committed_offset"] or 0 for row in rows}


def test_lag_grows_by_what_is_written_and_goes_without_a_reload(
    mill_at_work: TempMill, reading: Reading, chrome: Any
) -> None:
    append(mill_at_work, "before.log", 10)
    wait_until(lambda: reading.lines_of("text/before.log") == 10, SETTLED_S, "the first lines")
    # Lines that the stream has counted but not committed also count as lag. So wait for its commit
    # before stopping it.
    wait_until(lambda: committed(reading) == reading.ends("logs.text"), SETTLED_S, "the commit")
    chrome.get(f"http://127.0.0.1:{mill_at_work.ports['monitor']}/")
    chrome.execute_script("window.opened = 'once'")
    lag, group = "#stream-lag .wait b", "[data-group=millrace-stream] .lag"
    wait_until(lambda: text_of(chrome, lag) == "0", SETTLED_S, "no lag at first")

    with stopped(reading, "stream"):
        wait_until(
            lambda: "down" in text_of(chrome, "[data-part=stream] .chip"), SETTLED_S, "stream down"
        )
        commits = reading.commits()
        append(mill_at_work, "during.log", WRITTEN)

        def waiting() -> int:
            return int(text_of(chrome, lag).replace(",", "") or 0)

        wait_until(lambda: waiting() > WRITTEN, SETTLED_S, "lag as written")
        # The lag is a difference of offsets, so it includes the markers of transactions, too.
        assert waiting() <= WRITTEN + reading.commits() - commits
        assert text_of(chrome, group) == f"{waiting():,}"
        assert reading.stream_lag() == waiting()
        assert f'lag">{waiting():,}<' in reading.page("/"), "the same without JavaScript"
        assert "stream down" in text_of(chrome, ".verdict .chip")

    wait_until(lambda: text_of(chrome, lag) == "0", SETTLED_S, "no lag at last")
    wait_until(lambda: "up" in text_of(chrome, "[data-part=stream] .chip"), SETTLED_S, "stream up")
    assert chrome.execute_script("return window.opened") == "once"
    assert reading.lines_of("text/during.log") == WRITTEN
    assert_at_home(chrome, mill_at_work)


def assert_at_home(chrome: Any, mill: TempMill) -> None:
    """Check that the page contacts no other host, and that the browser's console shows no error,
    for example of the content security policy."""
    home = f"127.0.0.1:{mill.ports['monitor']}"
    asked = chrome.execute_script(
        "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    )
    for entry in chrome.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    assert asked
    foreign = {url for url in asked if urlsplit(url).netloc not in (home, "")}
    assert not {url for url in foreign if not url.startswith(("chrome://", "data:"))}
    said = [entry["message"] for entry in chrome.get_log("browser")]
    # Chromium's own start page logs warnings on a slow machine, so ignore chrome:// messages.
    assert not [message for message in said if not message.startswith("chrome://")]


def test_every_page_fits_a_phone_and_stays_at_home(mill_at_work: TempMill, chrome: Any) -> None:
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    for path in PAGES:
        chrome.get(f"http://127.0.0.1:{mill_at_work.ports['monitor']}{path}")
        assert text_of(chrome, "h1"), path
        assert beyond_the_edge(chrome, int(PHONE["width"])) == [], path
        small = chrome.execute_script(
            "return [...document.querySelectorAll('nav a')].filter("
            "(link) => link.getBoundingClientRect().height < 24).length"
        )
        assert small == 0, f"links of {path} are too small for a finger"
        assert_at_home(chrome, mill_at_work)


def test_pages_are_whole_without_scripts(
    mill_at_work: TempMill, reading: Reading, chrome: Any
) -> None:
    chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    chrome.get(f"http://127.0.0.1:{mill_at_work.ports['monitor']}/")
    shown = chrome.find_element("css selector", "main").text
    for part in ("mysql", "redis", "broker-1", "collector", "stream", "millrace-stream"):
        assert part in shown
    assert re.search(r"\d\s+lines wait", shown, re.IGNORECASE)
    for path in PAGES:
        text = reading.page(path)
        assert "<h1>" in text
        assert not re.search(
            r"\b(NaN|undefined|None(?!\.)|Infinity)\b", re.sub(r"<[^>]*>", " ", text)
        ), path


def test_each_part_that_stands_still_is_named(mill_at_work: TempMill, reading: Reading) -> None:
    """The page must show a stopped part as down and name it. It must not show 0 instead."""

    def is_down(parts: list[str]) -> bool:
        return [r["part"] for r in reading.api("parts") if r["health"] != "up"] == parts

    wait_until(partial(is_down, []), SETTLED_S, "all up")
    for part in ("collector", "stream"):
        with stopped(reading, part):
            wait_until(partial(is_down, [part]), SETTLED_S, f"{part} alone is down")
            assert f"✕ {part} is down" in reading.page(f"/{part}")
            assert f"{part} down" in reading.page("/topics"), "in the head of other pages"
        wait_until(partial(is_down, []), SETTLED_S, "all up again")
