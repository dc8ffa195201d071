"""Find the mill that a command is for, and load its checked configuration."""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.config.containers import is_container
from appliance.errors import NOT_RUNNING
from appliance.mill.home import Home, find_home

if TYPE_CHECKING:
    from appliance.config.load import LoadedConfig
    from appliance.mill.settings import Mill

_config_option: list[Path] = []
"""The value of `--config`, set once by the entry of the command line."""


def use_config(path: Path | None) -> None:
    """Remember `--config` for the command that follows."""
    _config_option[:] = [] if path is None else [path]


def home() -> Home:
    """Return the mill that `--config` and the environment name."""
    return find_home(config=_config_option[0] if _config_option else None)


def in_containers() -> bool:
    """Return whether the parts are containers. The compose file sets a variable in this case."""
    return is_container(os.environ)


def typed(words: str) -> str:
    """Return the command line for a command of this mill, which is longer in containers."""
    return f"{'docker compose run --rm cli' if in_containers() else './millrace'} {words}"


def not_running() -> str:
    """Return the message that no mill runs here. A host that has joined a mill has none to start,
    so the message names its collector."""
    from appliance.enrol.host_files import HostFiles
    from appliance.output import CommandError

    try:
        known = HostFiles(home()).joined()
    except (CommandError, OSError):
        # `join` and `collector run` say that the record cannot be read. Another account of the
        # machine may not look into the folder of the secrets.
        known = None
    if known is None:
        return NOT_RUNNING
    return (
        f"this host only collects, as {known.name}: `millrace collector run` starts its collector,"
        " and `millrace collector status` shows it"
    )


def not_answered(text: str) -> str:
    """Return the reason why a part does not answer, with a note if the whole mill is stopped."""
    from appliance.operate.lifecycle import is_running

    if in_containers() or is_running(home()):
        return text
    return f"{text}; {not_running()}"


def load_mill(at: Home | None = None) -> tuple["Mill", "LoadedConfig"]:
    """Load and check the configuration. Raises ConfigFaults and HostRecordFault."""
    from appliance.config.load import load
    from appliance.mill.settings import Mill

    at = at or home()
    loaded = load(at.config_file, at.folder)
    digest = hashlib.sha256(loaded.data).hexdigest()
    mill = Mill.of(at, loaded.config, in_containers=in_containers(), sha256=digest)
    return mill, loaded


def mill_as_it_runs() -> "Mill":
    """Return the mill as it was started if it runs; otherwise as the file describes it.

    Use this in every command that only asks the mill something. The file can have a change that
    waits for `up --apply`, or that the user is still typing. Such a change is not in effect, so it
    must not decide which parts are asked. A file named with `--config` is always used. Raises
    ConfigFaults.
    """
    from dataclasses import replace

    from appliance.operate.lifecycle import is_running

    at = home()
    if not _config_option and not in_containers() and is_running(at) and at.started_config.exists():
        as_started, _ = load_mill(replace(at, config_file=at.started_config))
        return replace(as_started, home=at)
    return load_mill(at)[0]
