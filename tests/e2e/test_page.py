"""The pages in a real browser, for several states of a mill: with the keyboard, in dark colours, on
a phone, with a frozen server and without scripts.

With MILLRACE_PICTURES=1 a test here writes the pictures in `docs/pictures`.
"""

import base64
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.harness import ROOT
from tests.harness.axe import violations
from tests.harness.browser import beyond_the_edge
from tests.harness.ports import free_port
from tests.harness.proxy import proxy
from tests.harness.wait import wait_until
from tests.unit.monitor.scene import SLASHED

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

PAGES = ("/", "/counts", "/stream", "/groups", "/groups/millrace-stream",
         "/groups/team%2Fbilling%20export", "/topics", "/topics/logs.access", "/brokers",
         "/collector", "/alerts", "/topics/logs.access/messages", "/api/docs")  # fmt: skip
PHONE: dict[str, object] = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
DESK: dict[str, object] = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
PICTURES = ROOT / "docs" / "pictures"
WAIT_S = 30.0


class Scene:
    """The pages of a story, served by a separate process that a test can freeze."""

    def __init__(self, story: str, folder: Path, *options: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        port = self.url.rpartition(":")[2]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.page_scene", story, port, str(folder), *options],
            cwd=ROOT,
        )
        wait_until(self._answers, WAIT_S, f"the site of {story}")

    def _answers(self) -> bool:
        with urlopen(f"{self.url}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def scene(story: str, folder: Path, token: str = "", root: str = "") -> Iterator[Scene]:
    made = Scene(story, folder, token, root)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def catching_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene("CATCHING_UP", tmp_path_factory.mktemp("scene")) as made:
        yield made


def run(chrome: Any, script: str, *arguments: object) -> Any:
    return chrome.execute_script(f"return {script}", *arguments)


def unreachable_boxes(chrome: Any) -> list[str]:
    """Return scrolling boxes that have no name or cannot be reached with the keyboard."""
    script = """[...document.querySelectorAll('main *')].filter((box) => {
      const style = getComputedStyle(box);
      const scrolls = /auto|scroll/.test(style.overflowX + style.overflowY);
      return scrolls && (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight)
        && !(box.tabIndex >= 0 && box.getAttribute('aria-label'));
    }).map((box) => box.outerHTML.slice(0, 120))"""
    return list(run(chrome, script))


def poor_contrasts(chrome: Any) -> list[str]:
    """Return the texts whose contrast with their background is below 4.5."""
    script = """(() => {
      const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
      const parse = (text) => {
        paint.clearRect(0, 0, 1, 1); paint.fillStyle = text; paint.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = paint.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
      const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.03928
        ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((s, c, i) => s + c
        * [0.2126, 0.7152, 0.0722][i], 0);
      const ground = (node) => {
        for (let at = node; at; at = at.parentElement) {
          const style = getComputedStyle(at);
          if (style.backgroundImage !== 'none') return null;
          const color = parse(style.backgroundColor);
          if (color[3] > 0.99) return color;
          if (color[3] > 0) return null;
        }
        return parse('white');
      };
      const poor = [];
      const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walk.nextNode()) {
        const node = walk.currentNode.parentElement;
        if (!walk.currentNode.nodeValue.trim() || !node.checkVisibility()) continue;
        if (node.closest('svg, .vh, script, [hidden]')) continue;
        const below = ground(node);
        if (!below) continue;
        const shades = [light(parse(getComputedStyle(node).color)), light(below)];
        const ratio = (Math.max(...shades) + 0.05) / (Math.min(...shades) + 0.05);
        const text = walk.currentNode.nodeValue.trim().slice(0, 40);
        if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${text}`);
      }
      return [...new Set(poor)];
    })()"""
    return list(run(chrome, script))


def emulate(chrome: Any, device: dict[str, object], scheme: str = "light") -> None:
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def faults_of(chrome: Any) -> list[str]:
    """Return the errors in the console, which include those of the content security policy."""
    return [entry["message"] for entry in chrome.get_log("browser") if entry["level"] != "INFO"]


def check_page(chrome: Any, url: str, path: str, width: int, *, with_axe: bool = False) -> None:
    """Open a page, and check that everybody can use it: with a small screen, by touch, with the
    keyboard and with a screen reader."""
    chrome.get(url + path)
    check_shown(chrome, path, width, with_axe=with_axe)


def check_shown(chrome: Any, path: str, width: int, *, with_axe: bool) -> None:
    """Make the checks of `check_page` for the page that is open."""
    if with_axe:
        assert violations(chrome) == [], path
    assert run(chrome, "document.querySelectorAll('h1').length") == 1, path
    assert run(chrome, "document.querySelectorAll('main, header, nav, footer').length") >= 4
    assert beyond_the_edge(chrome, width) == [], path
    assert unreachable_boxes(chrome) == [], path
    assert poor_contrasts(chrome) == [], path
    unnamed = "[...document.querySelectorAll('svg[role=img]')].filter((s) => !s.ariaLabel).length"
    assert run(chrome, unnamed) == 0, path
    small = ("[...document.querySelectorAll('nav a, button')].filter((a) => a.offsetHeight"
             " && a.getBoundingClientRect().height < 24).length")  # fmt: skip
    assert run(chrome, small) == 0, path
    assert faults_of(chrome) == [], path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", [DESK, PHONE], ids=["desk", "phone"])
def test_every_page_is_read_by_everybody(
    catching_up: Scene, chrome: Any, device: dict[str, object], scheme: str
) -> None:
    emulate(chrome, device, scheme)
    # Run axe, which is slow, in two of the four combinations. They have all boxes and all colours.
    with_axe = (device is DESK) == (scheme == "light")
    for path in PAGES:
        check_page(chrome, catching_up.url, path, int(str(device["width"])), with_axe=with_axe)


def test_no_long_word_makes_a_phone_scroll_sideways(catching_up: Scene, chrome: Any) -> None:
    emulate(chrome, PHONE)
    for path in PAGES[:-1]:
        chrome.get(catching_up.url + path)
        # Replace every text of users by a long word. Skip tables and code, which scroll in boxes of
        # their own, and texts that never wrap, which are ours and short.
        run(chrome, """(() => {
          const main = document.querySelector('main');
          const walk = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
          while (walk.nextNode()) {
            const within = walk.currentNode.parentElement;
            if (!walk.currentNode.nodeValue.trim()) continue;
            if (within.closest('svg, .vh, script, .scroll, pre, .chip, .tag, select')) continue;
            if (getComputedStyle(within).whiteSpace === 'nowrap') continue;
            walk.currentNode.nodeValue = 'w'.repeat(80);
          }
        })()""")  # fmt: skip
        assert beyond_the_edge(chrome, int(str(PHONE["width"]))) == [], path


def test_axe_sees_what_is_wrong(catching_up: Scene, chrome: Any) -> None:
    chrome.get(catching_up.url + "/groups")
    # Put the button into the footer, because the page regularly replaces its header and main part.
    run(chrome, "document.querySelector('footer').append(document.createElement('button'))")
    assert [one.partition(" ")[0] for one in violations(chrome)] == ["button-name"]


def test_a_dead_broker_is_read_by_everybody(tmp_path: Path, chrome: Any) -> None:
    with scene("BROKER_DOWN", tmp_path / "scene") as site:
        for device, scheme in ((DESK, "light"), (PHONE, "dark"), (PHONE, "light")):
            emulate(chrome, device, scheme)
            for path in ("/", "/brokers"):
                check_page(
                    chrome, site.url, path, int(str(device["width"])),
                    with_axe=(device is DESK) == (scheme == "light"),
                )  # fmt: skip
        voters = "document.querySelectorAll('tr[data-voter]').length"
        assert run(chrome, voters) == 3


def test_a_stream_that_does_not_tell_of_its_stages_is_read_by_everybody(
    tmp_path: Path, chrome: Any
) -> None:
    with scene("OLDER", tmp_path / "scene") as site:
        for device, scheme in ((DESK, "light"), (PHONE, "dark")):
            emulate(chrome, device, scheme)
            for path in ("/", "/stream", "/stream?stages=3h"):
                check_page(chrome, site.url, path, int(str(device["width"])), with_axe=True)
        chrome.get(site.url + "/stream")
        busy = "[...document.querySelectorAll('.stage .busy b')].map((one) => one.textContent)"
        assert run(chrome, busy) == ["unknown"] * 7


def test_a_tick_leaves_selection_focus_and_open_tables_alone(
    catching_up: Scene, chrome: Any
) -> None:
    chrome.get(catching_up.url + "/")
    run(chrome, """(() => {
      window.opened = 'once';
      document.querySelector('details').open = true;
      document.querySelector('.scroll a').focus();
      // A text that the tick does not change: the number of a verdict is another one each time.
      const text = document.querySelector('footer');
      getSelection().selectAllChildren(text);
      window.node = text;
    })()""")  # fmt: skip
    before = run(chrome, "getSelection().toString()")
    assert before
    first = run(chrome, "document.querySelector('header time').dateTime")
    catching_up_moves = "document.querySelector('header time').dateTime !== arguments[0]"
    wait_until(lambda: run(chrome, catching_up_moves, first), WAIT_S, "a tick")
    assert run(chrome, "window.opened") == "once"
    assert run(chrome, "document.querySelector('details').open") is True
    assert run(chrome, "document.activeElement.matches('.scroll a')") is True
    assert run(chrome, "getSelection().toString()") == before
    assert run(chrome, "window.node.isConnected") is True


def test_a_pause_is_kept_from_page_to_page(catching_up: Scene, chrome: Any) -> None:
    chrome.get(catching_up.url + "/")
    chrome.find_element("id", "pause").click()
    chrome.get(catching_up.url + "/groups")
    button = chrome.find_element("id", "pause")
    assert (button.text, button.get_attribute("aria-pressed")) == ("Resume", "true")
    button.click()
    assert chrome.find_element("id", "pause").text == "Pause"


def test_a_chart_is_read_by_arrow_keys(catching_up: Scene, chrome: Any) -> None:
    chrome.get(catching_up.url + "/")
    run(chrome, "document.querySelector('.chart').focus()")
    chrome.switch_to.active_element.send_keys("\ue012")
    read = "document.querySelector('.chart .read').textContent"
    wait_until(lambda: "waiting" in run(chrome, read), WAIT_S, "the value is read")
    assert faults_of(chrome) == []


def test_a_frozen_monitor_is_said_over_the_page_and_goes_by_itself(
    tmp_path: Path, chrome: Any
) -> None:
    with scene("FLOWING", tmp_path) as site:
        chrome.get(site.url + "/")
        site.process.send_signal(signal.SIGSTOP)
        banner = "document.getElementById('stale').hidden === false"
        try:
            wait_until(lambda: run(chrome, banner), WAIT_S, "the stale banner")
            text = run(chrome, "document.getElementById('stale').textContent")
            assert "The monitor has not answered for" in text
            assert run(chrome, "document.body.classList.contains('stale')")
        finally:
            site.process.send_signal(signal.SIGCONT)
        wait_until(lambda: not run(chrome, banner), WAIT_S, "the banner goes")


WHOLE = {
    "/": ("lines wait", "requests_by_status", "broker-1", "10 min"),
    "/counts": ("requests_by_status", "in the minute"),
    "/stream": ("Where a batch's time goes", "busiest", "By window"),
    "/groups": (SLASHED,),
    "/groups/millrace-stream": ("read by Spark", "logs.access"),
    "/groups/team%2Fbilling%20export": ("export-1",),
    "/topics": ("logs.access", "logs.json"),
    "/topics/logs.access": ("retention.ms", SLASHED),
    "/brokers": ("Replica map", "produce"),
    "/collector": ("damaged after byte 17",),
    "/alerts": ("disk-full",),
    "/topics/logs.access/messages": ("access/edge-2.log", "null"),
    "/api/docs": ("/api/v1/lag",),
}
"""Words that each page must contain at every time of the scene's clock."""


def outline(chrome: Any) -> list[str]:
    """Return the visible structure of a page: its headings, columns and charts, without the values,
    which change."""
    script = """[...document.querySelectorAll('main h2, main h3, main th[scope=col], main .chart, '
      + 'main summary, main .station, main form')]
      .filter((one) => one.checkVisibility())
      .map((one) => one.matches('h2, h3, th') ? `${one.tagName} ${one.textContent.trim()}`
        : `${one.tagName} ${one.classList.item(0) || ''}`)"""
    return list(run(chrome, script))


def test_pages_are_whole_without_scripts(catching_up: Scene, chrome: Any) -> None:
    assert sorted(WHOLE) == sorted(PAGES)
    for path, words in WHOLE.items():
        outlines = []
        for without in (False, True):
            chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": without})
            chrome.get(catching_up.url + path)
            outlines.append(outline(chrome))
        assert outlines[0] == outlines[1] != [], path
        shown = main_text(chrome)
        assert [word for word in words if word not in shown] == [], path


TOKEN = "the-token-of-a-scene"


def enter(chrome: Any, url: str) -> None:
    chrome.get(url + "/admin")
    chrome.find_element("id", "who").send_keys("Ada")
    chrome.find_element("id", "token").send_keys(TOKEN)
    send(chrome)


def send(chrome: Any) -> None:
    """Press the button of the page's form, and wait until the response has replaced the page."""
    button = chrome.find_element("css selector", "main .do")
    button.click()
    wait_until(lambda: is_gone(button), WAIT_S, "the answer to a form")


def is_gone(element: Any) -> bool:
    from selenium.common.exceptions import StaleElementReferenceException

    try:
        element.is_enabled()
    except StaleElementReferenceException:
        return True
    return False


def plan_deletion(chrome: Any, url: str) -> None:
    chrome.get(url + "/topics/logs.access")
    chrome.find_element("link text", "Delete records").click()
    chrome.find_element("id", "f-below").send_keys("8600000")
    send(chrome)


def main_text(chrome: Any) -> str:
    return str(chrome.find_element("css selector", "main").text)


@pytest.mark.parametrize("has_scripts", [True, False], ids=["scripts", "none"])
def test_an_order_is_planned_confirmed_and_kept(
    tmp_path: Path, chrome: Any, has_scripts: bool
) -> None:
    with scene("CATCHING_UP", tmp_path / "scene", TOKEN) as site:
        chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not has_scripts})
        enter(chrome, site.url)
        assert "Create a topic" in main_text(chrome)
        plan_deletion(chrome, site.url)
        assert "nothing is done yet" in main_text(chrome)
        assert "The group team/billing export has not read" in main_text(chrome)
        chrome.find_element("id", "name").send_keys("logs.access")
        send(chrome)
        assert "● Deletes records of logs.access for good: done" in main_text(chrome)
        chrome.get(site.url + "/admin/reset-offsets?group=team%2Fbilling%20export")
        chrome.find_element("id", "f-to").send_keys("start")
        send(chrome)
        assert "overwrite the offsets: export-1 at 10.0.7.21" in main_text(chrome)
        chrome.get(site.url + "/admin")
        assert "Deletes records of logs.access for good, 3 changes: done" in main_text(chrome)
        if has_scripts:
            assert [one for one in faults_of(chrome) if "409" not in one] == []


