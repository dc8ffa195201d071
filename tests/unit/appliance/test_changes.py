"""Decide which parts of a running mill restart because the configuration has changed."""

from pathlib import Path

import pytest

from appliance.config.load import load_text
from appliance.mill.home import CODE, find_home
from appliance.mill.init import initialise
from appliance.mill.parts import Placement
from appliance.mill.settings import Mill
from appliance.supervisor.changes import Differences, differences

SHIPPED = (CODE / "configs" / "millrace.yaml").read_text()
BROKERS = ("broker-1", "broker-2", "broker-3")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    initialise(find_home({"MILLRACE_HOME": str(tmp_path)}), (1, 2, 3))
    return tmp_path


def mill(home: Path, text: str) -> Mill:
    loaded = load_text(text, "m", home, {})
    return Mill(find_home({"MILLRACE_HOME": str(home)}), loaded.config, Placement())


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("# words", "# other words", Differences()),
        ("refresh: 2s", "refresh: 3s", Differences(("monitor",))),
        ("127.0.0.1:8090", "127.0.0.1:8099", Differences(("monitor",))),
        ("compression: gzip", "compression: none", Differences(("collector",))),
        ("trigger: 100ms", "trigger: 200ms", Differences(("stream",))),
        ("num.partitions: 3", "num.partitions: 4", Differences(BROKERS, in_turn=BROKERS)),
        # The running stream applies changed metrics itself, so no part restarts.
        ("key: status, measure: count", "key: method, measure: count", Differences()),
        ("  redis: {}", "  redis: null", Differences(("stream", "monitor"), (), ("redis",))),
        (
            "bootstrap_servers: null",
            "bootstrap_servers: 'k:1'",
            Differences(("collector", "stream", "monitor"), (), BROKERS),
        ),
        (
            "\nmonitor:\n",
            "\nports: {redis: 6399}\nmonitor:\n",
            Differences(("redis", "stream", "monitor")),
        ),
    ],
)
def test_parts_that_a_change_concerns(
    home: Path, before: str, after: str, expected: Differences
) -> None:
    text = SHIPPED.replace(before, after, 1)
    assert text != SHIPPED or before.startswith("#")
    assert differences(mill(home, SHIPPED), mill(home, text)) == expected
    back = differences(mill(home, text), mill(home, SHIPPED))
    assert (back.changed, back.removed, back.added) == (
        expected.changed,
        expected.added,
        expected.removed,
    )


def test_differences_read_as_a_sentence() -> None:
    found = Differences(("stream", "monitor"), ("mysql",), ("redis",))
    assert str(found) == "stream, monitor restart; mysql starts; redis stops"
    found = Differences((*BROKERS, "monitor"), in_turn=BROKERS)
    assert str(found) == (
        "monitor restarts; broker-1, broker-2, broker-3 restart one after the other"
    )
    assert not Differences()


def test_brokers_of_three_restart_in_turn_unless_they_move(home: Path) -> None:
    settings = SHIPPED.replace("num.partitions: 3", "num.partitions: 4")
    found = differences(mill(home, SHIPPED), mill(home, settings))
    assert (found.changed, found.in_turn) == (BROKERS, BROKERS)
    opened = f"{SHIPPED}\nnetwork: {{open: [kafka], names: [localhost]}}\n"
    for one, other in ((SHIPPED, opened), (opened, SHIPPED)):
        found = differences(mill(home, one), mill(home, other))
        assert (found.changed, found.in_turn) == (BROKERS, BROKERS)
    for ports in ("broker: 29192", "net: 9292"):
        text = f"{opened}\nports: {{{ports}}}\n"
        found = differences(mill(home, opened), mill(home, text))
        assert (found.changed, found.in_turn) == (BROKERS, ())
