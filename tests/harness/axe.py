"""Run axe-core in a page, with all its rules, and return its violations."""

from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import pytest

PACKAGE = "axe-playwright-python"
RUN = """const done = arguments[arguments.length - 1];
axe.run(document, { resultTypes: ['violations'] }).then(
  (found) => done(found.violations.map((one) =>
    `${one.id} (${one.impact}): ${one.nodes.length} times, first ${one.nodes[0].html.slice(0, 160)}`
    + ` ${one.nodes[0].failureSummary}`)),
  (error) => done([`axe: ${error}`]))"""
"""A script that gives the violations, one text each."""


@cache
def source() -> str:
    """Return the text of axe-core. The test is skipped if it is not installed."""
    try:
        files = distribution(PACKAGE)
    except PackageNotFoundError:
        pytest.skip("axe-core is not installed; make test installs it")
    with open(str(files.locate_file("axe_playwright_python/axe.min.js")), encoding="utf-8") as text:
        return text.read()


def violations(chrome: Any) -> list[str]:
    """Return the violations of the open page."""
    chrome.execute_script(source())
    return list(chrome.execute_async_script(RUN))
