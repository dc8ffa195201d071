"""`top`: parts, rates and lag, live on a terminal."""

import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.lag_command import ask_monitor
from appliance.cli.options import EnvelopeOption, EveryOption, every_s
from appliance.cli.status_command import part_rows
from appliance.cli.terminal import keys, pressed
from appliance.cli.top_view import (
    Frame,
    MonitorAnswer,
    frame_of,
    head_of,
    parts_table,
    readers_table,
)
from appliance.output import (
    CommandError,
    Exit,
    is_terminal,
    out,
    print_json,
    print_table,
    rich_table,
    say,
)
from protocol.log import escape

if TYPE_CHECKING:
    from appliance.mill.settings import Mill


def top(
    every: EveryOption = "2s",
    times: Annotated[
        int | None,
        typer.Option(
            "--times",
            "-n",
            min=1,
            help="How many frames; without it: endless on a terminal, else one.",
        ),
    ] = None,
    as_json: EnvelopeOption = False,
) -> None:
    """Parts, their resources and rates, and lag of readers: live on a terminal, `q` ends it."""
    mill = context.mill_as_it_runs()
    wait_s = every_s(every)
    is_live = is_terminal() and not as_json
    left = times if times is not None or is_live else 1
    frame = None
    with keys(), _screen() if is_live else nullcontext() as screen:
        while True:
            frame = _look(mill, frame)
            if screen is not None:
                screen.update(painted(frame), refresh=True)
            else:
                _print(frame, as_json)
            left = None if left is None else left - 1
            if left == 0 or pressed(wait_s) in ("q", "Q"):
                break
    if not is_live and not frame.parts:
        raise typer.Exit(Exit.CONDITION)


def _look(mill: "Mill", before: Frame | None) -> Frame:
    rows, errors = part_rows()
    return frame_of(round(time.time() * 1000), rows, errors, _told(mill), before)


def _told(mill: "Mill") -> MonitorAnswer:
    """Return the monitor's parts, groups and findings, or the reason why the monitor does not
    answer."""
    try:
        parts, groups, findings = (
            ask_monitor(mill, f"/api/v1/{name}") for name in ("parts", "groups", "health")
        )
    except CommandError as error:
        return MonitorAnswer(problem=str(error))
    is_fresh = groups["kafka_at_ms"] == groups["ts_ms"]
    known = groups["data"] if groups["data"] or is_fresh else None
    return MonitorAnswer(parts["data"], known, findings["data"])


def _screen() -> Any:
    from rich.live import Live

    return Live(screen=True, auto_refresh=False)


def painted(frame: Frame) -> Any:
    """Return a frame for a terminal. Text that does not fit is cut at its edges."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(head_of(frame), style="bold", no_wrap=True), Text()]
    for heads, rows, right in (parts_table(frame), readers_table(frame)):
        if rows:
            clean = [[escape(cell) for cell in row] for row in rows]
            parts += [rich_table(heads, clean, right, folds=False), Text()]
    parts += [Text(escape(text), style="yellow") for text in frame.warnings]
    return Group(*parts)


def _print(frame: Frame, as_json: bool) -> None:
    if as_json:
        print_json("top/1", frame.data, frame.warnings)
        return
    if frame.parts:
        out(head_of(frame))
    for heads, rows, right in (parts_table(frame), readers_table(frame)):
        if rows:
            print_table(heads, rows, right=right)
    for text in frame.warnings:
        say(f"millrace: {text}")
    sys.stdout.flush()
