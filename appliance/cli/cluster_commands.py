"""`millrace cluster`: change the cluster as a whole."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import context
from appliance.cli.broker_addition import wait_healthy
from appliance.cli.cluster import (
    TIMEOUT_S,
    BootstrapOption,
    DryRunOption,
    JsonOption,
    OutputFormat,
    OutputOption,
    TimeoutOption,
    YesOption,
    complete_topics,
    confirm,
    with_cluster,
)
from appliance.cli.help_lines import group_of_commands
from appliance.cli.membership_view import show_steps, step_progress
from appliance.cli.other_hosts import refuse_on_hosts
from appliance.cli.reassign_throttle import (
    ForceCopiesOption,
    ThrottleOption,
    parse_rate,
    rate_text,
    remove_throttle,
)
from appliance.config.containers import RECREATE
from appliance.config.replication import REPLICAS
from appliance.mill.parts import BROKER_PREFIX, broker_ids
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit, say

if TYPE_CHECKING:
    from appliance.kafka.growth_plan import GrowthState
    from appliance.kafka.replica_copies import DiskUse
    from protocol.client.cluster import Cluster

app = group_of_commands("The cluster as a whole.")


@app.callback()
def _group() -> None:
    """Keep `grow` a command of the group, although it is the only one."""


@app.command()
def grow(
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="Only this topic, and internal ones.", autocompletion=complete_topics
        ),
    ] = None,
    throttle: ThrottleOption = None,
    force: ForceCopiesOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Make three brokers of one, after asking: three voters, and three replicas of each topic.

    The same command continues where it was interrupted. Ctrl-C ends only the following.
    """
    from appliance.kafka import growth, replica_copies

    refuse_on_hosts("cluster grow", bootstrap)
    rate = None if throttle is None else parse_rate(throttle)
    brokers, factors = _listed(bootstrap)

    async def survey(cluster: "Cluster") -> Any:
        if context.in_containers():
            await _refuse_absent(cluster, brokers or ())
        goal = await growth.goal_of(cluster, brokers, factors, topic or None)
        state = await growth.look(cluster, goal)
        return state, await replica_copies.disk_use(cluster, state.replicas.brokers)

    state, disks = with_cluster(bootstrap, timeout, survey)
    lines = _show(state, disks, topic or (), rate, force, output, as_json)
    if lines is None:
        return
    if dry_run:
        say("\n".join([*lines, "nothing was changed"]))
        return
    confirm(lines, yes)
    try:
        _proceed(state, brokers or (), rate, bootstrap, timeout)
    except KeyboardInterrupt:
        say("\ncopies that have begun go on; run the same command again to continue the growth")
        raise
    shows = context.typed("broker describe")
    say(f"the cluster has grown; `{shows}` shows its voters and replicas")


def _listed(bootstrap: str | None) -> tuple[Sequence[int] | None, Mapping[str, int]]:
    """Return the brokers of this mill, and the replicas that its file states for topics.

    The brokers are None for another cluster. Raises CommandError if the mill runs one broker.
    """
    if bootstrap is not None:
        return None, {}
    config = context.mill_as_it_runs().config
    ids = broker_ids(config)
    factors = {one.name: one.replication for one in config.topics if one.replication is not None}
    if len(ids) == 1:
        file, apply = context.home().config_file, "./millrace up --apply"
        if context.in_containers():
            file, apply = Path("configs", file.name), RECREATE
        raise CommandError(
            f"the mill runs one broker. Write `brokers: {REPLICAS}` below `cluster:` in "
            f"{file}, run `{apply}`, and then the same command again",
            Exit.CONDITION,
        )
    return ids or None, factors


async def _refuse_absent(cluster: "Cluster", brokers: Sequence[int]) -> None:
    """Raise CommandError if a broker of the mill is not in service. The command runs in a container
    and cannot start another one."""
    in_service = (await cluster.metadata((), refresh=True)).brokers
    absent = [one for one in brokers if one not in in_service]
    if not absent:
        return
    name = f"{BROKER_PREFIX}{absent[0]}"
    raise CommandError(
        f"broker {absent[0]} is not in service. If you have changed `cluster.brokers`, run"
        f" `{RECREATE}`; otherwise `docker compose up -d --wait {name}` starts it. Then run the"
        f" same command again. `docker compose logs {name}` shows more",
        Exit.CONDITION,
    )


def _show(
    state: "GrowthState",
    disks: "DiskUse",
    topics: Sequence[str],
    rate: int | None,
    force: bool,
    output: OutputFormat,
    as_json: bool,
) -> list[str] | None:
    """Print the steps that are left. Return the sentences before the question.

    Return None if there is no step left. Raises CommandError if the cluster cannot grow.
    """
    from appliance.kafka import replica_copies
    from appliance.kafka.growth_plan import refuse_growth, steps_to_grow

    missing = [one for one in topics if one not in state.replicas.topics]
    if missing:
        raise CommandError(f"topic {missing[0]!r} does not exist", Exit.NOT_FOUND)
    refuse_growth(state)
    short = replica_copies.check_room(state.targets, state.replicas, disks) if state.targets else []
    if short and not force:
        raise CommandError("\n".join([*short, "free disk space, or add --force"]), Exit.CONDITION)
    steps = steps_to_grow(state)
    show_steps(steps, "cluster-grow/1", output, as_json, nothing="the cluster has grown already")
    if not steps:
        return None
    lines = replica_copies.copied_text(state.targets, state.replicas, disks)
    if rate is not None:
        lines.append(f"copies are limited to {rate_text(rate)} for each broker and direction")
    return [*lines, *short]


def _proceed(
    state: "GrowthState",
    brokers: Sequence[int],
    rate: int | None,
    bootstrap: str | None,
    timeout: float,
) -> None:
    """Take the steps. `brokers` are those of this mill. Raises CommandError."""
    from appliance.kafka import growth

    if not context.in_containers() and lifecycle.is_running(context.home()):
        for broker in brokers:
            wait_healthy(broker)
    with step_progress() as progress:

        async def work(cluster: "Cluster") -> None:
            await growth.grow(
                cluster, state.goal, on_step=progress.begin, on_wait=progress.wait, rate=rate
            )

        with_cluster(bootstrap, timeout, work)
    remove_throttle(bootstrap, timeout, state.replicas.topics)
