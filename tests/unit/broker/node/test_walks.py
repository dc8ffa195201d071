"""How many files of the broker a request passes through, and how often it moves between them.

The limits are today's counts. They only fall: lower a limit when a walk has become shorter.
"""

import pytest

from tests.unit.broker.walks import Walk, walks

LIMITS = {
    "CreateTopics": (76, 463),
    "Produce": (31, 90),
    "Produce like the last": (27, 83),
    "Fetch": (17, 28),
    "JoinGroup": (20, 69),
    "SyncGroup": (41, 127),
}
"""By request: the files and the moves between them (`walks`)."""


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


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_todays_count(walked: dict[str, Walk], name: str) -> None:
    walk = walked[name]
    assert LIMITS[name] == (len(walk.files), walk.move_count), f"{name}: lower the limit"
