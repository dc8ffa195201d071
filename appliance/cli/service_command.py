"""`install-service`: show or write the systemd unit of this mill."""

import os
import pwd
import sys
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli import context
from appliance.cli.options import EnvelopeOption
from appliance.config.collecting import only_collects
from appliance.machine.files import write_atomically
from appliance.machine.service import (
    PathNotFit,
    Service,
    is_ours,
    next_steps,
    unit_folder,
    unit_text,
)
from appliance.mill.home import Home
from appliance.output import CommandError, Exit, out, print_json, say

UNIT_MODE = 0o644
SYSTEM_HELP = (
    "A unit of the machine, or of this account. Default: for root the machine, else the account."
)


def install_service(
    write: Annotated[
        bool, typer.Option("--write", help="Write the unit instead of showing it.")
    ] = False,
    system: Annotated[bool | None, typer.Option("--system/--user", help=SYSTEM_HELP)] = None,
    name: Annotated[str, typer.Option("--name", help="The unit's name.")] = "millrace",
    as_json: EnvelopeOption = False,
) -> None:
    """Show the systemd unit of this mill; with --write, write it.

    The command does not enable or start anything. It prints the commands for that.
    """
    if context.in_containers():
        raise CommandError("containers need no systemd unit: compose restarts them", Exit.CONDITION)
    if not name or not all(one.isascii() and (one.isalnum() or one in "-_.@") for one in name):
        raise CommandError(f"--name {name}: expected letters, digits, - _ . @", Exit.USAGE)
    mill, _ = context.load_mill()
    is_system = os.geteuid() == 0 if system is None else system
    home = mill.home
    account = pwd.getpwuid(home.folder.stat().st_uid).pw_name
    me = pwd.getpwuid(os.geteuid()).pw_name
    if not is_system and account != me:
        raise CommandError(
            f"{home.folder} belongs to {account}: a unit of {me} would make files there that"
            f" {account} cannot read; use --system, or run this command as {account}",
            Exit.CONDITION,
        )
    service = Service(
        folder=home.folder,
        command=_command(home),
        config_file=home.config_file,
        user=account if is_system else None,
        is_system=is_system,
        only_collects=only_collects(mill.config),
    )
    try:
        text = unit_text(service)
    except PathNotFit as error:
        raise CommandError(f"cannot write the systemd unit: {error}") from error
    unit = f"{name}.service"
    path = unit_folder(is_system=is_system, config_home=_config_home()) / unit
    state = _state(path, text)
    if write and state != "same":
        _write(path, text, state)
    steps = next_steps(unit, is_system=is_system, user=account)
    if as_json:
        data = {"path": str(path), "found": state, "written": write, "unit": text, "then": steps}
        print_json("service/1", data)
        return
    if not write:
        out(text.rstrip("\n"))
    if left := _left_out():
        say(
            f"set for this command, but not in the unit: {', '.join(left)};"
            f" `systemctl edit {unit}` adds them"
        )
    say(_words(path, state, write))
    for step in steps if write else ():
        say(f"  {step}")


def _command(home: Home) -> Path:
    """Return the command of this clone, or the command that pip has installed beside Python."""
    own = home.code / "millrace"
    return own if own.exists() else Path(sys.executable).with_name("millrace")


def _left_out() -> list[str]:
    """Return the variables that override the configuration and are set only in this shell."""
    named = ("MILLRACE_HOME", "MILLRACE_CONFIG")
    return sorted(name for name in os.environ if name.startswith("MILLRACE_") and name not in named)


def _config_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _state(path: Path, text: str) -> str:
    """Return what exists at the unit's path: nothing, the same text, an older unit of ours, or
    another file."""
    try:
        found = path.read_text(errors="replace")
    except FileNotFoundError:
        return "nothing"
    if found == text:
        return "same"
    return "ours" if is_ours(found) else "another"


def _write(path: Path, text: str, state: str) -> None:
    if state == "another":
        raise CommandError(
            f"{path} was not written by this command and is unchanged: use --name for another name",
            Exit.CONDITION,
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode(), mode=UNIT_MODE)
    except PermissionError as error:
        hint = "run the command as root, or add --user for a unit of this account"
        raise CommandError(f"{path} cannot be written: {error.strerror}; {hint}") from error


def _words(path: Path, state: str, write: bool) -> str:
    if state == "same":
        return f"{path} has this unit already" + ("; now run:" if write else "")
    if write:
        return f"{path} was written; now run:"
    lies = {
        "nothing": "",
        "ours": ", which has an older unit of this command",
        "another": ", which has a unit that this command did not write",
    }
    return f"nothing was written; add --write to write the unit to {path}{lies[state]}"
