"""The commands and options in the documentation exist."""

import os
import re
from pathlib import Path

import pytest
import typer

from appliance.cli.tree import COMMANDS
from appliance.kafka_tools.__main__ import TOOLS, main
from appliance.mill.home import CODE
from tests.harness.kafka_cases import CASES
from tests.harness.kafka_commands import MAINS, table
from tests.harness.typed import QUOTED, TREE, problem_of


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


def test_the_index_leads_to_pages_that_are_there_and_to_all_of_them() -> None:
    page = (CODE / "docs" / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", page)
    for target in targets:
        assert (CODE / "docs" / target).exists(), target
    files = {path.name for path in (CODE / "docs").iterdir() if path.is_file()}
    assert files - {"README.md"} <= set(targets)


PAGES = [
    CODE / "README.md",
    CODE / "HOUSE.md",
    CODE / "configs" / "README.md",
    CODE / "appliance" / "README.md",
    *sorted((CODE / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CODE)))
def test_what_a_page_has_typed_can_be_typed(page: Path) -> None:
    typed = [found.strip() for found in QUOTED.findall(page.read_text())]
    assert [problem for one in typed if (problem := problem_of(one))] == []


def test_what_cannot_be_typed_is_found_out() -> None:
    typed = sum(len(QUOTED.findall(page.read_text())) for page in PAGES)
    assert typed >= TYPED_MIN
    assert problem_of("show METRIC [--watch]") is None
    assert problem_of("COMMAND --help") is None
    assert problem_of("shwo METRIC") == "no command 'shwo'"
    assert problem_of("stream forgt METRIC") == "no command 'forgt'"
    assert problem_of("lag --wach") == "no option --wach in 'lag --wach'"


TYPED_MIN = 50
"""The least number of commands that the pages must quote. Fewer would mean that the search is
broken."""


def groups_of_commands() -> dict[str, list[str]]:
    return {
        name: sorted(typer.main.get_command(found).commands)  # type: ignore[attr-defined]
        for name, entry in COMMANDS.items()
        if isinstance(found := entry.load(), typer.Typer)
    }


@pytest.mark.parametrize(("group", "names"), groups_of_commands().items())
def test_the_page_of_commands_names_all_of_a_group(group: str, names: list[str]) -> None:
    page = (CODE / "docs" / "commands.md").read_text()
    rows = " ".join(re.findall(rf"`[^`]*\b{group} [^`]*`", page))
    for name in names:
        assert re.search(rf"(?<![a-z-]){name}(?![a-z-])", rows), name


def test_every_option_on_the_page_of_commands_is_one_of_its_row() -> None:
    page = (CODE / "docs" / "commands.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows
    for row in rows:
        quoted = re.findall(r"`([a-z][a-z-]*)", row.split(" | ")[0])
        known = {option for name in quoted if name in COMMANDS for option in options_of(name)}
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", row)) <= known, row


def options_of(name: str) -> set[str]:
    """Return the options of a command, or of all commands of a group."""
    command = TREE.get_command(TREE.make_context("millrace", ["status"]), name)
    below = getattr(command, "commands", {name: command})
    return {option for one in below.values() for param in one.params for option in param.opts}


LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LINKED_FROM = [*PAGES, CODE / "CONTRIBUTING.md", CODE / "SECURITY.md", CODE / "tests" / "README.md"]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, built by GitHub's rules."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: dict[str, int] = {}
    anchors = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        shown = LINK.sub(lambda link: link[0][1 : link[0].index("]")], heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        seen = found.get(anchor, 0)
        found[anchor] = seen + 1
        anchors.add(f"{anchor}-{seen}" if seen else anchor)
    return anchors


@pytest.mark.parametrize("page", LINKED_FROM, ids=lambda page: str(page.relative_to(CODE)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: there is no such file"
        if anchor:
            assert anchor in anchors_of(target), f"{link}: there is no such heading"
