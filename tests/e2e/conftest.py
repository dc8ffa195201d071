"""One mill for all tests of this folder that only drop files into it, each under its own name, and
a browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.mill import TempMill, shipped_config, temp_mill
from tests.e2e.reading import Reading
from tests.harness.browser import browser

ADDED_METRICS = """\
    - {name: levels, from: json, key: level, measure: count}
    - {name: busiest, from: json, key: name, measure: max, value: size}
    - {name: twisted, from: json, measure: sum, value: '100 / size'}
    - {name: most_active, from: json, measure: max, value: active}
    - {name: hg_requests, from: json, measure: max, value: hg}
"""


def config() -> str:
    """Return the shipped file with further columns and metrics, for the JSON lines of the tests."""
    columns = (
        "{level: string, name: {path: '`user.name`.`a b`'}, size: {path: io.size, type: int},"
        " active: {path: connections.active, type: int},"
        " hg: {path: 'server_zones.`hg.nginx.org`.requests', type: bigint}}"
    )
    return shipped_config(columns=columns, metrics=ADDED_METRICS)


@pytest.fixture(scope="package")
def mill_at_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TempMill]:
    """Return a mill with all parts running."""
    with temp_mill(tmp_path_factory.mktemp("at-work") / "mill") as made:
        made.write_config(config())
        made.up()
        yield made


@pytest.fixture
def chrome(tmp_path: Path) -> Iterator[Any]:
    """Return a browser with a new profile."""
    with browser(tmp_path / "profile") as driver:
        yield driver


@pytest.fixture
def reading(mill_at_work: TempMill) -> Reading:
    """Return a reader of the mill's databases, topics and pages."""
    return Reading(mill_at_work)
