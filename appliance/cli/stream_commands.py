"""`millrace stream`: its status, its plan, dry runs, forgetting and recounting metrics."""

import json
import subprocess
import time
from base64 import b64encode
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.checks.stream_check import LINES_OF_LOG
from appliance.cli import context
from appliance.cli.help_lines import group_of_commands
from appliance.cli.options import EnvelopeOption
from appliance.cli.progress import progress_line, waiting
from appliance.cli.purge_command import purge
from appliance.cli.recount_command import recount
from appliance.cli.rooms import become_room, cell, room_process, status_of
from appliance.mill.settings import Mill, sinks_settings, stream_check_settings
from appliance.mill.sinks import SINK_USER
from appliance.output import CommandError, Exit, out, print_json, print_table, say, tell
from appliance.supervisor.logs import end_of, last_words

if TYPE_CHECKING:
    from collector.sample import FileSample

DRY_RUN_TIMEOUT_S = 120.0
RECORDS_MAX = 1_000
"""The largest number of records of a file that a dry run reads."""

app = group_of_commands("The stream and its metrics.")
app.command("recount")(recount)
app.command("purge")(purge)


@app.command()
def status(as_json: EnvelopeOption = False) -> None:
    """Show what the stream reports about itself."""
    found = status_of("stream")
    if as_json:
        print_json("stream/1", dict(found.details))
        return
    rows = [[key, cell(value)] for key, value in found.details.items()]
    print_table(["WHAT", "VALUE"], rows)


@app.command()
def plan() -> None:
    """Show the plan to which Spark compiles the metrics."""
    mill, _ = context.load_mill()
    become_room(mill, "stream", ["--plan"], stream_check_settings(mill))


@app.command("dry-run")
def dry_run(
    file: Annotated[Path, typer.Argument(help="A file of sample lines.", exists=True)],
    source: Annotated[
        str | None, typer.Option("--from", help="The input of stream.from for the lines.")
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", help="Read the file as the collector's input with this topic."),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", help="Seconds after which a slow pattern is stopped.", min=1),
    ] = DRY_RUN_TIMEOUT_S,
) -> None:
    """Count a file's last lines as the mill would, and print the rows; nothing is stored.

    The file is read as the collector's input would read it: encoding, archive, events, line ends.
    """
    mill, _ = context.load_mill()
    given = _given(mill, Path(normpath(Path.cwd() / file)), source, topic)
    began = time.monotonic()
    with (
        waiting("Spark tries the lines"),
        room_process(
            mill,
            "stream",
            ["--dry-run"],
            stream_check_settings(mill),
            cwd=mill.home.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        try:
            said, log = process.communicate(json.dumps(given).encode(), timeout)
        except subprocess.TimeoutExpired as error:
            raise CommandError(
                f"Spark did not answer within {timeout:.0f} s: an expression or a pattern of "
                "stream.from takes too long on one of these lines; try fewer lines, or use "
                "possessive quantifiers in the pattern",
                Exit.TIMEOUT,
            ) from error
    if process.returncode:
        told = log.decode(errors="replace")
        if process.returncode == Exit.USAGE and (words := last_words(told.splitlines())):
            raise CommandError(f"the dry run failed: {words}", Exit.USAGE)
        end = end_of(told, LINES_OF_LOG)
        raise CommandError(f"the dry run failed:\n{end}", Exit.USAGE)
    out(said.decode(errors="replace").rstrip("\n"))
    say(f"nothing was stored ({time.monotonic() - began:.1f} s)")


def _given(
    mill: Mill, path: Path, source: str | None, topic: str | None
) -> list[dict[str, object]]:
    """Return the records of a file for the stream, and report which lines are left out."""
    from appliance.traffic.dry_run import DryRunFault, samples_of
    from collector.sample import UnreadableFile

    try:
        samples = samples_of(mill, path, source, topic, RECORDS_MAX)
    except (DryRunFault, UnreadableFile) as error:
        raise CommandError(f"the dry run failed: {error}", Exit.USAGE) from error
    for _, sample in samples:
        _tell_rest(sample)
    return [
        {
            "name": name,
            "key": sample.key.encode(errors="surrogateescape").decode(errors="backslashreplace"),
            "records": [b64encode(record).decode() for record in sample.records],
        }
        for name, sample in samples
    ]


def _tell_rest(sample: "FileSample") -> None:
    """Report which lines of a file are not among the records."""
    if sample.count > len(sample.records):
        say(f"only the last {len(sample.records):,} of {sample.count:,} lines are tried")
    if sample.dead_letters:
        say(f"{sample.dead_letters:,} lines would go to the dead letters")
    if sample.open_bytes:
        say(
            f"the last {sample.open_bytes:,} bytes are not tried, because they have no line end."
            " The collector would wait for the line end, unless the input has `flush_after`"
        )


@app.command()
def forget(
    metric: Annotated[str, typer.Argument(help="A metric that was taken out of the file.")],
    as_json: EnvelopeOption = False,
) -> None:
    """Delete all data of a metric that is no longer counted, in MySQL and Redis."""
    from sinks.config import SinksSettings
    from sinks.errors import SinkError, SinkUnavailable, UnknownMetric
    from sinks.forget import forget_metric

    mill, _ = context.load_mill()
    if metric in {known.name for known in mill.config.stream.metrics}:
        text = f"{mill.home.config_file} still has the metric {metric}: take it out first"
        raise CommandError(text, Exit.CONDITION)
    settings = SinksSettings.model_validate(sinks_settings(mill, SINK_USER, "stream"))
    rows = 0

    def told(deleted: int) -> None:
        nonlocal rows
        rows += deleted
        line.show(f"{rows:,} rows removed")

    try:
        with progress_line() as line:
            forget_metric(settings, metric, told)
    except UnknownMetric as error:
        raise CommandError(str(error), Exit.NOT_FOUND) from error
    except SinkUnavailable as error:
        message = f"{error}; run the command again to continue"
        raise CommandError(message, Exit.UNREACHABLE) from error
    except SinkError as error:
        raise CommandError(str(error), Exit.CONDITION) from error
    data = {"metric": metric, "rows": rows}
    tell(f"{metric} is forgotten ({rows:,} rows)", "forgotten/1", data, as_json)
