"""`millrace detect`: names the format of an unknown log, and counts it on request."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.cluster import YesOption, confirm
from appliance.cli.options import EnvelopeOption
from appliance.output import (
    CommandError,
    Exit,
    counted,
    out,
    print_json,
    print_table,
    say,
)
from protocol.log import escape
from sinks.number_text import exact_percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from appliance.detect.applying import ConfigEdit
    from appliance.detect.detection import Detection, Multiline
    from stream.config.format_files import Format

CELL_MAX = 40
TEXT_MAX = 160

FilesArgument = Annotated[list[Path] | None, typer.Argument(help="Log files; archives too.")]
ApplyOption = Annotated[
    str | None,
    typer.Option(
        "--apply",
        metavar="NAME",
        help="Write the proposal into the configuration file, under this name.",
    ),
]
UndoOption = Annotated[
    str | None,
    typer.Option("--undo", metavar="NAME", help="Remove what --apply NAME has written."),
]
EncodingOption = Annotated[
    str | None, typer.Option("--encoding", help="The encoding of the file, such as gb18030.")
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Check without Spark and without the database.")
]


def detect(
    files: FilesArgument = None,
    apply: ApplyOption = None,
    undo: UndoOption = None,
    encoding: EncodingOption = None,
    yes: YesOption = False,
    quick: QuickOption = False,
    as_json: EnvelopeOption = False,
) -> None:
    """Name the format of unknown logs, and propose inputs and metrics for them.

    Reads the first 10,000 lines of each file, without Spark. Exit code 3 when no format fits a
    file. `--apply NAME` shows the difference, asks, writes it, and makes `watched/NAME/`; a mill
    that runs takes it over within seconds.
    """
    if undo is not None:
        if files or apply is not None:
            raise CommandError(
                "--undo NAME removes what `--apply NAME` wrote: give no file and no --apply",
                Exit.USAGE,
            )
        _undo(undo, yes, as_json)
        return
    if not files:
        raise CommandError("found no file, expected a log file, or --undo NAME", Exit.USAGE)
    if apply is not None and len(files) != 1:
        raise CommandError(f"found {len(files)} files, expected one with --apply", Exit.USAGE)
    formats = _formats()
    found = [_detected(file, formats, encoding) for file in files]
    change = None
    if apply is not None and found[0].proposal is not None:
        change = _applied(found[0], apply, files[0], yes=yes, quick=quick)
    if as_json:
        _print_json(files, found, change)
    else:
        for at, (file, one) in enumerate(zip(files, found, strict=True)):
            if at:
                out()
            _print(file, one, is_applied=change is not None)
    if change is not None:
        _say_applied(change, files[0])
    if any(one.format is None for one in found):
        raise typer.Exit(Exit.CONDITION)


def _formats() -> "Mapping[str, Format]":
    from appliance.config.load import FORMATS_FOLDER
    from stream.config.format_files import SHIPPED, FormatFault, load_formats

    try:
        return load_formats([SHIPPED, context.home().folder / FORMATS_FOLDER])
    except FormatFault as error:
        raise CommandError(str(error), Exit.USAGE) from error


def _detected(file: Path, formats: "Mapping[str, Format]", encoding: str | None) -> "Detection":
    from appliance.detect.files import detect_file

    if file.is_dir():
        raise CommandError(f"{file} is a folder, expected a log file", Exit.USAGE)
    try:
        return detect_file(file, formats, encoding)
    except FileNotFoundError as error:
        raise CommandError(f"there is no file {file}", Exit.NOT_FOUND) from error
    except ValueError as error:
        raise CommandError(f"--encoding: {error}", Exit.USAGE) from error


def _applied(found: "Detection", name: str, file: Path, *, yes: bool, quick: bool) -> "ConfigEdit":
    """Show a proposal and, after consent, write it into the configuration."""
    from appliance.detect.applying import NotApplied, planned, write

    assert found.proposal is not None
    try:
        change = planned(context.home(), found.proposal, name, file)
        confirm([escape(line) for line in change.difference()], yes)
        write(change, lambda one: None if quick else _check(one))
    except NotApplied as error:
        raise CommandError(str(error), Exit.CONDITION) from error
    return change


def _check(change: "ConfigEdit") -> None:
    """Check the new file with Spark and MySQL, as `config check` does."""
    import hashlib

    from appliance.cli.judging import judge
    from appliance.launch.extras import missing_for
    from appliance.mill.settings import Mill

    if (missing := missing_for("stream")) is not None:
        say(f"expressions were not checked: {missing}")
        return
    digest = hashlib.sha256(change.after).hexdigest()
    containers = context.in_containers()
    mill = Mill.of(change.home, change.loaded.config, in_containers=containers, sha256=digest)
    for note in judge(mill, change.loaded):
        say(note)


def _say_applied(change: "ConfigEdit", file: Path) -> None:
    from appliance.operate.lifecycle import is_running

    home, name = change.home, change.name
    say(f"{name} is written into {home.config_file}")
    folder = home.folder / "watched" / name
    watched = home.folder.resolve() / "watched"
    if not file.resolve().is_relative_to(watched):
        say(f"to count the file: cp {quote(str(file))} {quote(str(folder))}/")
    if not context.in_containers() and not is_running(home):
        say(f"the mill does not run: `{context.typed('up')}` starts it with this file")
    elif keys := _keys_for_a_restart(change):
        command = context.typed("up --apply")
        say(f"{', '.join(keys)} cannot change while the mill runs: `{command}` applies it")
    else:
        say("the running mill uses the changed file within seconds")
    for metric in change.metrics:
        say(f"  {context.typed(f'show {metric}')}")
    say(f"to undo this change: {context.typed(f'detect --undo {name}')}")


def _keys_for_a_restart(change: "ConfigEdit") -> list[str]:
    """Return the changed keys that take effect only after a restart, such as a first metric."""
    from appliance.config.load import load_bytes
    from appliance.supervisor.following import keys_for_a_restart

    before = load_bytes(change.before, change.home.config_file, change.home.folder)
    return keys_for_a_restart(before.config, change.loaded.config)


def _undo(name: str, yes: bool, as_json: bool) -> None:
    from appliance.detect.applying import NotApplied, applied_names, take_back, undone

    home = context.home()
    try:
        change = undone(home, name)
        confirm([escape(line) for line in change.difference()], yes)
        folder_removed = take_back(change)
    except NotApplied as error:
        known = [one for one in applied_names(home) if one != name]
        more = f" (known are {', '.join(known)})" if known else ""
        raise CommandError(f"{error}{more}", Exit.CONDITION) from error
    if as_json:
        data = {"undone": name, "metrics": list(change.metrics), "folder_removed": folder_removed}
        print_json("undone/1", data)
        return
    say(f"{name} is removed from {home.config_file}")
    if not folder_removed and (home.folder / "watched" / name).exists():
        say(f"watched/{name} was kept: it has files, or existed before")
    say("the counts in MySQL and Redis were kept; this removes them:")
    for metric in change.metrics:
        say(f"  {context.typed(f'stream forget {metric}')}")


def _print_json(files: list[Path], found: "list[Detection]", change: "ConfigEdit | None") -> None:
    """Print one JSON object for one file, or a list of objects for several files."""
    from appliance.detect.yaml_text import to_paste

    rows: list[dict[str, Any]] = [
        {
            "file": str(file),
            **one.as_json(),
            "yaml": None if one.proposal is None else to_paste(one.proposal),
            "command": None if one.proposal is None else _command(file, one.proposal.name),
        }
        for file, one in zip(files, found, strict=True)
    ]
    if change is not None:
        rows[0]["applied"] = change.name
    print_json("detection/1", rows[0] if len(rows) == 1 else rows)


def _command(file: Path, name: str) -> str:
    """Return the command that writes a proposal, for a user in the mill's folder."""
    home = context.home().folder
    is_inside = not context.in_containers() and file.is_relative_to(home)
    shown = file.relative_to(home) if is_inside else file
    return context.typed(f"detect {quote(str(shown))} --apply {name}")


