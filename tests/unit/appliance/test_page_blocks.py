"""Every code block of README.md and docs/ is checked: YAML as configuration, commands by their
syntax.

`tests/interop/test_page_plans.py` lets Spark check the YAML, and `tests/e2e/test_page_commands.py`
runs the commands.
"""

import re
from pathlib import Path

import pytest

from appliance.config.faults import ConfigFaults
from appliance.mill.home import CODE
from tests.harness.fragments import (
    Misplaced,
    merged,
    page_configs,
    placed,
    read_piece,
    with_writers,
)
from tests.harness.pages import (
    LANGUAGES,
    Block,
    blocks_of,
    commands_of,
    indented_lines,
    is_as_shown,
    pages,
    parse_blocks,
)
from tests.harness.pages_not_run import NOT_PASTED, NOT_RUN, OTHER_LANGUAGES, reason_not_run
from tests.harness.typed import problems_in

PAGES = [page for page in pages() if blocks_of(page)]


@pytest.mark.parametrize("page", PAGES)
def test_each_block_says_what_it_is(page: str) -> None:
    unknown = [
        block.place
        for block in blocks_of(page)
        if block.language not in LANGUAGES and f"{page} {block.language}" not in OTHER_LANGUAGES
    ]
    assert unknown == []


@pytest.mark.parametrize("page", pages())
def test_no_block_hides_behind_blanks(page: str) -> None:
    assert indented_lines((CODE / page).read_text()) == []


@pytest.mark.parametrize("page", PAGES)
def test_the_yaml_of_a_page_has_no_faults(page: str, tmp_path: Path) -> None:
    asked = sum(block.language == "yaml" for block in blocks_of(page))
    assert len(list(page_configs(page, tmp_path))) == asked


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_can_be_typed(page: str) -> None:
    typed = [command for block in blocks_of(page) for command in commands_of(block)]
    assert [problem for one in typed for problem in problems_in(one.text)] == []


def test_what_is_not_run_is_on_a_page() -> None:
    typed = [one for page in PAGES for block in blocks_of(page) for one in commands_of(block)]
    starts = [f"{one.block.page} {one.text}" for one in typed]
    assert [one for one in NOT_RUN if not any(text.startswith(one) for text in starts)] == []
    languages = {f"{page} {block.language}" for page in PAGES for block in blocks_of(page)}
    assert OTHER_LANGUAGES.keys() <= languages
    pasted = {page for page in PAGES if any(one.language == "yaml" for one in blocks_of(page))}
    assert NOT_PASTED.keys() <= pasted


def test_a_reason_that_names_a_test_names_one_that_is_there() -> None:
    reasons = [*NOT_RUN.values(), *OTHER_LANGUAGES.values(), *NOT_PASTED.values()]
    named = [path for reason in reasons for path in re.findall(r"tests/\S+\.py", reason)]
    assert named
    assert [path for path in named if not (CODE / path).exists()] == []


def faults_of(text: str) -> str:
    """Return the faults of a page that has this text as its only YAML block."""
    block = Block("docs/page.md", 1, "yaml", text)
    try:
        config = with_writers(placed(read_piece(text, block.place), block.page))
    except (ConfigFaults, Misplaced) as error:
        return str(error)
    return str(config)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("streem: {}\n", "no section has these keys"),
        ("a: 1\na: 2\n", "a second time"),
        ("- {name: m, from: access, measure: count}\n", "{'stream': {'metrics': ["),
        ("multiline: java\n", "'topic': 'logs.page', 'multiline': 'java'"),
        ("columns: {a: int}\n", "'paths': ['watched/logs.page/**']"),
        ("shop: {topic: logs.shop, format: json}\n", "{'stream': {'from': {'shop'"),
        ("keep: {mysql: forever}\n", "{'stream': {'defaults': {'keep'"),
        ("rules:\n  - {name: a, on: part_down}\n", "{'monitor': {'alerts': {'rules'"),
    ],
)
def test_a_piece_finds_its_place(text: str, said: str) -> None:
    assert said in faults_of(text)


def test_an_entry_takes_the_place_of_its_namesake() -> None:
    base = {"metrics": [{"name": "a", "top": 1}, {"name": "b"}], "trigger": "1s"}
    both = merged(base, {"metrics": [{"name": "a", "top": 2}]})
    assert both == {"metrics": [{"name": "b"}, {"name": "a", "top": 2}], "trigger": "1s"}


def test_commands_keep_what_belongs_to_them() -> None:
    text = "```sh\n# a word\ncat > a <<'END'\nmillrace nothing\nEND\necho a \\\n  b\n```\n"
    [block] = parse_blocks("docs/page.md", text)
    assert [one.text for one in commands_of(block)] == [
        "cat > a <<'END'\nmillrace nothing\nEND",
        "echo a \\\n  b",
    ]
    [block] = parse_blocks("docs/page.md", "```console\n$ ls\na\nb\n$ true\n```\n")
    assert [(one.text, one.output) for one in commands_of(block)] == [
        ("ls", ("a", "b")),
        ("true", ()),
    ]


@pytest.mark.parametrize(
    ("said", "shown", "is_same"),
    [
        ("a  1\nb\n", ("a 1", "b"), True),
        ("a\nb\nc\n", ("a", "…"), True),
        ("a\nb\n", ("a",), False),
        ("at 10:15 now\n", ("at … now",), True),
        ("at 10:15\nnow\n", ("at … now",), False),
        ("\na\n\nb\n", ("a", "b"), True),
    ],
)
def test_output_is_compared(said: str, shown: tuple[str, ...], is_same: bool) -> None:
    assert is_as_shown(said, shown) == is_same


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("./millrace shwo METRIC\n", "no command 'shwo'"),
        ("sudo ./millrace lag --wach\n", "no option --wach"),
        ("docker compose run --rm cli shwo\n", "no command 'shwo'"),
        ("make upp\n", "no target 'upp'"),
        ("bin/kafka-topics --lisst\n", "no option --lisst"),
        ("bin/kafka-streams --list\n", "no command bin/kafka-streams"),
    ],
)
def test_what_cannot_be_typed_is_found(script: str, problem: str) -> None:
    assert any(problem in one for one in problems_in(script))


def test_a_new_command_is_run() -> None:
    [new, listed] = commands_of(Block("README.md", 1, "sh", "./millrace status\nmake up\n"))
    assert reason_not_run(new) is None
    assert reason_not_run(listed) is not None
