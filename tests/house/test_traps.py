"""`docs/traps.md` lists every known bug and trap, and the scripts and tests that it names exist."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from tests.house import tree
from tests.sim import (
    catch_up_scripts,
    replicated_scripts,
    throttle_scripts,
    transaction_scripts,
)
from tests.sim.replication import scripts

BUG_COUNT = 20
STRANGERS = "## Strangers' files and programs"
NEIGHBOURS_MIN = 150
TRAP_COUNT = 32
CHANGE = re.compile(r"C\d+")
"""The number of a trap that concerns changing a cluster."""
CHANGES = tuple(f"C{number}" for number in (*range(1, 22), 33, 35, 36, 37, 39))

SCRIPTS = {
    "R": scripts.SCRIPTS,
    "N": replicated_scripts.SCRIPTS,
    "T": transaction_scripts.SCRIPTS,
    "K": catch_up_scripts.SCRIPTS,
    "L": throttle_scripts.SCRIPTS,
}
"""The scripts that a test can run, by the letter that stands for their file."""

SCRIPT = re.compile(r"\b([RNTKL]) `(\w+)`")
TEST = re.compile(r"(\bB )?`([\w/]+\.py)::(test_\w+)`")
UNTRIED = ("*not offered:*", "*as with Kafka:*")


class Row(NamedTuple):
    """A bug or a trap by its name, and the last cell of its row, which names what tries it."""

    name: str
    tried_by: str


def rows() -> list[Row]:
    """Return the rows of all tables of bugs and traps, without the table heads."""
    text = (tree.ROOT / "docs" / "traps.md").read_text()
    lines = text.partition(STRANGERS)[0].splitlines()
    cells = [[one.strip() for one in line.strip("|").split(" | ")] for line in lines]
    found = [Row(one[0], one[2]) for one in cells if len(one) == 3]
    return [one for one in found if one.tried_by != "tried by"]


def defined_in(path: str) -> set[str]:
    """Return the functions of a test file."""
    body = ast.parse((tree.ROOT / path).read_text()).body
    return {one.name for one in body if isinstance(one, ast.FunctionDef)}


def test_every_bug_and_every_trap_is_there_and_tried_or_says_why_not() -> None:
    found = rows()
    numbered = [int(one.name) for one in found if one.name.isdigit()]
    assert numbered == list(range(1, TRAP_COUNT + 1))
    changes = [one.name for one in found if CHANGE.fullmatch(one.name)]
    assert changes == list(CHANGES)
    assert len(found) - len(numbered) - len(changes) == BUG_COUNT
    untried = [
        one.name
        for one in found
        if not SCRIPT.search(one.tried_by)
        and not TEST.search(one.tried_by)
        and not one.tried_by.startswith(UNTRIED)
    ]
    assert untried == []


def test_every_script_that_is_named_runs() -> None:
    named = {match for one in rows() for match in SCRIPT.findall(one.tried_by)}
    running = {(short, one.__name__) for short, all_of_it in SCRIPTS.items() for one in all_of_it}
    assert len(named) > BUG_COUNT
    assert sorted(named - running) == []


def test_every_test_that_is_named_is_there() -> None:
    named = {
        (f"tests/unit/broker/{path}" if short else path, name)
        for one in rows()
        for short, path, name in TEST.findall(one.tried_by)
    }
    assert len(named) > TRAP_COUNT
    known = {path: defined_in(path) for path, _ in named}
    assert [one for one in sorted(named) if one[1] not in known[one[0]]] == []


def test_every_neighbour_of_a_strangers_file_names_a_test_that_is_there() -> None:
    text = (tree.ROOT / "docs" / "traps.md").read_text().partition(STRANGERS)[2]
    neighbours = [
        line for line in text.splitlines() if line.startswith("| ") and "tried by" not in line
    ]
    named = [[(path, name) for _, path, name in TEST.findall(line)] for line in neighbours]
    assert len(neighbours) >= NEIGHBOURS_MIN
    assert [line for line, tests in zip(neighbours, named, strict=True) if not tests] == []
    known = {path: defined_in(path) for tests in named for path, _ in tests}
    assert [one for tests in named for one in tests if one[1] not in known[one[0]]] == []