def test_behind_a_proxy_pages_tick_are_read_and_order(tmp_path: Path, chrome: Any) -> None:
    root = "/tools/mill"
    with (
        scene("CATCHING_UP", tmp_path / "scene", TOKEN, root) as site,
        proxy(int(site.url.rpartition(":")[2]), root) as outside,
    ):
        chrome.get(outside + "/")
        first = run(chrome, "document.querySelector('header time').dateTime")
        moved = "document.querySelector('header time').dateTime !== arguments[0]"
        wait_until(lambda: run(chrome, moved, first), WAIT_S, "a tick")
        run(chrome, "document.querySelector('.chart').focus()")
        chrome.switch_to.active_element.send_keys("\ue012")
        read = "document.querySelector('.chart .read').textContent"
        wait_until(lambda: "waiting" in run(chrome, read), WAIT_S, "the value is read")
        chrome.find_element("link text", "Groups").click()
        chrome.find_element("link text", SLASHED).click()
        assert SLASHED in main_text(chrome)
        enter(chrome, outside)
        plan_deletion(chrome, outside)
        chrome.find_element("id", "name").send_keys("logs.access")
        send(chrome)
        assert "● Deletes records of logs.access for good: done" in main_text(chrome)
        assert faults_of(chrome) == []


def test_pages_of_orders_are_read_by_everybody(tmp_path: Path, chrome: Any) -> None:
    with scene("CATCHING_UP", tmp_path / "scene", TOKEN) as site:
        for device, scheme in ((DESK, "light"), (PHONE, "dark")):
            emulate(chrome, device, scheme)
            width = int(str(device["width"]))
            chrome.delete_all_cookies()
            check_page(chrome, site.url, "/admin", width, with_axe=True)
            enter(chrome, site.url)
            check_shown(chrome, "/admin, entered", width, with_axe=True)
            for path in ("/admin/create-topic", "/admin/reset-offsets", "/topics/logs.access",
                         "/groups/millrace-stream", "/topics", "/brokers", "/clusters",
                         "/clusters/shop", "/clusters/warehouse"):  # fmt: skip
                check_page(chrome, site.url, path, width, with_axe=True)
            plan_deletion(chrome, site.url)
            check_shown(chrome, "a plan", width, with_axe=True)
            chrome.find_element("id", "name").send_keys("logs.access")
            send(chrome)
            check_shown(chrome, "an outcome", width, with_axe=True)


