"""What most commands begin with: which mill is meant, and its checked configuration."""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.errors import NOT_RUNNING
from appliance.mill.home import Home, find_home

if TYPE_CHECKING:
    from appliance.config.load import Loaded
    from appliance.mill.parts import Placement
    from appliance.mill.settings import Mill

_config_option: list[Path] = []
"""The value of `--config`, set once by the command line's entry."""


def use_config(path: Path | None) -> None:
    """Remember `--config` for the command that follows."""
    _config_option[:] = [] if path is None else [path]


def home() -> Home:
    """The mill meant by `--config` and the environment."""
    return find_home(config=_config_option[0] if _config_option else None)


def in_containers() -> bool:
    """Whether parts are containers; their compose file says so."""
    return os.environ.get("MILLRACE_PUBLISHED") == "loopback"


def typed(words: str) -> str:
    """How a person calls one of our commands where this mill is."""
    return f"{'docker compose run --rm cli' if in_containers() else './millrace'} {words}"


def not_answered(text: str) -> str:
    """Why a part gives no answer, and that the whole mill does not run, where it does not."""
    from appliance.operate.lifecycle import is_running

    if in_containers() or is_running(home()):
        return text
    return f"{text}; {NOT_RUNNING}"


def placement() -> "Placement":
    """Where the parts are."""
    from appliance.mill.parts import Placement

    return Placement(in_containers=in_containers())


def load_mill(at: Home | None = None) -> tuple["Mill", "Loaded"]:
    """The configuration, checked. Raises ConfigFaults."""
    from appliance.config.load import load
    from appliance.mill.settings import Mill

    at = at or home()
    loaded = load(at.config_file, at.folder)
    digest = hashlib.sha256(loaded.data).hexdigest()
    return Mill(at, loaded.config, placement(), digest), loaded


def mill_as_it_runs() -> "Mill":
    """The mill for who only asks it something: as it was started, where it runs.

    What is being written into the file, and what of it waits for `up --apply`, moves no part. A
    file that is named with `--config` is meant. Raises ConfigFaults.
    """
    from dataclasses import replace

    from appliance.operate.lifecycle import is_running

    at = home()
    if not _config_option and not in_containers() and is_running(at) and at.started_config.exists():
        as_started, _ = load_mill(replace(at, config_file=at.started_config))
        return replace(as_started, home=at)
    return load_mill(at)[0]
