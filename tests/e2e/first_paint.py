"""Measures how soon a browser paints the overview: `python -m tests.e2e.first_paint [TIMES]`.

It loads the page of a simulated mill on this machine, in the system's Chromium with an empty cache.
This is not a test, because other work of the machine makes the times longer.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from tests.e2e.test_page import WAIT_S, run, scene
from tests.harness.browser import browser
from tests.harness.wait import wait_until

DEFAULT_TIMES = 15
PAINTED = "performance.getEntriesByName('first-contentful-paint').map((one) => one.startTime)"


def main(times: int) -> None:
    """Load the page this number of times, and print the best, median and worst time."""
    with (
        tempfile.TemporaryDirectory() as folder,
        scene("CATCHING_UP", Path(folder) / "scene") as site,
        browser(Path(folder) / "profile") as chrome,
    ):
        chrome.execute_cdp_cmd("Network.enable", {})
        chrome.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
        painted_ms: list[float] = []
        for _ in range(times):
            chrome.get(site.url + "/")
            wait_until(lambda: run(chrome, PAINTED), WAIT_S, "the first paint")
            painted_ms += run(chrome, PAINTED)
        print(f"first contentful paint of the overview, {times} loads: "
              f"best {min(painted_ms):.0f} ms, median {statistics.median(painted_ms):.0f} ms, "
              f"worst {max(painted_ms):.0f} ms")  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_TIMES)
