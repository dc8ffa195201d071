"""A headless Chromium for tests of pages. It has a separate profile and sends no requests except
those of the page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)


@contextmanager
def browser(profile: Path) -> Iterator[Any]:
    """Return a selenium driver. The test is skipped if Chromium is not installed."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed; make test installs them")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        chrome.set_page_load_timeout(60)
        yield chrome
    finally:
        chrome.quit()


def beyond_the_edge(driver: Any, width: int) -> list[str]:
    """If the page is wider than `width`, return its width and the elements beyond the edge."""
    script = """const [width] = arguments, wide = document.documentElement.scrollWidth;
      return wide <= width ? [] : [`${wide} wide`, ...[...document.querySelectorAll('body *')]
        .filter((one) => !one.closest('.scroll *') && one.getBoundingClientRect().right > width + 1)
        .map((one) => `${one.tagName}.${one.getAttribute('class')}: ${one.textContent.trim()}`
          .slice(0, 200))]"""
    return list(driver.execute_script(script, width))
