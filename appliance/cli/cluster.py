"""The common code of the commands about a Kafka cluster: choose the cluster, print rows, ask for
consent.

Importing this module loads no Kafka client, because completion imports it.
"""

import csv
import io
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.progress import waiting
from appliance.errors import NOT_RUNNING
from appliance.mill.home import Home
from appliance.output import CommandError, Exit, out, print_json, print_table, say

if TYPE_CHECKING:
    from appliance.mill.settings import Mill
    from protocol.client.cluster import Cluster
    from protocol.security.cluster_security import ClusterEntry

Row = dict[str, Any]

COMPLETED_MAX = 2_000
"""The largest number of names that are stored for completion. More names would slow completion
down."""


class OutputFormat(StrEnum):
    """The formats in which rows can be printed."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


BootstrapOption = Annotated[
    str | None,
    typer.Option("--bootstrap-server", "-b", help="A cluster other than the mill's: host:port,…"),
]
OutputOption = Annotated[
    OutputFormat, typer.Option("--output", "-O", help="table, json (one object), ndjson or csv.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="The same as --output json.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds to wait for the cluster in all.", min=0.1)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
]

TIMEOUT_S = 10.0
LOOPBACK_TIMEOUT_S = 1.0
"""The time in seconds within which a listener on this machine must accept a connection."""


def asked_cluster(bootstrap: str | None) -> "ClusterEntry":
    """Return the entry to the mill's cluster, unless the command names another cluster.

    Another cluster is never sent the login of `cluster.security`.
    """
    from appliance.mill.entry import cluster_entry
    from protocol.security.cluster_security import ClusterEntry

    if bootstrap:
        return ClusterEntry(bootstrap)
    mill = context.mill_as_it_runs()
    refuse_without_mill(mill)
    return cluster_entry(mill)


def refuse_without_mill(mill: "Mill") -> None:
    """Raise CommandError when the mill does not run and nothing listens on its brokers' ports.

    Without this check the command would wait for brokers that cannot answer. If a broker runs
    without a supervisor, the command continues.
    """
    from appliance.mill.init import ENTRY_PASSWORD
    from appliance.mill.parts import bootstrap_servers
    from appliance.operate.lifecycle import is_running
    from protocol.client.bootstrap import parse_bootstrap_servers

    has_hosts = mill.config.cluster.hosts is not None
    if context.in_containers() and has_hosts and not (mill.home.secrets / ENTRY_PASSWORD).exists():
        raise CommandError(
            "the mill was never started on this host, so this container has no login: run"
            f" `{mill.home.up}`, which also says what to type if this host has not joined",
            Exit.UNREACHABLE,
        )
    is_elsewhere = mill.config.cluster.bootstrap_servers is not None
    if is_elsewhere or context.in_containers() or is_running(mill.home):
        return
    asked = bootstrap_servers(mill.config, mill.placement)
    if not any(_listens(address) for address in parse_bootstrap_servers(asked)):
        raise CommandError(f"no broker answers at {asked}; {NOT_RUNNING}", Exit.UNREACHABLE)


def _listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, LOOPBACK_TIMEOUT_S).close()
    except OSError:
        return False
    return True


@asynccontextmanager
async def connected(asked: "ClusterEntry") -> AsyncIterator["Cluster"]:
    """Open a cluster for a command that shows its own progress once a broker has answered."""
    from appliance.kafka.session import open_cluster

    async with AsyncExitStack() as stack:
        with waiting(f"asking {asked}"):
            cluster = await stack.enter_async_context(open_cluster(asked))
        yield cluster


def with_cluster(
    bootstrap: str | None, timeout: float, work: Callable[["Cluster"], Awaitable[Any]]
) -> Any:
    """Connect to the cluster and run an action on it."""
    from appliance.kafka.session import open_cluster, run

    asked = asked_cluster(bootstrap)

    async def answered() -> Any:
        async with open_cluster(asked, timeout_ms=round(timeout * 1000)) as cluster:
            return await work(cluster)

    try:
        with waiting(f"asking {asked}"):
            return run(answered())
    except CommandError as error:
        if error.code is not Exit.UNREACHABLE or not _is_ours(bootstrap):
            raise
        raise CommandError(context.not_answered(str(error)), error.code) from error


def _is_ours(bootstrap: str | None) -> bool:
    """Return whether the command is for the mill's own brokers, not for another cluster."""
    return not bootstrap and context.mill_as_it_runs().config.cluster.bootstrap_servers is None


def emit(
    schema: str,
    rows: Sequence[Row],
    output: OutputFormat,
    as_json: bool = False,
    *,
    heads: Sequence[str] = (),
    nothing: str = "",
    errors: Sequence[str] = (),
) -> None:
    """Print rows as a table or in the chosen format.

    If there are no rows, print `heads` for CSV, or the text `nothing` instead of a table.
    """
    names = list(rows[0] if rows else heads)
    if as_json or output is OutputFormat.JSON:
        print_json(schema, list(rows), errors)
        return
    if output is OutputFormat.NDJSON:
        for row in rows:
            out(json.dumps(row, ensure_ascii=False))
    elif output is OutputFormat.CSV:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([[_plain(row.get(name)) for name in names] for row in rows])
        out(text.getvalue().rstrip("\n"))
    elif rows:
        right = frozenset(
            place
            for place, name in enumerate(names)
            if any(_is_number(row.get(name)) for row in rows)
        )
        table = [[_shown(row.get(name)) for name in names] for row in rows]
        print_table([name.upper() for name in names], table, right=right)
    elif nothing and not errors:
        say(nothing)
    for error in errors:
        say(f"millrace: {error}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, dict):
        return ",".join(f"{key}={one}" for key, one in value.items()) or "-"
    return str(value)


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def confirm(plan: Sequence[str], yes: bool) -> None:
    """Show what would be changed, and return only after the user's consent.

    Raises CommandError and Abort.
    """
    for line in plan:
        say(line)
    if not yes and ask("go on? [y/N]").lower() not in ("y", "yes"):
        raise typer.Abort


def ask(question: str) -> str:
    """Ask a question, and return the answer without spaces around it. With `--yes` no command asks.

    Raises CommandError without a terminal.
    """
    if not sys.stdin.isatty():
        raise CommandError(
            "nothing was done, because there is no terminal to ask for confirmation: add --yes",
            Exit.USAGE,
        )
    sys.stderr.write(f"{question} ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def settings_of(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `key=value` texts into a mapping. Raises CommandError."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise CommandError(f"found {pair!r}, expected key=value", Exit.USAGE)
        found[name] = value
    return found


def names_file(home: Home, kind: str) -> Path:
    """Return the file with the names of topics or groups, one a line."""
    return home.run / f"{kind}.names"


def remember(kind: str, names: Sequence[str]) -> None:
    """Store names for completion, which asks no broker. Nothing is stored if the mill has no data
    folder yet."""
    path = names_file(context.home(), kind)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        draft.write_text("".join(f"{name}\n" for name in sorted(names)[:COMPLETED_MAX]))
        draft.replace(path)
    except OSError:
        return


def remembered(kind: str, beginning: str) -> list[str]:
    """Return the stored names that begin with this text."""
    try:
        names = names_file(context.home(), kind).read_text().splitlines()
    except OSError:
        return []
    return [name for name in names if name.startswith(beginning)]


def complete_topics(incomplete: str) -> list[str]:
    """Complete topic names for a shell."""
    return remembered("topics", incomplete)


def complete_groups(incomplete: str) -> list[str]:
    """Complete group names for a shell."""
    return remembered("groups", incomplete)
