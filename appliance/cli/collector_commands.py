"""`millrace collector`: watched files, positions, dead letters, and a one-shot run."""

import asyncio
import json
import signal
import subprocess
from typing import Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.cluster import refuse_without_mill
from appliance.cli.collector_alone import run_alone
from appliance.cli.dead_letters_command import dead_letters
from appliance.cli.help_lines import group_of_commands
from appliance.cli.options import EnvelopeOption
from appliance.cli.progress import waiting
from appliance.cli.rooms import cell, cell_or_dash, room_process, status_of
from appliance.mill.settings import Mill, collector_settings
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit, counted, print_json, print_table, say
from appliance.supervisor.control import NoSupervisor
from protocol.status import StatusUnavailable, fetch_status

REACH_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_S = 2.0
ALTERED = {
    "dead_lettered": "lines became dead letters since the collector's start:"
    " `./millrace collector dead-letters` shows them",
    "events_cut": "events were ended by a limit of `multiline`",
    "fields_not_put": "lines without the extra fields, because they are not JSON objects",
    "invalid_keep": "lines with bytes that are not valid text, kept",
    "invalid_replace": "lines with bytes that are not valid text, replaced",
    "nul_bytes_skipped": "NUL bytes were skipped",
    "overlong_cut": "lines above max_line_bytes were cut",
    "overlong_piece": "records are pieces of lines above max_line_bytes",
}
"""The collector's counters of lines that were not sent unchanged, each with its text."""

SAME_MAX = 10
"""The largest number of files that are named as having the content of other files."""

OF_POSITIONS = ("verdict", "position", "lag_bytes", "lines")
"""The columns that need a file's stored position."""

app = group_of_commands("The collector and its files.")
app.command("dead-letters")(dead_letters)


@app.command()
def status(as_json: EnvelopeOption = False) -> None:
    """Show every watched file: its kind, how it is identified, its size, position and lag."""
    found = status_of("collector")
    files: Any = found.details.get("files", [])
    if as_json:
        print_json("collector/1", dict(found.details))
        return
    heads = [
        "path", "topic", "verdict", "known_by", "size_bytes", "position", "lag_bytes", "lines",
        "state", "error",
    ]  # fmt: skip
    rows = [[cell_or_dash(_cell(entry, head)) for head in heads] for entry in files]
    if rows:
        print_table([head.upper() for head in heads], rows, right=frozenset({4, 5, 6, 7}))
    lines: Any = found.details.get("lines_total")
    read = "unknown" if lines is None else counted(lines, "line")
    say(f"{counted(len(rows), 'file')}, {read} read")
    for problem in found.problems:
        say(f"problem: {problem.text}")
    lost: Any = found.details.get("lost_possible", [])
    for entry in lost:
        say(
            f"lines of {entry['path']} may be lost ({entry['verdict']}): the collector has read"
            f" {entry['position']} of the {entry['size_bytes']} bytes that it has seen"
        )
    for entry in [one for one in files if one.get("same_as")][:SAME_MAX]:
        say(
            f"{entry['path']} has the same bytes as {entry['same_as']}, and the lines of both files"
            " are counted: if one is a copy, move it elsewhere or add it to `exclude`"
        )
    counters: Any = found.details.get("counters", {})
    for name, count in counters.items():
        if name in ALTERED and count:
            say(f"{count} {ALTERED[name]}")


def _cell(entry: dict[str, Any], head: str) -> object:
    return known_by(entry.get("evidence")) if head == "known_by" else entry.get(head)


def known_by(evidence: dict[str, Any] | None) -> str | None:
    """Return in a few words how a file is recognised."""
    if evidence is None:
        return None
    words = [f"inode {evidence['inode']}"]
    if evidence["head_bytes"]:
        words.append(f"head {evidence['head_bytes']} B")
        words.append(f"marker {evidence['marker_bytes']} B")
    if evidence["head_bytes"] and evidence["checksum"]:
        words.append("checksum")
    return ", ".join(words)


