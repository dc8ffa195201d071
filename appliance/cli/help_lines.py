"""The layout of help texts: plain text, and one line for each command without broken words.

This module loads nothing of the mill, because help and completion import it.
"""

import re
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

_ENDS_OF_THOUGHTS = (re.compile(r"[;:.] "), re.compile(r", "))
_AROUND_NAMES = 6
"""The number of columns in a list of commands that are neither name nor text."""


def in_one_line(text: str, limit: int) -> str:
    """Shorten a text to a number of characters, at the end of a sentence or at least of a word.

    The result has no full stop at its end, whether it was shortened or not.
    """
    text = text.removesuffix(".")
    if len(text) <= limit:
        return text
    for end in _ENDS_OF_THOUGHTS:
        thoughts = [found.start() for found in end.finditer(text, 0, limit + 2)]
        if thoughts:
            return text[: thoughts[-1]]
    return f"{text[:limit].rsplit(' ', 1)[0]}…"


def write_commands(formatter: Any, commands: Sequence[tuple[str, str]]) -> None:
    """Write the list of commands of a help page: the names, and what each does."""
    limit = formatter.width - _AROUND_NAMES - max(len(name) for name, _ in commands)
    with formatter.section("Commands"):
        formatter.write_dl([(name, in_one_line(text, limit)) for name, text in commands])


class _PlainGroup(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        write_commands(
            formatter,
            [
                (name, (one.help or "").split("\n\n")[0].replace("\n", " ").strip())
                for name, one in found
                if one is not None and not one.hidden
            ],
        )


def group_of_commands(what: str) -> typer.Typer:
    """Return a group of commands whose help looks like the help of the whole tree.

    Each group is created separately and inherits no settings from the tree. `millrace completion`
    completes all of them.
    """
    return typer.Typer(
        cls=_PlainGroup,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help=what,
    )
