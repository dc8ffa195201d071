"""The login in a browser: by keyboard, in light and dark, on a narrow screen, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from monitor.login.people import people_data
from tests.harness import axe
from tests.harness.browser import beyond_the_edge, browser
from tests.harness.wait import wait_until
from tests.unit.monitor.login.page_rig import ADA, PASSWORD
from tests.unit.monitor.test_serving import Served, served

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

NARROW = 390
LIMIT_S = 30.0


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "users").write_bytes(people_data([ADA]))
    with served(folder, is_secure=False) as found:
        yield found


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def show(chrome: Any, page: Served, path: str) -> None:
    chrome.get(f"http://127.0.0.1:{page.port}{path}")


def scheme(chrome: Any, value: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": value}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def path_of(chrome: Any) -> str:
    return str(chrome.execute_script("return location.pathname"))


def shown(chrome: Any, selector: str) -> str:
    """Return the text of an element; empty while the page does not have it."""
    script = "return document.querySelector(arguments[0])?.innerText ?? ''"
    return str(chrome.execute_script(script, selector))


def focus(chrome: Any) -> str:
    """Return the id of the element that has the focus."""
    return str(chrome.execute_script("return document.activeElement?.id ?? ''"))


def press(chrome: Any, *keys: str) -> None:
    """Type into the element that has the focus, as a person without a mouse does."""
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(chrome).send_keys(*keys).perform()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_form_has_no_fault_for_assistive_technology(
    chrome: Any, page: Served, colours: str
) -> None:
    scheme(chrome, colours)
    show(chrome, page, "/topics")
    assert path_of(chrome) == "/login"
    assert axe.violations(chrome) == []
    size = {"width": NARROW, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert beyond_the_edge(chrome, NARROW) == []
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_person_logs_in_and_out_with_the_keyboard(chrome: Any, page: Served) -> None:
    show(chrome, page, "/topics")
    press(chrome, "ada", "\ue004", "wrong-horse-battery", "\ue007")
    wait_until(lambda: shown(chrome, "[role=alert]"), LIMIT_S, "the answer is shown")
    assert "The name or the password is wrong." in shown(chrome, "[role=alert]")
    wait_until(lambda: focus(chrome) == "name", LIMIT_S, "the name has the focus")
    assert axe.violations(chrome) == []
    show(chrome, page, "/login?next=/topics")

    def logs_in() -> bool:
        if path_of(chrome) == "/login":
            press(chrome, "ada", "\ue004", PASSWORD, "\ue007")
        return path_of(chrome) == "/topics"

    # After a wrong password the next login must wait a second.
    wait_until(logs_in, LIMIT_S, "ada is logged in")
    wait_until(lambda: "Signed in as ada" in shown(chrome, ".who"), LIMIT_S, "the name is shown")
    assert axe.violations(chrome) == []
    chrome.find_element("css selector", ".who button").send_keys("\ue007")
    wait_until(lambda: path_of(chrome) == "/login", LIMIT_S, "ada is logged out")
    show(chrome, page, "/topics")
    assert path_of(chrome) == "/login"
