"""The installed Millrace: finds the rooms beside this file and runs the `millrace` command.

The rooms import each other by their own names (`broker`, `stream`). Such names would collide with
other packages in site-packages, so the wheel keeps the rooms in the folder `rooms`. Only processes
of the mill have that folder on their path: this process, and those that inherit its environment.
"""

import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

ROOMS = Path(__file__).resolve().parent / "rooms"


def default_home(environ: Mapping[str, str], *, is_root: bool) -> Path:
    """Return the folder of configuration and data if MILLRACE_HOME is not set.  For root the folder
    is /var/lib/millrace. For other users it is `millrace` in XDG_DATA_HOME, which is ~/.local/share
    by default (XDG Base Directory Specification).
    """
    if is_root:
        return Path("/var/lib/millrace")
    named = environ.get("XDG_DATA_HOME", "")
    data = Path(named) if named.startswith("/") else Path.home() / ".local" / "share"
    return data / "millrace"


def main() -> None:
    """Run the `millrace` command. The process ends with its exit code."""
    if not os.environ.get("MILLRACE_HOME"):
        os.environ["MILLRACE_HOME"] = str(default_home(os.environ, is_root=os.geteuid() == 0))
    os.environ["PYTHONPATH"] = str(ROOMS)
    os.environ["PYTHONSAFEPATH"] = "1"
    sys.path.insert(0, str(ROOMS))
    runpy.run_module("appliance", run_name="__main__", alter_sys=True)
