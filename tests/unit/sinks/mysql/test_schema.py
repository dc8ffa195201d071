"""Views of metrics: column names that collide, and window sizes in the users' notation."""

import re
from dataclasses import replace

import pytest

from sinks.mysql.schema import TABLES
from sinks.mysql.views import key_column_names
from sinks.rows import size_text
from stream.config.sections import RESERVED_NAMES
from tests.harness.worked import DEFINITIONS


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (("status",), ("status",)),
        (("count",), ("key_count",)),
        (("Count", "SIZE"), ("key_Count", "key_SIZE")),
        (("count", "key_count"), ("key_key_count", "key_count")),
        (("key_count", "count"), ("key_count", "key_key_count")),
    ],
)
def test_a_key_column_gives_way_to_the_views_own(
    columns: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    assert key_column_names(replace(DEFINITIONS[0], key_columns=columns)) == shown


@pytest.mark.parametrize(
    ("size_s", "text"),
    [(10, "10s"), (60, "1m"), (90, "90s"), (3_600, "1h"), (86_400, "1d"), (0, "all")],
)
def test_sizes_read_as_they_are_configured(size_s: int, text: str) -> None:
    assert size_text(size_s) == text


def test_no_metrics_view_takes_the_name_of_a_table() -> None:
    tables = set(re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", "\n".join(TABLES)))
    assert {"window_cells", "window_sizes"} <= tables
    assert {*tables, "windows"} - RESERVED_NAMES == set()
