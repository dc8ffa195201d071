"""`millrace upgrade`: run the installed version, one part after the other; then finalise it."""

import math
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.cluster import (
    TIMEOUT_S,
    BootstrapOption,
    DryRunOption,
    TimeoutOption,
    YesOption,
    confirm,
    with_cluster,
)
from appliance.cli.help_lines import group_of_commands
from appliance.cli.hosts_left import HostsRound, controller_of, hosts_round
from appliance.cli.options import EnvelopeOption
from appliance.mill.home import CODE
from appliance.mill.parts import BROKER_PREFIX
from appliance.mill.source import commit_of
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit, say, tell
from protocol.status import VERSION

if TYPE_CHECKING:
    from appliance.kafka.levels import BrokerLevels
    from protocol.client.cluster import Cluster
    from protocol.client.feature_admin import Features
    from protocol.errors import ApiError

OTHERS = ("collector", "stream", "monitor")
"""The parts that restart after the brokers, in this order."""

NO_WAY_BACK = (
    "After that, brokers of an earlier version cannot join, and only a backup brings you back."
)

app = group_of_commands(
    "Restart the parts one after the other, so that they run the installed version."
)


@app.callback(invoke_without_command=True, no_args_is_help=False)
def upgrade(
    ctx: typer.Context,
    dry_run: DryRunOption = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", help="Seconds to wait for the brokers. Default: no limit."),
    ] = None,
    as_json: EnvelopeOption = False,
) -> None:
    """Restart the parts one after the other, so that they run the installed version.

    Brokers still write what the earlier version can read, until `upgrade finalize`.
    """
    if ctx.invoked_subcommand is not None:
        return
    names = _parts()
    brokers = [name for name in names if name.startswith(BROKER_PREFIX)]
    if not brokers:
        restart = "docker compose up -d" if context.in_containers() else "./millrace restart"
        raise CommandError(
            "this mill uses another cluster, so there are no brokers to upgrade: "
            f"`{restart} PART` restarts a part",
            Exit.CONDITION,
        )
    level = _checked(as_json)
    others = [name for name in OTHERS if name in names]
    mill = context.mill_as_it_runs()
    hosts = hosts_round(mill)
    if dry_run:
        words = [f"would restart, in this order: {', '.join([*brokers, *others])}"]
        words += [] if hosts is None else [hosts.line("./millrace upgrade", controller_of(mill))]
        tell("\n".join(words), "upgrade/1", _data(level, 0.0, [], hosts), as_json)
        return
    for text in hosts.notes if hosts is not None else ():
        say(f"millrace: {text}")
    began_s = time.monotonic()
    alone = len(brokers) == 1 and hosts is None
    rows = _restart(brokers, others, math.inf if timeout is None else timeout, alone=alone)
    seconds = round(time.monotonic() - began_s, 1)
    words = [
        f"{', '.join(row['part'] for row in rows)}: run {_installed()} ({seconds} s)",
        *_next_steps(),
        *([] if hosts is None else [hosts.line("./millrace upgrade", controller_of(mill))]),
    ]
    tell("\n".join(words), "upgrade/1", _data(level, seconds, rows, hosts), as_json)


def _parts() -> list[str]:
    """Return the parts of the mill that runs. In containers those of the configuration run."""
    if context.in_containers():
        return [one.name for one in context.mill_as_it_runs().parts]
    return [one["part"] for one in lifecycle.snapshot(context.home())["parts"]]


def _restart(
    brokers: list[str], others: list[str], timeout: float, *, alone: bool
) -> list[dict[str, Any]]:
    """Restart the brokers, then the other parts. With `alone` the mill has one broker, so no other
    broker can serve clients while it restarts."""
    # `upgrade finalize` must load in a container without Spark, which these commands need.
    from appliance.cli.mill_commands import UP_TIMEOUT_S, restart_in_turns, start_part

    rows = [start_part(brokers[0], UP_TIMEOUT_S)] if alone else restart_in_turns([], timeout)
    try:
        rows += [start_part(name, UP_TIMEOUT_S) for name in others]
    except KeyboardInterrupt:
        say(f"\nthe brokers run {_installed()}; `./millrace restart PART` restarts the others")
        raise
    return rows


def _installed() -> str:
    commit = commit_of(CODE)
    return VERSION if commit is None else f"{VERSION} ({commit})"


