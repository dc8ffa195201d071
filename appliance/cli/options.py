"""Options that several commands have. Completion imports this module, so it loads nothing else."""

from typing import Annotated

import typer

from appliance.output import CommandError, Exit
from protocol.units import parse_duration_ms

EnvelopeOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
EveryOption = Annotated[
    str, typer.Option("--every", help="With --watch: the time between two looks, such as 2s.")
]


def every_s(text: str) -> float:
    """Return the seconds between two refreshes. Raises CommandError."""
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise CommandError(f"--every: {error}", Exit.USAGE) from error
