"""HOUSE.md and the README.md of each room list the existing files, in the order of the imports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house import laws, tree

HOUSE_LINES_MAX = 120
HOUSE_COLUMNS_MAX = 100
"""With this width and HOUSE_LINES_MAX lines, HOUSE.md fits on two printed pages."""

PRODUCT = sorted(set(tree.ROOMS) - {"bench", "tests"})
LINK = re.compile(r"\]\(([^)#:]+)\)")
RULES = "## Rules that are easy to break"


def house() -> str:
    """Return the text of HOUSE.md."""
    return (tree.ROOT / "HOUSE.md").read_text()


def readme(room: str) -> str:
    """Return the README.md of a room."""
    return (tree.ROOT / room / "README.md").read_text()


def rows_of(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading, without the table's head."""
    section = text.partition(f"{heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def folders_in(cell: str) -> list[str]:
    """Return the folders that a cell names, as `name/`."""
    return re.findall(r"`(\w+)/`", cell)


def inner_rooms(room: str) -> set[str]:
    """Return the folders of a room that contain Python files."""
    return {one.parts[1] for one in tree.modules() if one.room == room and len(one.parts) > 2}


def test_the_map_has_two_pages() -> None:
    lines = house().splitlines()
    assert len(lines) <= HOUSE_LINES_MAX
    assert [line for line in lines if len(line) > HOUSE_COLUMNS_MAX] == []


def test_the_map_names_every_room_with_what_it_may_import() -> None:
    written: dict[str, frozenset[str]] = {}
    for name, _, imports in rows_of(house(), "## Rooms"):
        room = name.strip("[").partition("]")[0]
        words = {"none": frozenset(), "all": frozenset(tree.ROOMS), "all above": frozenset(written)}
        written[room] = words.get(imports, frozenset(re.findall(r"`(\w+)`", imports)))
    assert written == {room: laws.MAY_IMPORT[room] for room in tree.ROOMS}


@pytest.mark.parametrize("room", PRODUCT)
def test_the_page_of_a_room_names_every_inner_room_once(room: str) -> None:
    rows = rows_of(readme(room), "## Inner rooms")
    named = [folder for row in rows for folder in folders_in(row[0])]
    assert sorted(named) == sorted({*named})
    assert set(named) >= inner_rooms(room)
    assert [name for name in named if not (tree.ROOT / room / name).is_dir()] == []


@pytest.mark.parametrize("room", sorted(laws.FLOORS))
def test_the_page_of_a_room_has_its_floors_from_the_ground_up(room: str) -> None:
    rows = rows_of(readme(room), "## Inner rooms")
    floors = [[laws.FLOORS[room][folder] for folder in folders_in(row[0])] for row in rows]
    in_order = [floor for row in floors for floor in row]
    assert in_order == sorted(in_order)
    assert sorted({*in_order, laws.FLOORS[room][""]}) == sorted({*laws.FLOORS[room].values()})


@pytest.mark.parametrize("room", PRODUCT)
def test_the_page_of_a_room_has_rules_that_name_their_files(room: str) -> None:
    rules = readme(room).partition(f"{RULES}\n")[2].split("\n- ")[1:]
    assert rules
    assert [rule for rule in rules if "`" not in rule] == []


@pytest.mark.parametrize("path", ["HOUSE.md", *(f"{room}/README.md" for room in PRODUCT)])
def test_links_lead_to_files_that_exist(path: str) -> None:
    page = tree.ROOT / path
    targets: list[Path] = [page.parent / link for link in LINK.findall(page.read_text())]
    assert [str(target) for target in targets if not target.exists()] == []
