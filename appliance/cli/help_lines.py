"""How help looks: plain text, a line for each command, and no word of it cut.

Loads nothing of the mill: help and completion pass through here.
"""

import re
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

_ENDS_OF_THOUGHTS = (re.compile(r"[;:.] "), re.compile(r", "))
_AROUND_NAMES = 6
"""Columns of a list of commands that are neither name nor text."""


def in_one_line(text: str, limit: int) -> str:
    """A text in so many characters: whole, or as far as a thought, or at least a word, goes.

    Without a full stop, which those that end with a thought would lack beside the others.
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
    """The list of commands in a help: names, and what each does."""
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
    """A group whose help is like that of the whole tree.

    Each is made alone and inherits nothing from the tree; `millrace completion` completes them all.
    """
    return typer.Typer(
        cls=_PlainGroup,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help=what,
    )
