"""With an unreadable history, pages are shown without charts and report the problem."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from monitor.history.recorder import FILE_NAME
from monitor.state.levels import LEVELS
from tests.unit.monitor.scene import Story
from tests.unit.monitor.site.test_pages import Site


@pytest.fixture
def unreadable(tmp_path: Path) -> Site:
    site = Site(Story(), tmp_path)
    (file,) = tmp_path.rglob(FILE_NAME)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        for table in ("events", *(level.table for level in LEVELS)):
            other.execute(f"DROP TABLE {table}")
    return site


@pytest.mark.parametrize("path", ["/", "/stream", "/collector", "/groups", "/alerts"])
@pytest.mark.parametrize("range_key", ["10m", "all"])
def test_pages_are_there(unreadable: Site, path: str, range_key: str) -> None:
    assert "<h1>" in unreadable.text(f"{path}?range={range_key}")


def test_the_overview_says_why_there_are_no_lines(unreadable: Site) -> None:
    assert "the history cannot be read: no such table" in unreadable.text("/")
