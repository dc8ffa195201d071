"""`docs/compared.md` has a row for each feature of other Kafka monitors that FEATURES lists.

Every page, command, key, metric and file that the table names for our monitor must exist.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.cli.tree import COMMANDS
from appliance.mill.home import CODE
from monitor.config.settings import MonitorSection
from tests.unit.monitor.scene import CATCHING_UP, SLASHED
from tests.unit.monitor.site.test_pages import Site

PAGE = CODE / "docs" / "compared.md"
FEATURES = (
    "Brokers, liveness",
    "Controller shown",
    "Topics",
    "Leader, ISR, under-replicated",
    "Group list, state, members, assignment",
    "Lag in messages",
    "Lag in time",
    "Lag history chart",
    "Produce and consume rates",
    "Time until drained",
    "Lag status classes",
    "Message browsing",
    "Resetting offsets",
    "Resetting offsets, creating and altering topics",
    "Reassignment",
    "Several clusters",
    "Alerts, webhooks",
    "Login",
    "Read-only mode",
    "Prometheus endpoint",
    "REST, OpenAPI",
    "Live update",
    "Dark mode",
    "Search, sort, filter",
    "Export",
    "History kept",
    "Works offline",
)
"""The features of the other monitors. Each is the beginning of a row."""

LINES = PAGE.read_text().partition("| Feature |")[2].partition("\n\n")[0].splitlines()
TABLE = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES[2:]]
NAMED = sorted({name for row in TABLE for name in re.findall(r"`([^`]+)`", row[2])})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(CATCHING_UP, tmp_path_factory.mktemp("history")) as made:
        yield made


@pytest.mark.parametrize("feature", FEATURES)
def test_no_row_of_the_peers_is_left_out(feature: str) -> None:
    assert [row[0] for row in TABLE if row[0].startswith(feature)], feature


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_every_row_has_it_or_says_why_not(row: list[str]) -> None:
    assert re.match(r"(yes\b|no: \w)", row[2]), row


@pytest.mark.parametrize("name", NAMED)
def test_what_a_row_names_is_there(name: str, site: Site) -> None:
    if name.startswith("/"):
        topic = "logs.access" if name.startswith("/topics") else "millrace-stream"
        answer = site.client.get(re.sub("<[a-z]+>", topic, name))
        assert answer.status_code != 404, name
        # Without a broker the page exists too, and answers with 503.
        assert answer.status_code in (200, 503), name
    elif name.startswith("millrace "):
        assert _is_command(name.split()[1:]), name
    elif name.startswith("monitor."):
        assert name.split(".")[1] in MonitorSection.model_fields, name
    elif name.startswith("millrace_"):
        assert f"\n{name}" in site.text("/metrics"), name
    else:
        assert Path(CODE / name).exists(), f"{name} is neither page, command, key nor file"


def _is_command(words: list[str]) -> bool:
    entry = COMMANDS.get(words[0])
    if entry is None:
        return False
    known = [
        one.name or (one.callback.__name__ if one.callback else "")
        for one in getattr(entry.load(), "registered_commands", ())
    ]
    return len(words) == 1 or words[1] in known


def test_the_test_itself_would_see_what_is_not_there() -> None:
    assert len(TABLE) >= len(FEATURES)
    assert not _is_command(["weather"])
    assert not _is_command(["collector", "weather"])
    assert SLASHED not in NAMED
