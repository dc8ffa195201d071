"""`version`, and what `--version` prints."""

from appliance.cli.options import EnvelopeOption
from appliance.cli.output import out, print_json
from protocol.status import VERSION


def version(
    as_json: EnvelopeOption = False,
) -> None:
    """The mill's version."""
    if as_json:
        print_json("version/1", {"version": VERSION})
        return
    out(VERSION)
