"""docs/troubleshooting.md quotes messages that exist, and names every problem that a part can
report."""

import re

import pytest

from appliance.mill.home import CODE
from stream import state
from tests.harness.literals import FILLED, is_said, sources

PAGE = (CODE / "docs" / "troubleshooting.md").read_text()
MESSAGES_MIN = 20
CODES_MIN = 20

# The places in the code that name a problem. The code of the problem is the first string, and `{`
# begins a part that is filled in.
NAMED = (
    r'Problem\(\s*f?"([a-z_{][^"\s]*)"',
    r'\.waiting\(\s*f?"([a-z_{][^"]*)"',
    r'code, text = f?"([a-z_{][^"]*)", (?:str\(error\)|\()',
    r'\n(?:[A-Z]+_)?PROBLEM = "([a-z_]+)"',
)
# The collector adds a problem by its code (`add("…")`), or stores it under its code and a place.
KEPT = (r'\badd\("([a-z]+)"', r'problems\[f?"([a-z]+)(?=[ "])')


def rows(heading: str) -> list[str]:
    """Return the first cells of the table below a heading."""
    below = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in below.splitlines() if line.startswith("| `")]
    return [line.split(" | ")[0].removeprefix("| ") for line in lines]


def quoted(cells: list[str]) -> list[str]:
    return [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]


def codes() -> set[str]:
    """Return the code of every problem that a part can report."""
    found = {state.POISON, state.QUERY_ENDED}
    for path in sources():
        text = path.read_text()
        for pattern in (*NAMED, *(KEPT if "collector" in path.parts else ())):
            found |= {re.sub(r"\{[^}]*\}", FILLED, code) for code in re.findall(pattern, text)}
    return found


MESSAGES = quoted(rows("Starting") + rows("Commands"))


OF_BACKUPS = re.findall(r"^\| `([^`]+)`", (CODE / "docs" / "backup.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("message", [*MESSAGES, *OF_BACKUPS])
def test_what_is_quoted_is_said(message: str) -> None:
    assert is_said(message)


def test_a_message_that_the_program_never_prints_is_found() -> None:
    assert len(MESSAGES) >= MESSAGES_MIN
    assert OF_BACKUPS
    assert not is_said("the moon is in the way of …")
    assert not is_said("… in use by … and then nothing was started")


def test_every_problem_has_its_row() -> None:
    known = set(quoted(rows("What parts report")))
    named = codes()
    assert len(named) >= CODES_MIN
    assert {code for code in named if not code.endswith("-away")} <= known
    assert known - {f"{FILLED}-away"} <= named


def test_the_pages_lead_to_pages_that_are_there() -> None:
    for path in sorted((CODE / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
            if not target.startswith("https://"):
                assert (path.parent / target).exists(), f"{path.name}: {target}"
