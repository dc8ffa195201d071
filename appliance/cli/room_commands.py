"""Commands whose work is done by other rooms: lag, collector, stream."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from appliance.cli import context
from appliance.cli.output import CommandError, Exit, print_json, print_table, say
from appliance.cli.recount_command import recount
from appliance.parts import Probe
from appliance.run import settings_descriptor
from appliance.settings import (
    SINK_USER,
    Mill,
    collector_settings,
    encode_settings,
    sinks_settings,
    stream_check_settings,
)
from protocol.status import PartStatus, StatusUnavailable, fetch_status

ANSWER_BYTES_MAX = 16 << 20
TIMEOUT_S = 10.0

collector = typer.Typer(no_args_is_help=True, help="The collector and its files.")
stream = typer.Typer(no_args_is_help=True, help="The stream and its metrics.")


def lag(
    groups: Annotated[list[str] | None, typer.Argument(help="Groups; all if left out.")] = None,
    per: Annotated[str, typer.Option("--per", help="partition, topic or group.")] = "group",
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON envelope.")] = False,
    fail_above: Annotated[
        int | None, typer.Option("--fail-above", help="Exit code 3 above this many messages.")
    ] = None,
) -> None:
    """How far every reader lags, from the monitor's latest snapshot."""
    mill, _ = context.load_mill()
    query = [f"per={per}", *([f"topic={topic}"] if topic else [])]
    query += [f"group={group}" for group in groups or []]
    answer = ask_monitor(mill, f"/api/v1/lag?{'&'.join(query)}")
    rows = [row for row in answer["data"] if not groups or row.get("group") in groups]
    if as_json:
        print_json("lag/1", rows, answer.get("errors", ()))
    else:
        heads = list(rows[0]) if rows else []
        if rows:
            print_table([h.upper() for h in heads], [[_cell(r[h]) for h in heads] for r in rows])
        else:
            say("no group has committed anything yet")
    lags = [row.get("lag") for row in rows]
    if fail_above is not None and any(not isinstance(n, int) or n > fail_above for n in lags):
        raise typer.Exit(Exit.CONDITION)


def _cell(value: object) -> str:
    if value is None:
        return "unknown"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def ask_monitor(mill: Mill, path: str) -> dict[str, Any]:
    """One answer of the monitor's API."""
    part = mill.part("monitor")
    assert part is not None, "every mill has a monitor"
    url = f"http://{part.address}{path}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            value = json.loads(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        text = f"the monitor answered {error.code} {error.reason}"
        raise CommandError(text, Exit.FAILED) from error
    except (OSError, ValueError) as error:
        text = f"the monitor at {part.address} gives no answer: {error}"
        raise CommandError(text, Exit.UNREACHABLE) from error
    if not isinstance(value, dict):
        raise CommandError("the monitor's answer is not understood")
    return value


def _status_of(name: str) -> PartStatus:
    mill, _ = context.load_mill()
    part = mill.part(name)
    if part is None or part.probe is not Probe.HTTP:
        raise CommandError(f"this configuration has no {name}", Exit.NOT_FOUND)
    try:
        return fetch_status(part.host, part.port, TIMEOUT_S)
    except StatusUnavailable as error:
        raise CommandError(f"{name}: {error}", Exit.UNREACHABLE) from error


JsonOption = Annotated[bool, typer.Option("--json", help="One JSON envelope.")]


@collector.command("status")
def collector_status(as_json: JsonOption = False) -> None:
    """Every watched file: size, position, lag."""
    found = _status_of("collector")
    files: Any = found.details.get("files", [])
    if as_json:
        print_json("collector/1", dict(found.details))
        return
    heads = ["path", "topic", "size_bytes", "position", "lag_bytes", "lines", "state", "error"]
    rows = [[_cell_or_dash(entry.get(head)) for head in heads] for entry in files]
    if rows:
        print_table([head.upper() for head in heads], rows, right=frozenset({2, 3, 4, 5}))
    say(f"{len(rows)} files, {found.details.get('lines_total', 'unknown')} lines read")


def _cell_or_dash(value: object) -> str:
    return "-" if value is None else str(value)


