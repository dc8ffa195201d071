"""`completion`: a script that completes the commands in a shell without starting Python.

The script contains all commands and options. It completes the topics and groups that an earlier
command has stored (`cluster.remember`).
"""

import shlex
from collections.abc import Iterator
from typing import Annotated, Any

import typer
import typer.main

from appliance.cli import context
from appliance.cli.cluster import complete_groups, complete_topics, names_file
from appliance.cli.tree import COMMANDS, Tree
from appliance.output import CommandError, Exit, out

SHELLS = ("bash", "zsh")

SCRIPT = """\
_millrace_words() {
  case "$1" in
@WORDS@
  esac
}
_millrace_names() {
  case "$1" in
@NAMES@
  esac
}
_millrace() {
  local cur="${COMP_WORDS[COMP_CWORD]}" path="" word longer words names
  local at=1
  while [ "$at" -lt "$COMP_CWORD" ]; do
    word="${COMP_WORDS[$at]}"
    case "$word" in
      -*) ;;
      *)
        longer="$path${path:+ }$word"
        if [ -n "$(_millrace_words "$longer")" ]; then path="$longer"; fi ;;
    esac
    at=$((at + 1))
  done
  names="$(_millrace_names "$path")"
  words="$(_millrace_words "$path") $([ -z "$names" ] || cat "$names" 2>/dev/null)"
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _millrace millrace ./millrace"""


def completion(shell: Annotated[str, typer.Argument(help=", ".join(SHELLS))]) -> None:
    """Print a script that completes these commands in a shell.

    For bash: `eval "$(./millrace completion bash)"`; put the line into ~/.bashrc to keep it. For
    zsh likewise.
    """
    if shell not in SHELLS:
        raise CommandError(f"found {shell!r}, expected one of {', '.join(SHELLS)}", Exit.USAGE)
    if shell == "zsh":
        out("autoload -U +X compinit bashcompinit && compinit -u && bashcompinit")
    out(script())


def script() -> str:
    """Return the script for bash, which zsh can read as well."""
    words, names = [], []
    for path, command in commands():
        own = [*getattr(command, "commands", {}), *_options(command)]
        if isinstance(command, Tree):
            own = [name for name, entry in COMMANDS.items() if not entry.is_hidden]
        words.append(f"    {shlex.quote(path)}) echo {shlex.quote(' '.join(own))} ;;")
        if kind := _kind_of(command):
            file = shlex.quote(str(names_file(context.home(), kind)))
            names.append(f"    {shlex.quote(path)}) echo {file} ;;")
    return SCRIPT.replace("@WORDS@", "\n".join(words)).replace("@NAMES@", "\n".join(names))


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command that is not hidden, with the words that lead to it."""
    from appliance.cli.app import app

    root: Any = typer.main.get_command(app)
    yield "", root
    for name, entry in COMMANDS.items():
        if entry.is_hidden:
            continue
        command = root.get_command(None, name)
        yield name, command
        for inner, one in getattr(command, "commands", {}).items():
            yield f"{name} {inner}", one


def _options(command: Any) -> list[str]:
    found = [name for one in command.params for name in one.opts if name.startswith("--")]
    return [*found, "--help"]


def _kind_of(command: Any) -> str | None:
    """Return which names the arguments of a command are: topics or groups; None for neither."""
    callback = getattr(command, "callback", None)
    for annotation in getattr(callback, "__annotations__", {}).values():
        for one in getattr(annotation, "__metadata__", ()):
            completer = getattr(one, "autocompletion", None)
            if completer is complete_topics:
                return "topics"
            if completer is complete_groups:
                return "groups"
    return None
