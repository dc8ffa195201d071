"""The number of broker files that a request passes through, and of its moves between them.

The limits are today's counts and may only be lowered. Lower a limit when a walk has become shorter.
"""

import re

import pytest

from tests.house import tree
from tests.unit.broker.walks import Walk, walks

LIMITS = {
    "CreateTopics": (76, 378),
    "Produce": (27, 77),
    "Produce like the last": (23, 69),
    "Fetch": (15, 26),
    "JoinGroup": (19, 66),
    "SyncGroup": (36, 107),
}
"""The largest number of files and of moves for each request (`walks`)."""


# A profile does not see the calls of compiled code.
pytestmark = pytest.mark.interpreted


@pytest.fixture(scope="module")
def walked() -> dict[str, Walk]:
    return walks()


def test_every_walk_has_its_limit(walked: dict[str, Walk]) -> None:
    assert walked.keys() == LIMITS.keys()


@pytest.mark.parametrize("name", LIMITS)
def test_a_walk_is_not_longer_than_its_limit(walked: dict[str, Walk], name: str) -> None:
    files, moves = LIMITS[name]
    walk = walked[name]
    text = f"{name}: {walk}; at most {files} files and {moves} moves:\n{' '.join(walk.path)}"
    assert len(walk.files) <= files and walk.move_count <= moves, text


def test_the_map_names_the_files_of_a_produce_and_no_others(walked: dict[str, Walk]) -> None:
    text = (tree.ROOT / "HOUSE.md").read_text()
    section = text.partition("## A produce request,")[2].partition("\n## ")[0]
    named = {
        name
        for name in re.findall(r"`([\w/]+)`", section)
        if (tree.ROOT / "broker" / f"{name}.py").exists()
    }
    assert named == {*walked["Produce"].files, "real/connection", "real/output"}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_todays_count(walked: dict[str, Walk], name: str) -> None:
    walk = walked[name]
    assert LIMITS[name] == (len(walk.files), walk.move_count), f"{name}: lower the limit"
