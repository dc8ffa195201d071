"""A hundred thousand lines of each shipped format, through a whole mill, against a straight count.

The straight count is a `Counter` of the columns that the lines were made with. It is compared with
every key in Redis and in MySQL.
"""

from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from sinks.keys import redis_field, shown_columns
from stream.config.format_files import load_formats
from tests.e2e.mill import TempMill, temp_mill
from tests.e2e.reading import Reading
from tests.harness.format_lines import INPUTS, NAMES, Row, counted_columns, generated
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1_800)]

LINES = 100_000
SEED = 2026
COUNTED_S = 900.0
TOPIC = "logs.tried"


def config(name: str) -> str:
    """One broker, an input of the collector, one of the stream, and a metric for each column."""
    rule = load_formats()[name].multiline
    entry = {"paths": [f"watched/{name}/**"], "topic": TOPIC, "line_end": "keep"}
    return yaml.safe_dump(
        {
            "cluster": {"brokers": 1, "settings": {"num.partitions": 2}},
            "collector": {"inputs": [{**entry, **({"multiline": rule} if rule else {})}]},
            "stream": {
                "master": "local[2]",
                "from": {name: {"topic": TOPIC, "format": name, **INPUTS.get(name, {})}},
                "defaults": {"windows": ["all"]},
                "metrics": [
                    {"name": f"by_{column}", "from": name, "key": column, "measure": "count"}
                    for column in counted_columns(name)
                ],
            },
            "monitor": {"listen": "127.0.0.1:8090"},
        }
    )


def drop(mill: TempMill, name: str) -> list[Row]:
    """Drop a file of lines of one format, wait until all are counted, and return their columns."""
    reading = Reading(mill)
    given = list(generated(name, LINES, SEED))
    path = mill.home.folder / f"{name}.log"
    path.write_text("".join(f"{line}\n" for line, _ in given), newline="")
    (mill.home.folder / "watched" / name).mkdir(exist_ok=True)
    path.rename(mill.home.folder / "watched" / name / "lines.log")

    def counted() -> int:
        return int(reading.details("stream", "stream")["lines_total"])

    wait_until(lambda: counted() >= LINES, COUNTED_S, f"{name} is counted")
    assert counted() == LINES
    return [row for _, row in given]


@pytest.mark.parametrize("name", NAMES)
def test_a_straight_count_equals_redis_and_mysql(name: str, tmp_path: Path) -> None:
    with temp_mill(tmp_path / "mill") as mill:
        mill.write_config(config(name))
        mill.up()
        compare(mill, name, drop(mill, name))


def compare(mill: TempMill, name: str, rows: list[Row]) -> None:
    """Compare every key of every metric, in Redis and in MySQL."""
    reading = Reading(mill)
    assert reading.mysql("SELECT topic, reason, `count` FROM unparsed") == []
    for column in counted_columns(name):
        straight = Counter(row[column] for row in rows)
        in_redis = reading.redis(f"mill:by_{column}:all")
        assert {key: Decimal(text) for key, text in in_redis.items()} == {
            redis_field((value,)): count for value, count in straight.items()
        }
        in_mysql = reading.mysql(
            "SELECT k1, `count` FROM windows WHERE metric = %s AND size_s = 0", f"by_{column}"
        )
        assert dict(in_mysql) == {
            shown_columns((value,))[0]: count for value, count in straight.items()
        }
        assert sum(straight.values()) == LINES
        print(f"{name}: {LINES} lines, {len(straight)} keys of {column}, none differs")