app.command("run")(run_alone)


@app.command()
def check(as_json: EnvelopeOption = False) -> None:
    """Show which files match and where reading continues; changes nothing.

    Exit code 5 when no broker answers, so that the stored positions are unknown.
    """
    mill, _ = context.load_mill()
    settings = collector_settings(mill)
    if context.in_containers():
        # The collector's name is stored in the collector's own volume, so the collector must be
        # asked.
        settings["section"]["instance"] = settings["section"]["instance"] or _instance(mill)
    with (
        waiting("examining the files"),
        room_process(mill, "collector", ["--check"], settings, stdout=subprocess.PIPE) as process,
    ):
        said, _ = process.communicate()
    try:
        found = json.loads(said)
    except ValueError as error:
        raise CommandError(
            "the collector could not examine the files; the lines above show why"
        ) from error
    if not found["broker"]["reached"]:
        # Without the stored positions every file would look new, so remove the columns that need
        # them.
        for entry in found["files"]:
            entry.update(dict.fromkeys(OF_POSITIONS))
    if as_json:
        print_json("collector-check/1", found, found["problems"])
    else:
        _print_check(found)
    if process.returncode:
        raise typer.Exit(process.returncode)
    if not found["broker"]["reached"]:
        raise typer.Exit(Exit.UNREACHABLE)


def _instance(mill: Mill) -> str | None:
    part = mill.part("collector")
    if part is None:
        return None
    try:
        found = fetch_status(part.host, part.port, STATUS_TIMEOUT_S).details.get("instance")
    except StatusUnavailable as error:
        raise CommandError(
            "only the collector knows which positions are its own, and it does not answer:"
            f" {error}",
            Exit.UNREACHABLE,
        ) from error
    return str(found) if found else None


def _print_check(found: dict[str, Any]) -> None:
    heads = [
        "key", "topic", "content", "verdict", "known_by", "state", "size_bytes", "position",
        "lag_bytes",
    ]  # fmt: skip
    broker = found["broker"]
    unknown = () if broker["reached"] else OF_POSITIONS
    rows = [
        [(cell if head in unknown else cell_or_dash)(_cell(entry, head)) for head in heads]
        for entry in found["files"]
    ]
    if rows:
        print_table([head.upper() for head in heads], rows, right=frozenset({6, 7, 8}))
    if not broker["reached"]:
        text = (
            f"the stored positions are unknown, because {broker['address']} gives no answer:"
            f" {broker['reason']}"
        )
        say(context.not_answered(text))
    for problem in found["problems"]:
        say(f"{problem}")
    name = found["instance"]
    named = f"is {name}" if name else "has no name and no stored positions yet"
    match = "1 file matches" if len(rows) == 1 else f"{len(rows)} files match"
    say(f"{match}; this collector {named}")


@app.command()
def once() -> None:
    """Read all files to their present end, with progress, and stop.

    Use it for a mill whose collector does not run. The collector later continues where this command
    stopped.
    """
    mill, _ = context.load_mill()
    _refuse_beside_a_collector(mill, "to read them once")
    _refuse_without_brokers(mill)
    with room_process(mill, "collector", ["--once"], collector_settings(mill)) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # The collector stores what it has sent, and ends.
            process.send_signal(signal.SIGINT)
            process.wait()
            raise CommandError(
                "stopped before all files were read; the next run continues where this one stopped",
                Exit.INTERRUPTED,
            ) from None
    if code:
        raise CommandError(
            f"the collector has not read everything; it ended with exit code {code}",
            Exit(code) if code in set(Exit) else Exit.FAILED,
        )


