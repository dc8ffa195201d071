"""The code blocks of README.md and docs/, and the commands that a reader types from them.

The language of a block says how a reader uses it. `yaml` belongs in the configuration file. `sh` is
typed as it is. `console` has commands after `$ ` and their output below. `sql` is a query. Blocks
in other languages are not for the mill, and `tests/harness/pages_not_run.py` must list them.
"""

import re
from dataclasses import dataclass

from appliance.mill.home import CODE

TYPED = ("sh", "console", "sql")
LANGUAGES = ("yaml", *TYPED)
PROMPT = "$ "
ANYTHING = "…"
"""Alone on a line of output it stands for any lines. Within a line it stands for any text."""

_FENCE = re.compile(r" *```(\S*)")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")


@dataclass(frozen=True)
class Block:
    """One fenced block: its page (path in the repository), its first line, its language."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One typed command, with the output that the page shows below it."""

    block: Block
    text: str
    output: tuple[str, ...] = ()


def pages() -> list[str]:
    """Return the paths of README.md and of every page of docs/."""
    found = sorted((CODE / "docs").rglob("*.md"))
    return ["README.md", *(str(path.relative_to(CODE)) for path in found)]


def blocks_of(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return parse_blocks(page, (CODE / page).read_text())


def parse_blocks(page: str, text: str) -> list[Block]:
    """Return the fenced blocks of a text. Raises ValueError for a fence that is never closed."""
    found: list[Block] = []
    opened: tuple[int, str] | None = None
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence is not None:
            opened, inside = (number + 1, fence[1]), []
        elif opened is not None and line.strip() == "```":
            found.append(Block(page, *opened, "".join(f"{one}\n" for one in inside)))
            opened = None
        elif opened is not None:
            inside.append(line)
    if opened is not None:
        raise ValueError(f"{page}:{opened[0]}: a block without an end")
    return found


def indented_lines(text: str) -> list[int]:
    """Return the numbers of lines that Markdown shows as code although they are in no fence."""
    found, is_open, before = [], False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            is_open = not is_open
        elif not is_open and line.startswith("    ") and not before.strip():
            found.append(number)
        before = line
    return found


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a block. A command can have several lines."""
    if block.language == "console":
        return _with_output(block)
    if block.language == "sql":
        return [Command(block, block.text)]
    return [Command(block, text) for text in _split(block.text)] if block.language == "sh" else []


def _with_output(block: Block) -> list[Command]:
    first, *rest = f"\n{block.text}".split(f"\n{PROMPT}")
    if first.strip():
        raise ValueError(f"{block.place}: output before the first `{PROMPT}`")
    found = []
    for text in rest:
        typed, *output = text.rstrip("\n").split("\n")
        while typed.endswith("\\"):
            typed = f"{typed}\n{output.pop(0)}"
        found.append(Command(block, typed, tuple(output)))
    return found


def _split(text: str) -> list[str]:
    """Split a script into commands. A command includes its continuation lines and its heredoc."""
    found: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        command = [line]
        while command[-1].endswith("\\"):
            command.append(next(lines))
        if heredoc := _HEREDOC.search(line):
            while command[-1] != heredoc[1]:
                command.append(next(lines))
        if line.strip() and not line.lstrip().startswith("#"):
            found.append("\n".join(command))
    return found


def is_as_shown(output: str, shown: tuple[str, ...]) -> bool:
    """Return True if a command printed what its page shows. Runs of blanks count as one."""
    said = [" ".join(line.split()) for line in output.splitlines()]
    said = [line for line in said if line]
    pattern = ""
    for line in shown:
        words = " ".join(line.split())
        if words == ANYTHING:
            pattern += r"(?:[^\n]*\n)*"
        elif words:
            parts = (re.escape(part) for part in words.split(ANYTHING))
            pattern += r"[^\n]*".join(parts) + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in said)) is not None