def _checked(as_json: bool) -> int | None:
    """Show the levels of the brokers and of the installed version. Return the cluster's level.

    Raises CommandError if the installed version cannot run at that level.
    """
    from appliance.kafka.levels import broker_levels, finalised_level
    from broker.metadata.features import METADATA_VERSION, SUPPORTED, UNNAMED, named

    found: list[BrokerLevels] = with_cluster(None, TIMEOUT_S, broker_levels)
    level = finalised_level(found)
    if not as_json:
        for one in found:
            what = one.error or f"supports {METADATA_VERSION} {one.supported}"
            say(f"broker-{one.node_id}: {what}")
        shown = named(UNNAMED.newest if level is None else level)
        say(f"installed: {_installed()}, supports {METADATA_VERSION} {SUPPORTED}")
        say(f"the cluster is at {METADATA_VERSION} {shown}")
    if level is not None and level not in SUPPORTED:
        way = (
            "install a later version, or restore a backup"
            if level > SUPPORTED.newest
            else "upgrade over the version between them first"
        )
        raise CommandError(
            f"nothing was restarted: the installed version supports {METADATA_VERSION} "
            f"{SUPPORTED}, and the cluster is at {named(level)}: {way}",
            Exit.CONDITION,
        )
    return level


def _data(
    level: int | None, seconds: float, rows: list[dict[str, Any]], hosts: HostsRound | None
) -> dict[str, Any]:
    from broker.metadata.features import SUPPORTED

    return {
        "version": VERSION,
        "commit": commit_of(CODE),
        "finalised": level,
        "supported": {"oldest": SUPPORTED.oldest, "newest": SUPPORTED.newest},
        "elapsed_s": seconds,
        "parts": rows,
        **({} if hosts is None else {"other_hosts": hosts.rows}),
    }


def _next_steps() -> list[str]:
    return [
        "The supervisor itself changes with the next `./millrace down` and `./millrace up`.",
        "To go back, install the earlier version and run `./millrace restart --rolling`.",
        "When the new version has worked well for some days, run `./millrace upgrade finalize`.",
    ]


@app.command()
def finalize(
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    as_json: EnvelopeOption = False,
) -> None:
    """Let the brokers write what earlier versions cannot read; after that you cannot go back."""
    from broker.metadata.features import METADATA_LEVEL, METADATA_VERSION, named
    from protocol.client.feature_admin import describe_features

    found: Features = with_cluster(bootstrap, timeout, describe_features)
    level = found.finalised.get(METADATA_VERSION)
    if level is None:
        raise CommandError(
            f"the broker reports no {METADATA_VERSION}, so it runs millrace 1.0.0-rc1, or is not "
            "a broker of Millrace: run `./millrace upgrade` first",
            Exit.CONDITION,
        )
    data = {"from": level, "to": max(level, METADATA_LEVEL)}
    if level >= METADATA_LEVEL:
        words = f"the cluster is at {METADATA_VERSION} {named(level)} already"
        tell(words, "finalize/1", data, as_json)
        return
    words = f"{METADATA_VERSION} from {named(level)} to {named(METADATA_LEVEL)}"
    _raise_level(bootstrap, timeout, METADATA_LEVEL, validate_only=True)
    if dry_run:
        tell(f"every broker can follow: would raise {words}", "finalize/1", data, as_json)
        return
    confirm([f"raises {words}", NO_WAY_BACK], yes)
    try:
        _raise_level(bootstrap, timeout, METADATA_LEVEL, validate_only=False)
    except KeyboardInterrupt:
        say(
            f"\n{METADATA_VERSION} can have changed: `./millrace upgrade finalize --dry-run` "
            "shows it"
        )
        raise
    tell(f"raised {words}", "finalize/1", data, as_json)


def _raise_level(bootstrap: str | None, timeout: float, level: int, *, validate_only: bool) -> None:
    """Request a level of the metadata log. Raises CommandError with the controller's reason."""
    from broker.metadata.features import METADATA_VERSION
    from protocol.client.feature_admin import UpgradeType, update_features

    async def work(cluster: "Cluster") -> "dict[str, ApiError | None]":
        return await update_features(
            cluster, {METADATA_VERSION: level}, UpgradeType.UPGRADE, validate_only=validate_only
        )

    error = with_cluster(bootstrap, timeout, work)[METADATA_VERSION]
    if error is not None:
        text = error.message or error.code.name
        raise CommandError(f"nothing was changed: {text}", Exit.CONDITION)
