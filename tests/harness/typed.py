"""Checks that a command on a page exists, with all its options, in the real programs."""

import contextlib
import io
import re
from functools import cache
from typing import Any

import typer

from appliance.cli.app import app
from appliance.kafka_tools.__main__ import TOOLS, main
from appliance.mill.home import CODE

TREE: Any = typer.main.get_command(app)
QUOTED = re.compile(r"\./millrace ((?:[a-z][a-z-]*|\[?--?[a-z][a-z-]*\]?)(?: [^`\n|#;)]*)?)")
"""A command of the mill in the text of a page."""

_MILL = re.compile(r"(?:^|\./|\()millrace ((?:[a-z]|--?[a-z])[^\n|#;)>]*)", re.MULTILINE)
_MAKE = re.compile(r"^make ([a-z][a-z -]*?)(?: [A-Z]+=.*)?\s*(?:#|$)", re.MULTILINE)
_KAFKA = re.compile(r"(?:^|/)bin/kafka-([a-z-]+?)(?:\.sh)? ([^\n|#;)>]*)", re.MULTILINE)
_IN_CONTAINER = re.compile(
    r"docker compose run --rm (?:-v \S+ )?(?:cli|stream|collector) ([a-z][^\n|#;)>]*)"
)


def problem_of(typed: str) -> str | None:
    """Return why the mill does not accept a command, or None. Placeholders in capitals match any
    word."""
    words = [word.strip("[],.") for word in typed.split()]
    command = TREE
    context = TREE.make_context("millrace", ["status"])
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if (found := command.get_command(context, words[0])) is None:
            return None if words[0].isupper() else f"no command {words[0]!r}"
        command, words = found, words[1:]
    known = {option for one in command.get_params(context) for option in one.opts}
    known |= {option for one in command.get_params(context) for option in one.secondary_opts}
    asked = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return f"no option {sorted(asked - known)[0]} in {typed!r}" if asked - known else None


def problems_in(script: str) -> list[str]:
    """Return why commands of a block cannot be typed. The commands are those of the mill, of make
    and of Kafka's tools."""
    found = [
        problem_of(typed) for typed in (*_MILL.findall(script), *_IN_CONTAINER.findall(script))
    ]
    found += [_make_problem(target) for typed in _MAKE.findall(script) for target in typed.split()]
    found += [_kafka_problem(tool, rest) for tool, rest in _KAFKA.findall(script)]
    return [problem for problem in found if problem is not None]


def _make_problem(target: str) -> str | None:
    is_known = re.search(rf"^{target}:", (CODE / "Makefile").read_text(), re.MULTILINE)
    return None if is_known else f"no target {target!r} in the Makefile"


def _kafka_problem(tool: str, rest: str) -> str | None:
    if tool not in TOOLS:
        return f"no command bin/kafka-{tool}"
    asked = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", rest))
    unknown = sorted(asked - _options_of(tool))
    return f"no option {unknown[0]} of kafka-{tool}" if unknown else None


@cache
def _options_of(tool: str) -> set[str]:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        main([tool, "--help"])
    return set(re.findall(r"--[a-z][a-z-]*", said.getvalue()))
