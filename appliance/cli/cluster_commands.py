"""`millrace cluster`: change the cluster as a whole."""

from collections.abc import Mapping, Sequence
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
    Row,
    TimeoutOption,
    YesOption,
    complete_topics,
    confirm,
    emit,
    with_cluster,
)
from appliance.cli.help_lines import group_of_commands
from appliance.cli.progress import progress_line
from appliance.cli.reassign_throttle import copies_text, parse_rate, rate_text, remove_throttle
from appliance.config.replication import REPLICAS
from appliance.mill.parts import broker_ids
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit, say

if TYPE_CHECKING:
    from appliance.kafka.growth_plan import GrowthState
    from appliance.kafka.membership_steps import MembershipStep
    from protocol.client.cluster import Cluster
    from protocol.copy_progress import CopyEstimate

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
    throttle: Annotated[
        str | None,
        typer.Option("--throttle", help="Bytes a second of copies, sent or received by a broker."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start even if a disk is too small.")
    ] = False,
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
    rate = None if throttle is None else parse_rate(throttle)
    brokers, factors = _listed(bootstrap)
    growth = _Growth(brokers, factors, topic, bootstrap, timeout)
    lines = growth.show(rate, force, output, as_json)
    if lines is None:
        return
    if dry_run:
        say("\n".join([*lines, "nothing was changed"]))
        return
    confirm(lines, yes)
    try:
        growth.proceed(rate)
    except KeyboardInterrupt:
        say("\nno longer following; copies that have begun go on. The same command continues")
        raise
    say("the cluster has grown; `./millrace broker describe` shows its voters and replicas")


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
        raise CommandError(
            f"the mill runs one broker. Write `brokers: {REPLICAS}` below `cluster:` in "
            f"{context.home().config_file}, run `./millrace up --apply`, and then the same "
            "command again",
            Exit.CONDITION,
        )
    return ids or None, factors


class _Growth:
    """One run of the command."""

    def __init__(
        self,
        brokers: Sequence[int] | None,
        factors: Mapping[str, int],
        topics: Sequence[str] | None,
        bootstrap: str | None,
        timeout: float,
    ) -> None:
        self._brokers = brokers
        self._factors = factors
        self._topics = topics or None
        self._bootstrap = bootstrap
        self._timeout = timeout

    async def _ask(self, cluster: "Cluster") -> "GrowthState":
        from appliance.kafka import growth

        return await growth.look(cluster, self._brokers, self._factors, self._topics)

    def show(
        self, rate: int | None, force: bool, output: OutputFormat, as_json: bool
    ) -> list[str] | None:
        """Print the steps that are left. Return the sentences before the question.

        Return None if there is no step left. Raises CommandError if the cluster cannot grow.
        """
        from appliance.kafka import replica_copies
        from appliance.kafka.growth_plan import refuse_growth, steps_to_grow

        async def survey(cluster: "Cluster") -> Any:
            state = await self._ask(cluster)
            return state, await replica_copies.disk_use(cluster, state.replicas.brokers)

        state, disks = with_cluster(self._bootstrap, self._timeout, survey)
        missing = [one for one in self._topics or () if one not in state.replicas.topics]
        if missing:
            raise CommandError(f"topic {missing[0]!r} does not exist", Exit.NOT_FOUND)
        refuse_growth(state)
        short = (
            replica_copies.check_room(state.targets, state.replicas, disks) if state.targets else []
        )
        if short and not force:
            raise CommandError("\n".join([*short, "free room, or add --force"]), Exit.CONDITION)
        steps = steps_to_grow(state)
        rows: list[Row] = [
            {"step": number, "does": type(step).__name__, "what": str(step)}
            for number, step in enumerate(steps, 1)
        ]
        emit("cluster-grow/1", rows, output, as_json, nothing="the cluster has grown already")
        if not steps:
            return None
        lines = replica_copies.copied_text(state.targets, state.replicas, disks)
        if rate is not None:
            lines.append(f"copies are limited to {rate_text(rate)} for each broker and direction")
        return [*lines, *short]

    def proceed(self, rate: int | None) -> None:
        """Take the steps. Raises CommandError."""
        from appliance.kafka import growth

        if self._bootstrap is None and not context.in_containers():
            for broker in self._brokers or ():
                if lifecycle.is_running(context.home()):
                    wait_healthy(broker)
        with progress_line() as line:

            def wait(step: "MembershipStep", estimate: "CopyEstimate | None") -> None:
                line.show(str(step) if estimate is None else f"{step}; {copies_text(estimate)}")

            def begin(step: "MembershipStep") -> None:
                line.end()
                say(str(step))

            async def work(cluster: "Cluster") -> "GrowthState":
                await growth.grow(cluster, self._ask, on_step=begin, on_wait=wait, rate=rate)
                return await self._ask(cluster)

            state = with_cluster(self._bootstrap, self._timeout, work)
        remove_throttle(self._bootstrap, self._timeout, state.replicas.topics)
