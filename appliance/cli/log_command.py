"""`logs`: the logs of all parts in order of time, and new lines as they come."""

import json
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli import context
from appliance.mill.home import Home
from appliance.output import CommandError, Exit, out, say, utc_text
from appliance.supervisor.log_times import moment_of
from appliance.supervisor.logs import LOG_BYTES_MAX, TAIL_BYTES_MAX, tail
from protocol.units import parse_duration_ms

LOOK_EVERY_S = 0.2
LINES = 50

Shape = Callable[[str, str], str]
"""A function that formats one line of a part's log, given the part's name."""


def logs(
    part: Annotated[str | None, typer.Argument(help="One part; all of them if left out.")] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Also print new lines as they are written.")
    ] = False,
    lines: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--lines",
            help="The last lines of each part. Default: 50, with --since all.",
            min=0,
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only lines of this last time, such as 10m.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object for each line.")] = False,
) -> None:
    """Show the parts' logs, oldest lines first."""
    if context.in_containers():
        words = ["docker compose logs", *(["-f"] if follow else []), *([part] if part else [])]
        text = f"a part in a container logs to its container: `{' '.join(words)}`"
        raise CommandError(text, Exit.USAGE)
    home = context.home()
    files = log_files(home, part)
    if not files:
        waits = "; new lines are shown as they are written" if follow else ""
        say(f"no part has written a log yet; `make up` starts the mill{waits}")
    newest_ms = None
    if since is not None:
        try:
            newest_ms = round(time.time() * 1000) - parse_duration_ms(since)
        except ValueError as error:
            raise CommandError(str(error), Exit.USAGE) from error
    follow_logs(
        files,
        lines=lines if lines is not None else LINES if since is None else sys.maxsize,
        follow=follow,
        since_ms=newest_ms,
        find=dict if part is not None else partial(log_files, home, None),
        shape=_as_json if as_json else None,
    )


def log_files(home: Home, part: str | None) -> dict[str, Path]:
    if part is not None:
        path = home.part_log(part)
        if not path.exists():
            known = ", ".join(sorted(p.stem for p in home.logs.glob("*.log"))) or "none yet"
            raise CommandError(
                f"there is no log of {part!r}, expected one of {known}", Exit.NOT_FOUND
            )
        return {part: path}
    return {path.stem: path for path in sorted(home.logs.glob("*.log"))}


def follow_logs(
    files: dict[str, Path],
    *,
    lines: int,
    follow: bool = True,
    since_ms: int | None = None,
    goes_on: Callable[[], bool] = lambda: True,
    find: Callable[[], dict[str, Path]] = dict,
    shape: Shape | None = None,
) -> None:
    """Print the last lines of some logs in order of time, and with `follow` the new lines.

    `find` returns the logs; logs of parts that appear later are printed from their start.
    """
    earliest = utc_text(since_ms) if since_ms is not None else ""
    files, given = dict(files), shape
    shape = given or _with_names(files)
    positions = {name: path.stat().st_size for name, path in files.items()}
    # A line without a time, such as a line of a stack trace, stays after the line before it.
    found: list[tuple[str, int, str]] = []
    for name, path in files.items():
        moment = ""
        for line in tail(path, lines, LOG_BYTES_MAX if earliest else TAIL_BYTES_MAX):
            moment = moment_of(line) or moment
            if not earliest or moment >= earliest:
                found.append((moment, len(found), shape(name, line)))
    for _, _, line in sorted(found):
        out(line)
    while follow:
        sys.stdout.flush()
        # Decide first whether to continue, so that the lines written before the end are still
        # printed.
        follow = goes_on()
        time.sleep(LOOK_EVERY_S)
        if new := find().items() - files.items():
            files |= new
            shape = given or _with_names(files)
            positions |= dict.fromkeys((name for name, _ in new), 0)
        for name, path in files.items():
            positions[name] = _print_added(path, positions[name], name, shape)


def _with_names(files: Collection[str]) -> Shape:
    """Return a function that puts the part's name before each line if there are several parts."""
    width = max((len(name) for name in files), default=0)
    return lambda name, line: f"{name:<{width}} | {line}" if len(files) > 1 else line


def _as_json(name: str, line: str) -> str:
    at = moment_of(line) or None
    return json.dumps({"part": name, "at": at, "line": line}, ensure_ascii=False)


def _print_added(path: Path, position: int, name: str, shape: Shape) -> int:
    """Print the whole lines after `position` and return the new position. A truncated file is
    read from its start."""
    try:
        if path.stat().st_size < position:
            position = 0
        with path.open("rb") as file:
            file.seek(position)
            text = file.read(1 << 20)
    except OSError:
        return position
    whole = text[: text.rfind(b"\n") + 1]
    for line in whole.decode(errors="replace").splitlines():
        out(shape(name, line))
    return position + len(whole)
