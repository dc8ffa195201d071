"""`millrace enrol`: let collectors and brokers on other hosts in; list and revoke collectors."""

import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli import context
from appliance.cli.cluster import (
    JsonOption,
    OutputFormat,
    OutputOption,
    Row,
    TimeoutOption,
    YesOption,
    confirm,
    emit,
    with_cluster,
)
from appliance.cli.enrol_broker import STANDARD_OUTPUT, broker
from appliance.cli.help_lines import group_of_commands
from appliance.cli.options import EnvelopeOption
from appliance.errors import reason_of
from appliance.machine.files import PRIVATE, write_atomically
from appliance.output import CommandError, Exit, counted, say, tell
from appliance.output import out as print_text
from protocol.units import format_moment_ms, parse_duration_ms

if TYPE_CHECKING:
    from appliance.config.model import MillConfig
    from appliance.enrol.join_file import JoinFile
    from appliance.enrol.mill_side import Enrolment
    from protocol.client.admin_types import TopicSpec
    from protocol.client.cluster import Cluster

TIMEOUT_S = 30.0
NAMES_MAX = 5_000

app = group_of_commands("Let other hosts in.")
app.command()(broker)

NameArgument = Annotated[str, typer.Argument(metavar="NAME")]


@app.command()
def collector(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The collector's name, such as web-07.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", help="The trust group: its collectors share a positions topic."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="A topic that it may write; repeatable.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics",
            help="It may write to all topics whose names begin with this and a dot; default: logs.",
        ),
    ] = None,
    expires: Annotated[
        str, typer.Option("--expires", help="How long the join file is valid, such as 24h.")
    ] = "24h",
    again: Annotated[
        bool, typer.Option("--again", help="Another join file for a collector that is enrolled.")
    ] = False,
    names_from: Annotated[
        Path | None, typer.Option("--from", help="A file with names, one a line; needs --out.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The folder for join files, or -: print it; default: this one."),
    ] = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Write a join file, with which a collector on another host joins once."""
    from appliance.enrol import mill_side

    names = _names(name, names_from)
    folder = _folder(name, out, names_from, as_json)
    asked = _asked(group, topic or (), topics or (), expires)
    mill = context.mill_as_it_runs()
    entry = mill_side.entry_of(mill.config, mill.home)
    specs = _topics_of(mill.config)

    async def work(cluster: "Cluster") -> list[Row]:
        await mill_side.refuse_without_super_user(cluster)
        if not again:
            await mill_side.refuse_known(cluster, names)
        rows = []
        async for join in mill_side.enrol_all(cluster, names, asked, entry, specs):
            path = _write(folder, join)
            row = {"name": join.name, "group": join.group, "file": path, "ends_ms": join.ends_ms}
            rows.append(row)
        return rows

    rows = with_cluster(None, timeout, work)
    tell(_said(rows), "enrolments/1", rows, as_json)
    if note := mill_side.note_on(mill.config):
        say(f"note: {note}")


def _write(folder: Path | None, join: "JoinFile") -> str:
    """Write a join file and return its path; print it if there is no folder. Raises
    CommandError."""
    from appliance.enrol.join_file import encode

    if folder is None:
        print_text(encode(join).removesuffix("\n"))
        return STANDARD_OUTPUT
    path = folder / f"{join.name}.join"
    try:
        write_atomically(path, encode(join).encode(), mode=PRIVATE)
    except OSError as error:
        raise CommandError(
            f"{path} cannot be written: {reason_of(error)}. Collector {join.name} is enrolled now,"
            " so type the same command again with --again"
        ) from error
    return str(path)


def _said(rows: list[Row]) -> str:
    ends = format_moment_ms(rows[0]["ends_ms"])
    if rows[0]["file"] == STANDARD_OUTPUT:
        return (
            f"printed the join file of {rows[0]['name']}, valid once until {ends}: let no one else"
            " read it. Copy it to the host and type there `millrace join FILE`"
        )
    if len(rows) > 1:
        folder = Path(rows[0]["file"]).parent
        return (
            f"wrote {counted(len(rows), 'join file')} into {folder}, each valid once until {ends}:"
            " copy each to its host and type there `millrace join FILE`"
        )
    return (
        f"wrote {rows[0]['file']}, valid once until {ends}; copy it to the host and type there\n"
        f"  millrace join {Path(rows[0]['file']).name}\n"
        "  millrace collector run"
    )


def _names(name: str | None, names_from: Path | None) -> list[str]:
    """Return the names to enrol. Raises CommandError."""
    from appliance.enrol.rights import name_fault

    if (name is None) == (names_from is None):
        raise CommandError("expected either NAME or --from FILE", Exit.USAGE)
    found = {"": name or ""} if names_from is None else _listed(names_from)
    for place, one in found.items():
        if fault := name_fault(one):
            raise CommandError(f"{place}{fault}", Exit.USAGE)
    for one, count in Counter(found.values()).items():
        if count > 1:
            raise CommandError(f"found name {one!r} twice, expected each name once", Exit.USAGE)
    return list(found.values())


def _listed(names_from: Path) -> dict[str, str]:
    """Return the names in a file, each under its place as messages begin with it. Raises
    CommandError."""
    try:
        lines = names_from.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise CommandError(
            f"--from {names_from} cannot be read: {reason_of(error)}", Exit.USAGE
        ) from error
    found = {
        f"--from {names_from}, line {number}: ": line.strip()
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.strip().startswith("#")
    }
    if not 0 < len(found) <= NAMES_MAX:
        count = counted(len(found), "name")
        raise CommandError(
            f"--from {names_from}: found {count}, expected 1 to {NAMES_MAX}", Exit.USAGE
        )
    return found


def _folder(
    name: str | None, out: Path | None, names_from: Path | None, as_json: bool
) -> Path | None:
    """Return the folder for the join files; None for standard output. Raises CommandError, also if
    no file can be written into the folder."""
    if out is not None and str(out) == STANDARD_OUTPUT:
        if names_from is not None or as_json:
            raise CommandError(
                f"--out {STANDARD_OUTPUT} prints one join file and nothing else, so it excludes"
                " --from and --json",
                Exit.USAGE,
            )
        return None
    if names_from is not None and out is None:
        raise CommandError("--from needs --out FOLDER, for the join files", Exit.USAGE)
    if out is None and context.in_containers():
        typed = context.home().writes(f"enrol collector {name}", f"{name}.join", "cli")
        raise CommandError(
            "in containers this command sees no folder of this host: add"
            f" --out {STANDARD_OUTPUT}, as in `{typed}`",
            Exit.USAGE,
        )
    folder = Path.cwd() if out is None else out
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            # A file that cannot be written later would leave an enrolled collector without it.
            pass
    except OSError as error:
        raise CommandError(
            f"nothing was enrolled: {folder} cannot be written: {reason_of(error)}"
        ) from error
    return folder


def _asked(
    group: str | None,
    topic: list[str] | tuple[()],
    topics: list[str] | tuple[()],
    expires: str,
) -> "Enrolment":
    """Check the options and return them. Raises CommandError."""
    from appliance.enrol.mill_side import Enrolment
    from appliance.enrol.rights import TopicRight, group_fault, topic_fault
    from broker.controller.credentials import ENROLMENT_MS_MAX
    from protocol.units import format_duration_ms

    if group is not None and (fault := group_fault(group)):
        raise CommandError(fault, Exit.USAGE)
    rights = (
        *(TopicRight(one) for one in topic),
        *(TopicRight(one, is_prefix=True) for one in topics),
    )
    for right in rights:
        if fault := topic_fault(right):
            raise CommandError(fault, Exit.USAGE)
    try:
        valid_ms = parse_duration_ms(expires)
    except ValueError as error:
        raise CommandError(f"--expires: {error}", Exit.USAGE) from error
    if not 0 < valid_ms <= ENROLMENT_MS_MAX:
        longest = format_duration_ms(ENROLMENT_MS_MAX)
        raise CommandError(f"--expires: found {expires}, expected up to {longest}", Exit.USAGE)
    return Enrolment(group, rights or None, valid_ms)


def _topics_of(config: "MillConfig") -> "dict[str, TopicSpec]":
    """Return the topics of the configuration, as the mill makes them."""
    from appliance.mill.settings import topics_for
    from protocol.client.admin_types import TopicSpec

    listed = [one.name for one in config.topics]
    names = dict.fromkeys((*config.collector.topics, *config.stream.topics, *listed))
    return {
        one["name"]: TopicSpec(one["name"], one["partitions"], one["replication"], one["settings"])
        for one in topics_for(config, tuple(names))
    }


@app.command("list")
def list_enrolled(
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """List the enrolled collectors: waiting, joined, or over (the join file has expired)."""
    from appliance.enrol import mill_side

    now_ms = time.time_ns() // 1_000_000
    rows = with_cluster(None, timeout, lambda cluster: mill_side.listed(cluster, now_ms))
    if output is OutputFormat.TABLE and not as_json:
        for row in rows:
            ends_ms = row.pop("ends_ms")
            row["until"] = None if ends_ms is None else format_moment_ms(ends_ms)
    emit(
        "enrolled/1",
        rows,
        output,
        as_json,
        heads=("name", "group", "state", "ends_ms"),
        nothing="no collector is enrolled",
    )


@app.command()
def revoke(
    name: NameArgument,
    yes: YesOption = False,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Remove a collector's user and its ACLs; its connections end."""
    from appliance.enrol import mill_side

    with_cluster(None, timeout, lambda cluster: mill_side.refuse_unknown(cluster, name))
    confirm([f"collector {name} will lose its rights, and its connections will end"], yes)
    with_cluster(None, timeout, lambda cluster: mill_side.revoke(cluster, name))
    text = f"collector {name} is revoked; `millrace enrol collector {name}` lets it in again"
    tell(text, "enrolment/1", {"name": name, "change": "revoked"}, as_json)
