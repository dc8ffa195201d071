"""`millrace broker add`: make a broker that has started a full member of the cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli import context
from appliance.cli.broker_removal import BrokerArgument
from appliance.cli.cluster import (
    TIMEOUT_S,
    BootstrapOption,
    DryRunOption,
    JsonOption,
    OutputFormat,
    OutputOption,
    TimeoutOption,
    YesOption,
    confirm,
    with_cluster,
)
from appliance.cli.membership_view import show_steps, step_progress
from appliance.cli.other_hosts import how_to_start, own_hosts, runs_elsewhere
from appliance.cli.progress import progress_line
from appliance.config.model import BROKER_ID_MAX
from appliance.mill.parts import BROKER_PREFIX, broker_ids
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit, say

if TYPE_CHECKING:
    from appliance.kafka.addition import AdditionState
    from protocol.client.cluster import Cluster

START_TIMEOUT_S = 600.0
"""The time in seconds within which a broker of the mill gets the cluster's metadata."""


def add(
    broker: BrokerArgument,
    voter: Annotated[
        bool, typer.Option("--voter", help="It also votes in the metadata quorum.")
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Take a broker that has started into the cluster, after asking; nothing moves to it yet.

    The same command continues where it was interrupted. Ctrl-C ends only the following.
    """
    from appliance.kafka import addition

    is_ours = bootstrap is None and not context.in_containers()
    if is_ours:
        _refuse_unlisted(broker)
    state = with_cluster(bootstrap, timeout, lambda cluster: addition.look(cluster, broker))
    if not is_ours and broker not in state.registered:
        raise CommandError(
            f"broker {broker} is not registered; registered are {_listed(state)}. Start it with an "
            "empty folder and with `joins: true` in its settings, then run the same command again",
            Exit.NOT_FOUND,
        )
    steps = addition.steps_to_add(state, votes=voter)
    show_steps(
        steps, "broker-add/1", output, as_json, nothing=f"broker {broker} is a member already"
    )
    if dry_run:
        say("\n".join([*_remarks(state, voter), "nothing was changed"]))
        return
    if steps:
        confirm(_remarks(state, voter), yes)
        try:
            elsewhere = runs_elsewhere(broker, bootstrap)
            if elsewhere is not None and broker not in state.registered:
                say(how_to_start(broker, elsewhere, "the host of the new broker"))
            is_here = is_ours and elsewhere is None
            _proceed(broker, voter, is_here, bootstrap, timeout)
        except KeyboardInterrupt:
            say("\nthe addition is not complete; run the same command again to continue it")
            raise
    say(
        f"broker {broker} is in the cluster. It gets replicas of new topics; `./millrace reassign "
        f"generate --add {broker}` plans its share of the others"
    )


def _refuse_unlisted(broker: int) -> None:
    """Raise CommandError unless the mill runs with this broker among its parts."""
    home = context.home()
    config = context.mill_as_it_runs().config
    name = f"{BROKER_PREFIX}{broker}"
    if not lifecycle.is_running(home):
        return
    hosts = own_hosts()
    if any(entry["part"] == name for entry in lifecycle.snapshot(home)["parts"]):
        return
    if hosts is not None and broker in hosts:
        return
    ids = broker_ids(config)
    if not 1 <= broker <= BROKER_ID_MAX:
        raise CommandError(
            f"found broker {broker}, expected an id from 1 to {BROKER_ID_MAX}", Exit.USAGE
        )
    if len(ids) == 1:
        raise CommandError(
            "this mill has one broker: `./millrace cluster grow` makes three of it", Exit.CONDITION
        )
    wanted = ", ".join(map(str, sorted({*ids, broker})))
    lines, where = f"`brokers: [{wanted}]`", f"{home.config_file}, run `./millrace up --apply`"
    if hosts is not None:
        lines += f", and the host of broker {broker} in `hosts`,"
        where = "the file of each host, run `./millrace up --apply` there"
    raise CommandError(
        f"the mill does not run broker {broker}. Write {lines} below `cluster:` in {where}, and"
        " then run the same command again",
        Exit.CONDITION,
    )


def _remarks(state: "AdditionState", votes: bool) -> list[str]:
    """Return the sentences before the question."""
    count = len(state.voters) + 1
    if not votes or state.node_id in state.voters or count % 2:
        return []
    return [
        f"{count} voters tolerate no more failures than {count - 1} voters: make the number of "
        "voters odd"
    ]


def _listed(state: "AdditionState") -> str:
    return ", ".join(map(str, sorted(state.registered)))


def _proceed(
    broker: int, votes: bool, is_here: bool, bootstrap: str | None, timeout: float
) -> None:
    from appliance.kafka import addition

    if is_here and lifecycle.is_running(context.home()):
        wait_healthy(broker)
    with step_progress() as progress:

        async def work(cluster: "Cluster") -> None:
            await addition.add(
                cluster, broker, votes=votes, on_step=progress.begin, on_wait=progress.wait
            )

        with_cluster(bootstrap, timeout, work)


def wait_healthy(broker: int) -> None:
    """Wait until the supervisor finds the broker healthy. Raises CommandError with its reason."""
    name = f"{BROKER_PREFIX}{broker}"
    try:
        with progress_line() as line:
            lifecycle.wait_healthy(
                context.home(),
                START_TIMEOUT_S,
                lambda progress: line.show(f"waiting until {name} is healthy"),
                [name],
            )
    except TimeoutError as error:
        raise CommandError(f"{error}; `./millrace logs {name}` shows more", Exit.TIMEOUT) from error
    except lifecycle.StartFailed as error:
        raise CommandError(f"{error}\nrun the same command again to continue") from error
