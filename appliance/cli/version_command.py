"""`version`, and what `--version` prints."""

from appliance.cli.options import EnvelopeOption
from appliance.mill.home import CODE
from appliance.mill.source import commit_of
from appliance.output import out, print_json
from protocol.status import VERSION


def version(
    as_json: EnvelopeOption = False,
) -> None:
    """The mill's version."""
    commit = commit_of(CODE)
    if as_json:
        print_json("version/1", {"version": VERSION, "commit": commit})
        return
    out(VERSION if commit is None else f"{VERSION} ({commit})")
