"""`version`, and what `--version` prints."""

from typing import Annotated

import typer

from appliance.cli.output import out, print_json
from protocol.status import VERSION


def version(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON envelope.")] = False,
) -> None:
    """The mill's version."""
    if as_json:
        print_json("version/1", {"version": VERSION})
        return
    out(VERSION)
