"""A hundred thousand lines of each shipped format, through a whole mill, against a straight count.

The straight count is a `Counter` of the columns that the lines were made with. It is compared with
every key in Redis and in MySQL.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
import yaml

from sinks.keys import redis_field, shown_columns
from stream.config.format_files import load_formats, shipped_names
from tests.e2e.mill import TempMill, temp_mill
from tests.e2e.reading import Reading
from tests.harness.format_lines import BARE, INPUTS, Row, counted_columns, generated
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1_800)]

LINES = 100_000
SEED = 2026
COUNTED_S = 900.0
NAMES = [name for name in shipped_names() if name not in BARE]


def config(names: Sequence[str]) -> str:
    """One broker, and for each format an input of the collector, one of the stream, and metrics."""
    formats = load_formats()
    inputs = [
        {
            "paths": [f"watched/{name}/**"],
            "topic": f"logs.{name}",
            "line_end": "keep",
            **({"multiline": formats[name].multiline} if formats[name].multiline else {}),
        }
        for name in names
    ]
    metrics: list[dict[str, Any]] = [
        {"name": f"{name}_{column}", "from": name, "key": column, "measure": "count"}
        for name in names
        for column in counted_columns(name)
    ]
    return yaml.safe_dump(
        {
            "cluster": {"brokers": 1, "settings": {"num.partitions": 2}},
            "collector": {"inputs": inputs},
            "stream": {
                "master": "local[2]",
                "from": {
                    name: {"topic": f"logs.{name}", "format": name, **INPUTS.get(name, {})}
                    for name in names
                },
                "defaults": {"windows": ["all"]},
                "metrics": metrics,
            },
            "monitor": {"listen": "127.0.0.1:8090"},
        }
    )


@pytest.fixture(scope="module")
def mill(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TempMill]:
    """A mill for the formats that this run has chosen, because each makes the plan longer."""
    chosen = {
        item.callspec.params.get("name")
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }
    names = [name for name in NAMES if name in chosen]
    with temp_mill(tmp_path_factory.mktemp("formats") / "mill") as mill:
        mill.write_config(config(names))
        for name in names:
            (mill.home.folder / "watched" / name).mkdir(parents=True, exist_ok=True)
        mill.up()
        yield mill


def drop(mill: TempMill, name: str) -> list[Row]:
    """Drop a file of lines of one format, wait until all are counted, and return their columns."""
    reading = Reading(mill)
    before = int(reading.details("stream", "stream")["lines_total"])
    given = list(generated(name, LINES, SEED))
    path = mill.home.folder / f"{name}.log"
    path.write_text("".join(f"{line}\n" for line, _ in given), newline="")
    path.rename(mill.home.folder / "watched" / name / "lines.log")

    def counted() -> int:
        return int(reading.details("stream", "stream")["lines_total"]) - before

    wait_until(lambda: counted() >= LINES, COUNTED_S, f"{name} is counted")
    assert counted() == LINES
    return [row for _, row in given]


@pytest.mark.parametrize("name", NAMES)
def test_a_straight_count_equals_redis_and_mysql(mill: TempMill, name: str) -> None:
    rows = drop(mill, name)
    reading = Reading(mill)
    assert (
        reading.mysql("SELECT reason, `count` FROM unparsed WHERE topic = %s", f"logs.{name}") == []
    )
    for column in counted_columns(name):
        straight = Counter(row[column] for row in rows)
        in_redis = reading.redis(f"mill:{name}_{column}:all")
        assert {key: Decimal(text) for key, text in in_redis.items()} == {
            redis_field((value,)): count for value, count in straight.items()
        }
        in_mysql = reading.mysql(
            "SELECT k1, `count` FROM windows WHERE metric = %s AND size_s = 0", f"{name}_{column}"
        )
        assert dict(in_mysql) == {
            shown_columns((value,))[0]: count for value, count in straight.items()
        }
        assert sum(straight.values()) == LINES
        print(f"{name}: {LINES} lines, {len(straight)} keys of {column}, none differs")
