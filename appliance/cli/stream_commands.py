"""`millrace stream`: its metrics, tried, forgotten and counted again."""

import subprocess
import time
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli import context
from appliance.cli.help_lines import group_of_commands
from appliance.cli.options import EnvelopeOption
from appliance.cli.output import CommandError, Exit, out, print_json, print_table, say, tell
from appliance.cli.progress import progress_line, waiting
from appliance.cli.purge_command import purge
from appliance.cli.recount_command import recount
from appliance.cli.rooms import become_room, cell, room_process, status_of
from appliance.settings import SINK_USER, sinks_settings, stream_check_settings
from appliance.stream_check import LINES_OF_LOG
from appliance.supervisor.logs import end_of, last_words

DRY_RUN_TIMEOUT_S = 120.0

app = group_of_commands("The stream and its metrics.")
app.command("recount")(recount)
app.command("purge")(purge)


@app.command()
def status(as_json: EnvelopeOption = False) -> None:
    """The stream's own account of itself."""
    found = status_of("stream")
    if as_json:
        print_json("stream/1", dict(found.details))
        return
    rows = [[key, cell(value)] for key, value in found.details.items()]
    print_table(["WHAT", "VALUE"], rows)


@app.command()
def plan() -> None:
    """What the metrics compile to."""
    mill, _ = context.load_mill()
    become_room(mill, "stream", ["--plan"], stream_check_settings(mill))


@app.command("dry-run")
def dry_run(
    file: Annotated[Path, typer.Argument(help="A file of sample lines.", exists=True)],
    source: Annotated[
        str | None, typer.Option("--from", help="Which input the lines belong to.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds, after which a pattern runs away.", min=1)
    ] = DRY_RUN_TIMEOUT_S,
) -> None:
    """Count a file's last lines as the stream would, and print the rows; nothing is stored."""
    from collector.identity.discovery import record_key
    from stream.dry_run import LINES_MAX

    mill, _ = context.load_mill()
    name = source if source is None else ["--from", source]
    path = file.resolve()
    # The stream is given the file under the key that its records would have.
    key = record_key(str(path), str(mill.home.folder.resolve()))
    cwd = Path(str(path).removesuffix(key)) if not key.startswith("/") else mill.home.folder
    lines = _count_lines(path)
    if lines > LINES_MAX:
        say(f"of {lines:,} lines the last {LINES_MAX:,} are tried")
    began = time.monotonic()
    with (
        waiting("Spark tries the lines"),
        room_process(
            mill,
            "stream",
            ["--dry-run", key, *(name or [])],
            stream_check_settings(mill),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        try:
            said, log = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise CommandError(
                f"no answer within {timeout:.0f} s: an expression or a pattern of stream.from takes"
                " too long on one of these lines; try fewer lines, or possessive repeats",
                Exit.TIMEOUT,
            ) from error
    if process.returncode:
        told = log.decode(errors="replace")
        if process.returncode == Exit.USAGE and (words := last_words(told.splitlines())):
            raise CommandError(f"the lines could not be tried: {words}", Exit.USAGE)
        end = end_of(told, LINES_OF_LOG)
        raise CommandError(f"the lines could not be tried:\n{end}", Exit.USAGE)
    out(said.decode(errors="replace").rstrip("\n"))
    say(f"nothing was stored ({time.monotonic() - began:.1f} s)")


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


@app.command()
def forget(
    metric: Annotated[str, typer.Argument(help="A metric that was taken out of the file.")],
    as_json: EnvelopeOption = False,
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
        line.show(f"{rows:,} rows removed")

    try:
        with progress_line() as line:
            forget_metric(settings, metric, told)
    except UnknownMetric as error:
        raise CommandError(str(error), Exit.NOT_FOUND) from error
    except SinkUnavailable as error:
        raise CommandError(f"{error}; run it again to go on", Exit.UNREACHABLE) from error
    except SinkError as error:
        raise CommandError(str(error), Exit.CONDITION) from error
    data = {"metric": metric, "rows": rows}
    tell(f"{metric} is forgotten ({rows:,} rows)", "forgotten/1", data, as_json)