def _print(file: Path, found: "Detection", *, is_applied: bool) -> None:
    from appliance.detect.yaml_text import to_paste

    name = escape(str(file))
    if found.format is None:
        out(f"{name}: no format fits: {found.reason}")
        if found.remedy:
            out(f"What to do: {found.remedy}.")
        return
    out(f"{name}: {found.format} ({found.title})")
    second = found.runner_up
    beside = "" if second is None else f"; second is {second[0]} with {exact_percent(second[1])}"
    first = "the first " if found.is_part else ""
    out(f"{exact_percent(found.share)} of {first}{counted(found.lines, 'line')} parse{beside}")
    out()
    _print_rows(found)
    if found.not_parsed_count:
        out()
        out(f"{counted(found.not_parsed_count, 'line')} not parsed, such as")
        for line in found.not_parsed:
            out(f"  line {line.line}: {_cut(line.text, TEXT_MAX)}")
    if found.multiline is not None:
        out()
        out(_multiline_words(found.multiline))
    for note in found.notes:
        out(f"Note: {note}.")
    if found.proposal is not None and not is_applied:
        out()
        command = _command(file, found.proposal.name)
        out(f"# Add this to configs/millrace.yaml, or have it written: {command}")
        out(to_paste(found.proposal))


def _print_rows(found: "Detection") -> None:
    """Print the first rows of the detected table, under the names and types of its columns."""
    columns = found.columns
    heads = [column.name for column in columns]
    types = [column.type for column in columns]
    rows = [[_cut(row.get(name) or "-", CELL_MAX) for name in heads] for row in found.rows]
    print_table(heads, [types, *rows])


def _multiline_words(multiline: "Multiline") -> str:
    places = ", ".join(f"{first} to {last}" for first, last in multiline.places)
    if not multiline.events:
        return "Events of this format can have several lines; the input joins them."
    joins = "the input joins them" if multiline.rule is not None else "no rule joins them yet"
    events = counted(multiline.events, "event")
    return f"{events} of several lines, such as lines {places}: {joins}."


def _cut(text: str, most: int) -> str:
    text = escape(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"
