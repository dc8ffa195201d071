"""What the pages say of the commands, against the commands."""

import os
import re

import pytest

from appliance.cli.tree import COMMANDS
from appliance.home import CODE
from appliance.kafka_tools.__main__ import TOOLS, main
from tests.harness.kafka_cases import CASES
from tests.harness.kafka_commands import MAINS, table


def test_the_table_of_kafkas_commands_is_the_one_that_is_tried() -> None:
    page = (CODE / "docs" / "kafka-commands.md").read_text()
    assert table(CASES) in page
    assert {case.tool for case in CASES} == set(TOOLS) == set(MAINS)
    for tool in TOOLS:
        assert f"kafka-{tool}`" in page


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_has_its_script_and_its_options(
    tool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (f"kafka-{tool}", f"kafka-{tool}.sh"):
        assert os.access(CODE / "bin" / name, os.X_OK)
    assert main([tool, "--help"]) == 0
    assert f"usage: kafka-{tool}" in capsys.readouterr().out
    assert main([tool, "--no-such-option"]) == 2
    assert "unrecognized arguments: --no-such-option" in capsys.readouterr().err


def test_a_tool_that_there_is_not() -> None:
    assert main(["streams"]) == 2


def test_the_page_of_commands_names_each_of_them() -> None:
    page = (CODE / "docs" / "commands.md").read_text()
    own = {"run", "init", "demo", "version", "completion"}
    for name, entry in COMMANDS.items():
        if not entry.is_hidden and name not in own:
            assert re.search(rf"`[^`]*\b{name}\b", page), name


def test_the_index_leads_to_pages_that_are_there() -> None:
    page = (CODE / "docs" / "README.md").read_text()
    for target in re.findall(r"\]\(([^)]+)\)", page):
        assert (CODE / "docs" / target).exists(), target
