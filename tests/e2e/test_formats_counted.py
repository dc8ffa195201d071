"""A hundred thousand lines of each shipped format go through a whole mill and are counted exactly.

The expected counts come from a `Counter` over the columns from which the lines were generated.
They are compared with every key in Redis and in MySQL.
"""

from collections import Counter
from collections.abc import Sequence
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
FORMATS_A_MILL = 4
"""The formats that one mill counts at the same time, because most of the time is the mill's
start."""
GROUPS = [NAMES[at : at + FORMATS_A_MILL] for at in range(0, len(NAMES), FORMATS_A_MILL)]


def topic_of(name: str) -> str:
    """Return the topic of one format."""
    return f"logs.{name}"


def config(names: Sequence[str]) -> str:
    """Return a configuration with one broker. Each format has an input of the collector, an input
    of the stream, and a metric for each column."""
    inputs = []
    for name in names:
        rule = load_formats()[name].multiline
        entry = {"paths": [f"watched/{name}/**"], "topic": topic_of(name), "line_end": "keep"}
        inputs.append({**entry, **({"multiline": rule} if rule else {})})
    return yaml.safe_dump(
        {
            "cluster": {"brokers": 1, "settings": {"num.partitions": 2}},
            "collector": {"inputs": inputs},
            "stream": {
                "master": "local[2]",
                "from": {
                    name: {"topic": topic_of(name), "format": name, **INPUTS.get(name, {})}
                    for name in names
                },
                "defaults": {"windows": ["all"]},
                "metrics": [
                    {"name": metric_of(name, at), "from": name, "key": column, "measure": "count"}
                    for name in names
                    for at, column in enumerate(counted_columns(name))
                ],
            },
            "monitor": {"listen": "127.0.0.1:8090"},
        }
    )


def metric_of(name: str, at: int) -> str:
    """Return the name of the metric that counts lines by the column with this index."""
    return f"{name}_{at}"


def drop(mill: TempMill, names: Sequence[str]) -> dict[str, list[Row]]:
    """Drop a file with lines of each format, and wait until all are counted. Return the columns of
    the lines, by format."""
    reading = Reading(mill)
    given = {name: list(generated(name, LINES, SEED)) for name in names}
    for name, lines in given.items():
        path = mill.home.folder / f"{name}.log"
        path.write_text("".join(f"{line}\n" for line, _ in lines), newline="")
        (mill.home.folder / "watched" / name).mkdir(exist_ok=True)
        path.rename(mill.home.folder / "watched" / name / "lines.log")

    def counted() -> int:
        return int(reading.details("stream", "stream")["lines_total"])

    total = LINES * len(names)
    wait_until(lambda: counted() >= total, COUNTED_S, f"{', '.join(names)} are counted")
    assert counted() == total
    return {name: [row for _, row in lines] for name, lines in given.items()}


@pytest.mark.parametrize("names", GROUPS, ids="-".join)
def test_a_straight_count_equals_redis_and_mysql(names: Sequence[str], tmp_path: Path) -> None:
    with temp_mill(tmp_path / "mill") as mill:
        mill.write_config(config(names))
        mill.up()
        for name, rows in drop(mill, names).items():
            compare(mill, name, rows)


def compare(mill: TempMill, name: str, rows: list[Row]) -> None:
    """Compare every key of every metric of a format, in Redis and in MySQL."""
    reading = Reading(mill)
    assert reading.mysql("SELECT topic, reason, `count` FROM unparsed") == []
    for at, column in enumerate(counted_columns(name)):
        metric = metric_of(name, at)
        straight = Counter(row[column] for row in rows)
        in_redis = reading.redis(f"mill:{metric}:all")
        assert {key: Decimal(text) for key, text in in_redis.items()} == {
            redis_field((value,)): count for value, count in straight.items()
        }
        in_mysql = reading.mysql(
            "SELECT k1, `count` FROM windows WHERE metric = %s AND size_s = 0", metric
        )
        assert dict(in_mysql) == {
            shown_columns((value,))[0]: count for value, count in straight.items()
        }
        assert sum(straight.values()) == LINES
        print(f"{name}: {LINES} lines, {len(straight)} keys of {column}, none differs")
