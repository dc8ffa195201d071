"""Command `backup` copies the whole mill into a folder.

Command `restore` makes a data folder from this copy.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli import context
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit, print_json, say, size_text, utc_text

if TYPE_CHECKING:
    from appliance.backup.manifest import Manifest
    from appliance.mill.settings import Mill

LINE_EVERY_S = 5.0
SHOWN_AFTER_S = 1.0

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]


def backup(
    folder: Annotated[
        Path, typer.Argument(help="The folder to write; it must not exist, or must be empty.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Copy the whole mill at one moment, while it runs or when it is stopped.

    The backup has broker logs, file positions, counts, ids and secrets (mode 0600). All parts pause
    for some tens of milliseconds. `restore` makes a mill from the copy that continues exactly from
    that moment. With brokers on several hosts it has what only the main host has.
    """
    from appliance.backup.take import take

    began = time.monotonic()
    with _progress() as report:
        taken = take(_as_it_runs(), folder.absolute(), report)
    found = taken.manifest
    for what in taken.left_out:
        say(f"millrace: left out: {what}")
    if as_json:
        print_json("backup/1", _row(found, folder), taken.left_out)
        return
    say(
        f"{folder}: {_words(found)}; the mill was paused for {found.paused_ms} ms"
        f" ({time.monotonic() - began:.1f} s)"
    )
    if found.main_broker is not None:
        say("it has what only the main host has; the logs are on the brokers of the other hosts")


def restore(
    folder: Annotated[Path, typer.Argument(help="What `backup` has made.")],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="The data folder to make; default: the mill's own."),
    ] = None,
    skip_lost: Annotated[
        bool,
        typer.Option(
            "--skip-lost", help="Several hosts: leave out lines that no broker has any more."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a data folder from a backup, where there is none; it never overwrites anything.

    Every checksum is compared first. `up` then continues: what was counted is not counted again,
    and lines that have been added to the watched files since then are read once. A backup of the
    main host is restored on a new machine, beside the brokers on the other hosts.
    """
    from appliance.backup.main_host_restore import MainHostRestore, mill_of_main_host
    from appliance.backup.restore import read_manifest
    from appliance.backup.restore import restore as make
    from appliance.backup.take import CONFIG

    broker = read_manifest(folder.absolute()).main_broker
    main_host = None
    if broker is None:
        if skip_lost:
            raise CommandError(
                "--skip-lost is for a backup of the main host of a mill on several hosts, and this"
                " backup has the brokers' logs: leave the option out",
                Exit.USAGE,
            )
        mill, _ = context.load_mill()
    else:
        mill, config = mill_of_main_host(context.home(), broker, folder.absolute())
        main_host = MainHostRestore(mill, config, skip_lost=skip_lost)
    target = mill.home.data if data is None else data.absolute()
    began = time.monotonic()
    with _progress() as report:
        found = make(mill, folder.absolute(), target, report, main_host)
    if main_host is not None and main_host.lost_text:
        say(f"millrace: not counted, because no broker has these lines: {main_host.lost_text}")
    if as_json:
        print_json("restore/1", _row(found, target))
        return
    say(
        f"{target}: {_words(found)}, as of {utc_text(found.made_at_ms)}"
        f" ({time.monotonic() - began:.1f} s)"
    )
    if main_host is not None:
        _say_next(mill, written=main_host.writes_config)
        return
    if (folder / CONFIG).read_bytes() != mill.home.config_file.read_bytes():
        say(f"the configuration of the backup is {folder / CONFIG}; the current one is unchanged")


def _say_next(mill: "Mill", *, written: bool) -> None:
    """Say what to do on a main host after its restore."""
    from appliance.checks.hosts import own_name
    from appliance.checks.startup import CheckLevel
    from appliance.mill.parts import main_broker

    own = main_broker(mill.config)
    named = own_name((mill.config.cluster.hosts or {})[own], own)
    if named.level is not CheckLevel.OK:
        say(f"millrace: {named}")
    if written:
        say(f"{mill.home.config_file} is the configuration of the backup")
    say(
        f"broker {own} starts with an empty disk and copies from the other brokers. Type"
        f" `{mill.home.up}`. The stream counts again what came after the backup"
    )


def _as_it_runs() -> "Mill":
    """Return the mill with the configuration with which it was started. The file can have changed
    since."""
    home = context.home()
    if lifecycle.is_running(home):
        home = replace(home, config_file=home.started_config, edited=home.config_file)
    return context.load_mill(home)[0]


def _words(found: "Manifest") -> str:
    text = f"{len(found.files):,} files, {size_text(found.size_bytes)}"
    return f"{text}, {found.rows:,} rows of MySQL" if found.rows else text


def _row(found: "Manifest", folder: Path) -> dict[str, object]:
    return {
        "folder": str(folder),
        "version": found.version,
        "made_at_ms": found.made_at_ms,
        "paused_ms": found.paused_ms,
        "cluster_id": found.cluster_id,
        "brokers": found.brokers,
        "main_broker": found.main_broker,
        "rows": found.rows,
        "files": len(found.files),
        "size_bytes": found.size_bytes,
    }


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows the progress. On a terminal it rewrites one line, elsewhere it
    prints a line from time to time."""
    began = time.monotonic()
    told_s = began
    shown = False
    is_terminal = sys.stderr.isatty()

    def report(what: str, done: int, of: int) -> None:
        nonlocal told_s, shown
        now_s = time.monotonic()
        text = f"{what} {size_text(done)} of {size_text(of)}" if of else what
        if is_terminal and now_s - began >= SHOWN_AFTER_S:
            shown = True
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        elif not is_terminal and now_s - told_s >= LINE_EVERY_S:
            told_s = now_s
            say(f"{text} ({now_s - began:.0f} s)")

    try:
        yield report
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