@collector.command("check")
def collector_check(as_json: JsonOption = False) -> None:
    """Which files match, what they are, and where reading stands; changes nothing."""
    mill, _ = context.load_mill()
    descriptor = settings_descriptor(encode_settings(collector_settings(mill)))
    done = subprocess.run(
        [sys.executable, "-m", "collector", "--check", "--settings-fd", str(descriptor)],
        pass_fds=[descriptor],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(mill.home.code)},
        check=False,
    )
    os.close(descriptor)
    try:
        found = json.loads(done.stdout)
    except ValueError as error:
        raise CommandError("the collector could not look; see above") from error
    if as_json:
        print_json("collector-check/1", found, found["problems"])
    else:
        _print_check(found)
    if done.returncode:
        raise typer.Exit(done.returncode)


def _print_check(found: dict[str, Any]) -> None:
    heads = ["key", "topic", "inode", "verdict", "state", "size_bytes", "position", "lag_bytes"]
    rows = [[_cell_or_dash(entry.get(head)) for head in heads] for entry in found["files"]]
    if rows:
        print_table([head.upper() for head in heads], rows, right=frozenset({2, 5, 6, 7}))
    broker = found["broker"]
    if not broker["reached"]:
        say(f"positions unknown: {broker['address']} gives no answer: {broker['reason']}")
    for problem in found["problems"]:
        say(f"{problem}")
    say(f"{len(rows)} files match; this collector is {found['instance']}")


@collector.command("once")
def collector_once() -> None:
    """Read everything there is to its present end, with progress, and stop."""
    mill, _ = context.load_mill()
    _become_room(mill, "collector", ["--once"], collector_settings(mill))


@stream.command("status")
def stream_status(as_json: JsonOption = False) -> None:
    """The stream's own account of itself."""
    found = _status_of("stream")
    if as_json:
        print_json("stream/1", dict(found.details))
        return
    rows = [[key, _cell(value)] for key, value in found.details.items()]
    print_table(["WHAT", "VALUE"], rows)


@stream.command("plan")
def stream_plan() -> None:
    """What the metrics compile to."""
    mill, _ = context.load_mill()
    _become_room(mill, "stream", ["--plan"], stream_check_settings(mill))


@stream.command("dry-run")
def stream_dry_run(
    file: Annotated[Path, typer.Argument(help="A file of sample lines.", exists=True)],
    source: Annotated[
        str | None, typer.Option("--from", help="Which input the lines belong to.")
    ] = None,
) -> None:
    """Count a file's lines as the stream would, and print the rows; nothing is stored."""
    mill, _ = context.load_mill()
    arguments = ["--dry-run", str(file.absolute()), *(["--from", source] if source else [])]
    _become_room(mill, "stream", arguments, stream_check_settings(mill))


@stream.command("forget")
def stream_forget(
    metric: Annotated[str, typer.Argument(help="A metric that was taken out of the file.")],
) -> None:
    """Remove what MySQL and Redis hold of a metric that is no longer counted."""
    from sinks.config import SinksSettings
    from sinks.errors import SinkError, SinkUnavailable, UnknownMetric
    from sinks.forget import forget_metric

    mill, _ = context.load_mill()
    if metric in {known.name for known in mill.config.stream.metrics}:
        text = f"{metric} is in {mill.home.config_file}: take it out first"
        raise CommandError(text, Exit.CONDITION)
    settings = SinksSettings.model_validate(sinks_settings(mill, SINK_USER, "stream"))
    rows = 0

    def told(deleted: int) -> None:
        nonlocal rows
        rows += deleted
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{rows:,} rows removed")

    try:
        forget_metric(settings, metric, told)
    except UnknownMetric as error:
        raise CommandError(str(error), Exit.NOT_FOUND) from error
    except SinkUnavailable as error:
        raise CommandError(f"{error}; run it again to go on", Exit.UNREACHABLE) from error
    except SinkError as error:
        raise CommandError(str(error), Exit.CONDITION) from error
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    say(f"{metric} is forgotten ({rows:,} rows)")


stream.command("recount")(recount)


def _become_room(mill: Mill, room: str, arguments: list[str], settings: dict[str, Any]) -> NoReturn:
    """Go on as another room's own command, with the settings it needs."""
    descriptor = settings_descriptor(encode_settings(settings))
    os.environ["PYTHONPATH"] = str(mill.home.code)
    sys.stdout.flush()
    command = [sys.executable, "-m", room, *arguments, "--settings-fd", str(descriptor)]
    os.execv(command[0], command)
