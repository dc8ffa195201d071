"""docs/reference/configuration.md lists every key of the broker and no other key.

`MILLRACE_BLESS=1` writes the lists again.
"""

from __future__ import annotations

import os
import re

from broker.config import BROKER_ROWS, TOPIC_ROWS
from broker.keys_text import markdown
from tests.harness import ROOT

PAGE = ROOT / "docs" / "reference" / "configuration.md"
BEGIN = "<!-- from the broker's tables -->\n"


def test_the_page_is_what_the_tables_say() -> None:
    head, begin, _ = PAGE.read_text().partition(BEGIN)
    wanted = head + BEGIN + markdown()
    if os.environ.get("MILLRACE_BLESS"):
        PAGE.write_text(wanted)
    assert begin, "the marker is gone"
    assert PAGE.read_text() == wanted, "MILLRACE_BLESS=1 writes it again"


def test_every_key_is_listed_with_its_default() -> None:
    lines = markdown().splitlines()
    for key in [*TOPIC_ROWS, *BROKER_ROWS]:
        assert any(f"`{key}`" in line for line in lines), key
    (line,) = [line for line in lines if line.startswith("| `num.partitions`")]
    assert "| int | 1 partitions | yes |" in line


def test_every_setting_is_read_somewhere_in_the_broker() -> None:
    """A key that no code reads would have no effect."""
    tables = {"keys_text.py", "limit_keys.py", "node_keys.py"}
    sources = "\n".join(
        path.read_text()
        for path in sorted((ROOT / "broker").rglob("*.py"))
        if path.name not in tables
    )
    attributes = {attribute for attribute, _ in (*TOPIC_ROWS.values(), *BROKER_ROWS.values())}
    unread = {one for one in attributes if one and not re.search(rf'[."]{one}\b', sources)}
    # These keys have only one valid value, or no effect, as their texts say. Clients may still set
    # them.
    assert unread <= {
        "message_downconversion_enable",
        "message_format_version",
        "preallocate",
        "unclean_leader_election_enable",
    }