def test_pictures(tmp_path: Path, chrome: Any) -> None:
    """Take every picture. Without MILLRACE_PICTURES=1 the pictures go to a temporary folder."""
    chrome.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    folder = PICTURES if os.environ.get("MILLRACE_PICTURES") else tmp_path
    shots = [
        ("overview", "/", DESK, "light"), ("overview-dark", "/", DESK, "dark"),
        ("overview-phone", "/", {**PHONE, "deviceScaleFactor": 1}, "light"),
        ("counts", "/counts", DESK, "light"),
        ("group", "/groups/team%2Fbilling%20export", DESK, "light"),
        ("stream", "/stream", DESK, "light"), ("brokers", "/brokers", DESK, "light"),
        ("collector", "/collector", DESK, "light"),
        ("messages", "/topics/logs.access/messages?partition=1", DESK, "light"),
    ]  # fmt: skip
    with scene("CATCHING_UP", tmp_path / "scene") as site:
        for name, path, device, scheme in shots:
            emulate(chrome, device, scheme)
            take_picture(chrome, site.url + path, folder / f"{name}.png")
    with scene("CATCHING_UP", tmp_path / "orders", TOKEN) as site:
        emulate(chrome, DESK)
        take_picture(chrome, site.url + "/clusters", folder / "clusters.png")
        enter(chrome, site.url)
        plan_deletion(chrome, site.url)
        keep_picture(chrome, folder / "order.png")
    with scene("DISK_FULL", tmp_path / "full") as site:
        emulate(chrome, DESK)
        take_picture(chrome, site.url + "/alerts", folder / "alerts.png")


def take_picture(chrome: Any, url: str, file: Path) -> None:
    chrome.get(url)
    keep_picture(chrome, file)


def keep_picture(chrome: Any, file: Path) -> None:
    picture = chrome.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    data = base64.b64decode(picture["data"])
    assert data.startswith(b"\x89PNG")
    file.write_bytes(data)
