"""Each of the collector's forty-three scenarios has a test that carries its number."""

from __future__ import annotations

import re

from tests.house import tree

SCENARIO_COUNT = 43

FOLDERS = ("tests/unit/collector/", "tests/interop/test_collector", "tests/crash/test_collector")
NUMBERED = re.compile(r"^def test_(\d\d)[a-z]?_", re.MULTILINE)


def test_no_scenario_of_the_list_is_without_a_test() -> None:
    texts = [one.text for one in tree.modules() if one.path.startswith(FOLDERS)]
    found = {int(number) for text in texts for number in NUMBERED.findall(text)}
    assert found == set(range(1, SCENARIO_COUNT + 1))