def _refuse_beside_a_collector(mill: Mill, purpose: str) -> None:
    try:
        parts = lifecycle.snapshot(mill.home)["parts"]
    except NoSupervisor:
        return
    if any(entry["part"] == "collector" and entry["pid"] is not None for entry in parts):
        raise CommandError(
            f"the mill's collector is running and already reads these files; {purpose}, run "
            "`./millrace stop collector`, then this command, then `./millrace start collector`",
            Exit.CONDITION,
        )


def _refuse_without_brokers(mill: Mill) -> None:
    refuse_without_mill(mill)
    from appliance.mill.entry import cluster_entry
    from protocol.client.errors import ClientError
    from protocol.client.security import cluster_of

    asked = cluster_entry(mill)

    async def reach() -> None:
        cluster = cluster_of(asked, client_id="millrace-collector-once")
        try:
            await cluster.start(REACH_TIMEOUT_MS)
        finally:
            await cluster.close()

    try:
        with waiting(f"asking {asked}"):
            asyncio.run(reach())
    except ClientError as error:
        raise CommandError(
            f"nothing was read, because no broker answers: {error}; start the mill with"
            " `./millrace up`, then stop its collector with `./millrace stop collector`",
            Exit.UNREACHABLE,
        ) from error


FileArgument = Annotated[
    str, typer.Argument(help="The file's path, the end of the path, or a glob.")
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute", help="Do it; without this option it is only shown.")
]


@app.command()
def forget(
    file: FileArgument, execute: ExecuteOption = False, as_json: EnvelopeOption = False
) -> None:
    """Forget what is stored about deleted files; without --execute it only shows them.

    An archive of such a file that appears later is read as a new file.
    """
    _amend("forget", file, execute, as_json)


@app.command()
def again(
    file: FileArgument, execute: ExecuteOption = False, as_json: EnvelopeOption = False
) -> None:
    """Read files from their start once more; without --execute it only shows them.

    All their lines that were counted are counted a second time.
    """
    _amend("again", file, execute, as_json)


def _amend(what: str, file: str, execute: bool, as_json: bool) -> None:
    mill, _ = context.load_mill()
    if context.in_containers():
        raise CommandError(
            "this command does not work in containers: it needs a collector that runs on this "
            "machine",
            Exit.CONDITION,
        )
    if execute:
        _refuse_beside_a_collector(mill, "to change its stored positions")
    refuse_without_mill(mill)
    arguments = [f"--{what}", file, *(["--execute"] if execute else [])]
    settings = collector_settings(mill)
    with (
        waiting("examining the files"),
        room_process(mill, "collector", arguments, settings, stdout=subprocess.PIPE) as process,
    ):
        said, _ = process.communicate()
    try:
        found = json.loads(said)
    except ValueError as error:
        raise CommandError(
            "the collector could not examine the files; the lines above show why"
        ) from error
    if found["reason"] is not None:
        raise CommandError(f"nothing was changed: {found['reason']}", Exit.UNREACHABLE)
    files = found["files"]
    if not files:
        raise CommandError(
            f"the collector knows no file {file!r}; `millrace collector status` lists the files",
            Exit.NOT_FOUND,
        )
    if as_json:
        print_json(f"collector-{what}/1", found)
    else:
        heads = ["path", "state", "topic", "position", "lines", "refusal"]
        rows = [[cell_or_dash(entry[head]) for head in heads] for entry in files]
        print_table([head.upper() for head in heads], rows, right=frozenset({3, 4}))
    meant = [entry for entry in files if entry["refusal"] is None]
    lines = sum(entry["lines"] for entry in meant)
    tense = "are" if execute else "would be"
    if what == "forget":
        say(f"{len(meant)} of {counted(len(files), 'file')} {tense} forgotten")
    else:
        say(
            f"{len(meant)} of {counted(len(files), 'file')} {tense} read from the start:"
            f" {lines} lines that were counted {tense} counted a second time"
        )
    if meant and not execute:
        say("nothing was changed; add --execute to do it")
    if not meant:
        raise typer.Exit(Exit.CONDITION)
