"""Shows the steps of commands that change which brokers belong to a cluster, and what they hold."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from appliance.cli.cluster import OutputFormat, Row, emit
from appliance.cli.progress import ProgressLine, progress_line
from appliance.cli.reassign_throttle import copies_text
from appliance.output import say

if TYPE_CHECKING:
    from appliance.kafka.membership_steps import MembershipStep
    from protocol.copy_progress import CopyEstimate


def show_steps(
    steps: "Sequence[MembershipStep]",
    schema: str,
    output: OutputFormat,
    as_json: bool,
    nothing: str = "",
) -> None:
    """Print the steps that are left, or `nothing` if there are none."""
    rows: list[Row] = [
        {"step": number, "does": type(step).__name__, "what": str(step)}
        for number, step in enumerate(steps, 1)
    ]
    emit(schema, rows, output, as_json, nothing=nothing)


class StepProgress:
    """Shows each step on a line of its own, and the progress of a step that waits."""

    def __init__(self, line: ProgressLine) -> None:
        self._line = line

    def begin(self, step: "MembershipStep") -> None:
        """Show a step before it is taken."""
        self._line.end()
        say(str(step))

    def wait(self, step: "MembershipStep", estimate: "CopyEstimate | None") -> None:
        """Show a step that waits, with what is known of its copies."""
        self._line.show(str(step) if estimate is None else f"{step}; {copies_text(estimate)}")


@contextmanager
def step_progress() -> Iterator[StepProgress]:
    """Yield the callbacks for the steps of one command."""
    with progress_line() as line:
        yield StepProgress(line)
