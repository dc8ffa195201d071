"""`docs/guards.md` names for each guard its code, and a test that fails without the guard."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable
from typing import NamedTuple

from tests.house import tree

GUARDS = (*range(1, 59), *range(60, 68))
"""The numbers of the guards that the table must have. Those from 48 on are about changing a
cluster."""

TEST = re.compile(r"`(tests/[^`:]+\.py::\w+)`")
SHORT = re.compile(r"\b([A-Z]) `([^`]+)`")
CODE = re.compile(r"`([a-z_/]+\.py)` `([\w.]+)`")


class Guard(NamedTuple):
    """One row of the table."""

    number: int
    held_by: list[tuple[str, str]]
    """Pairs of a file of the broker and the name in it that implements the guard."""
    missed_by: list[str]
    """The pytest node ids of the tests that fail without the guard."""


def guards() -> list[Guard]:
    """Return the rows of the table."""
    shorts: dict[str, str] = {}
    found = []
    for line in (tree.ROOT / "docs" / "guards.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if re.fullmatch(r"[A-Z]", cells[0]):
            (shorts[cells[0]],) = TEST.findall(line)
        elif cells[0].isdigit():
            number, _, held_by, missed_by, _ = cells
            tests = TEST.findall(missed_by)
            tests += [f"{shorts[short]}[{name}]" for short, name in SHORT.findall(missed_by)]
            found.append(Guard(int(number), CODE.findall(held_by), tests))
    return found


def names_in(path: str) -> set[str]:
    """Return the functions, classes and methods of a file. A method is named `Class.method`."""
    names = set()
    for node in ast.parse((tree.ROOT / "broker" / path).read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, DEFINITION)}
    return names


DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef


def test_every_guard_of_the_list_is_there_once_and_missed_by_some_test() -> None:
    rows = guards()
    assert [one.number for one in rows] == list(GUARDS)
    assert [one.number for one in rows if not one.missed_by or not one.held_by] == []


def test_what_holds_a_guard_is_in_the_code() -> None:
    wanted = {place for one in guards() for place in one.held_by}
    known = {path: names_in(path) for path, _ in wanted}
    assert [place for place in sorted(wanted) if place[1] not in known[place[0]]] == []


def parameters(function: Callable[..., None]) -> set[str]:
    """Return pytest's ids of a test's only parameter; {""} if the test has none."""
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    values = [value for mark in marks for value in mark.args[1]]
    return {str(getattr(value, "id", value)) for value in values} or {""}


def test_what_misses_a_guard_is_a_test() -> None:
    missing = []
    for wanted in sorted({test for one in guards() for test in one.missed_by}):
        path, _, name = wanted.partition("::")
        name, _, parameter = name.rstrip("]").partition("[")
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        function = getattr(module, name, None)
        if function is None or parameter not in parameters(function):
            missing.append(wanted)
    assert missing == []
