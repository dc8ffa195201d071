"""configs/README.md lists every key of the broker, and none that it does not have.

`MILLRACE_BLESS=1` writes the lists anew.
"""

from __future__ import annotations

import os
from pathlib import Path

from broker.config import BROKER_ROWS, TOPIC_ROWS
from broker.keys_text import markdown

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "configs" / "README.md"
BEGIN = "<!-- from the broker's tables -->\n"


def test_the_readme_is_what_the_tables_say() -> None:
    head, begin, _ = README.read_text().partition(BEGIN)
    wanted = head + BEGIN + markdown()
    if os.environ.get("MILLRACE_BLESS"):
        README.write_text(wanted)
    assert begin, "the marker is gone"
    assert README.read_text() == wanted, "MILLRACE_BLESS=1 writes it anew"


def test_every_key_is_listed_with_its_default() -> None:
    lines = markdown().splitlines()
    for key in [*TOPIC_ROWS, *BROKER_ROWS]:
        assert any(f"`{key}`" in line for line in lines), key
    (line,) = [line for line in lines if line.startswith("| `num.partitions`")]
    assert "| int | 1 partitions | yes |" in line
