"""`millrace broker remove`: take a broker out of a running cluster, or take that back."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli import context
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
    emit,
    with_cluster,
)
from appliance.cli.membership_view import show_steps, step_progress
from appliance.cli.other_hosts import own_hosts, runs_elsewhere
from appliance.cli.progress import waiting
from appliance.cli.reassign_commands import cancellation
from appliance.cli.reassign_throttle import (
    ForceCopiesOption,
    ThrottleOption,
    parse_rate,
    rate_text,
    remove_throttle,
)
from appliance.mill.parts import BROKER_PREFIX, broker_ids, main_broker
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit, say

if TYPE_CHECKING:
    from appliance.kafka.removal_plan import RemovalState
    from appliance.kafka.replica_copies import DiskUse
    from protocol.client.cluster import Cluster

STOP_TIMEOUT_S = 60.0
"""The time in seconds within which a broker of the mill stops. It leads nothing any more."""

BrokerArgument = Annotated[int, typer.Argument(metavar="N", help="The id of the broker.", min=0)]


def remove(
    broker: BrokerArgument,
    abort: Annotated[
        bool, typer.Option("--abort", help="Undo a removal that is not complete.")
    ] = False,
    throttle: ThrottleOption = None,
    force: ForceCopiesOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Move everything off a broker, after asking, and take it out of the cluster.

    The same command continues where it was interrupted. Ctrl-C ends only the following.
    """
    _refuse_main_host(broker, bootstrap)
    if abort:
        if throttle is not None or force:
            raise CommandError("--abort excludes --throttle and --force", Exit.USAGE)
        _abort(broker, yes, dry_run, bootstrap, output, as_json, timeout)
        return
    rate = None if throttle is None else parse_rate(throttle)
    state, lines = _plan(broker, rate, force, bootstrap, output, as_json, timeout)
    if not state.is_member:
        # An interrupted command can have taken the last step without saying so.
        say(
            f"broker {broker} is not in the cluster: nothing is left to do there."
            f" {_afterwards(bootstrap)}"
        )
        return
    if dry_run:
        say("\n".join([*lines, "nothing was changed"]))
        return
    confirm(lines, yes)
    try:
        _proceed(state, rate, bootstrap, timeout)
    except KeyboardInterrupt:
        say(
            "\nmoves that have begun go on. Run the same command again to continue the removal, or "
            f"`./millrace broker remove {broker} --abort` to undo it"
        )
        raise
    say(f"broker {broker} has left the cluster. {_afterwards(bootstrap)}")


def _refuse_main_host(broker: int, bootstrap: str | None) -> None:
    """Raise CommandError for the broker beside which all other parts of the mill run."""
    if own_hosts(bootstrap) is not None and broker == main_broker(context.mill_as_it_runs().config):
        raise CommandError(
            f"broker {broker} is on the main host, which has the key of the CA and all other parts:"
            " it cannot be removed",
            Exit.CONDITION,
        )


def _afterwards(bootstrap: str | None) -> str:
    """Return what is left for the user to do."""
    if own_hosts(bootstrap) is None:
        return (
            "Take its id out of `cluster.brokers` in the file, and run `./millrace up --apply`. "
            "Its data folder was kept: delete the folder before you use the id again"
        )
    return (
        "Delete `data` on its host. Take the id out of `cluster.brokers` and `cluster.hosts` in the"
        " file of each other host, and run `./millrace up --apply` there"
    )


def _plan(
    broker: int,
    rate: int | None,
    force: bool,
    bootstrap: str | None,
    output: OutputFormat,
    as_json: bool,
    timeout: float,
) -> "tuple[RemovalState, list[str]]":
    """Print the steps that are left. Return the state, and the sentences before the question.

    There is no step for a broker that the file lists and the cluster does not know. Raises
    CommandError if the broker cannot be removed.
    """
    from appliance.kafka import removal, replica_copies
    from appliance.kafka.removal_plan import refuse_removal, remaining_steps

    async def survey(cluster: "Cluster") -> "tuple[RemovalState, DiskUse]":
        state = await removal.look(cluster, broker)
        return state, await replica_copies.disk_use(cluster, state.replicas.brokers)

    state, disks = with_cluster(bootstrap, timeout, survey)
    if not state.is_member and _is_listed(broker, bootstrap):
        show_steps((), "broker-remove/1", output, as_json)
        return state, []
    refuse_removal(state)
    targets = state.plan.targets
    short = replica_copies.check_room(dict(targets), state.replicas, disks) if targets else []
    if short and not force:
        raise CommandError("\n".join([*short, "free disk space, or add --force"]), Exit.CONDITION)
    steps = remaining_steps(state)
    show_steps(steps, "broker-remove/1", output, as_json)
    return state, [
        *replica_copies.copied_text(targets, state.replicas, disks),
        *_remarks(state, rate),
        *short,
    ]


def _is_listed(broker: int, bootstrap: str | None) -> bool:
    """Return whether the file of this mill lists the broker."""
    return bootstrap is None and broker in broker_ids(context.mill_as_it_runs().config)


def _remarks(state: "RemovalState", rate: int | None) -> list[str]:
    lines = []
    if rate is not None:
        lines.append(f"copies are limited to {rate_text(rate)} for each broker and direction")
    if not state.is_in_service:
        lines.append(
            f"broker {state.node_id} is away: the others have copies of all its partitions"
        )
    if state.quorum is not None and state.quorum.leader_id == state.node_id:
        lines.append(f"broker {state.node_id} is the active controller: another one takes over")
    return lines


def _proceed(
    state: "RemovalState", rate: int | None, bootstrap: str | None, timeout: float
) -> None:
    """Take the steps. Raises CommandError, also if a broker of another mill must be stopped."""
    from appliance.kafka.removal import Removal

    with step_progress() as progress:
        removal = Removal(state.node_id, progress.begin, progress.wait, rate)
        stop = with_cluster(bootstrap, timeout, removal.proceed)
        remove_throttle(bootstrap, timeout, state.replicas.topics)
        if stop is None:
            return
        say(str(stop))
        _stop(state.node_id, bootstrap)
        removal.has_stopped = True
        with_cluster(bootstrap, timeout, removal.proceed)


def _stop(broker: int, bootstrap: str | None) -> None:
    """Stop a broker of this mill. Raises CommandError for another broker."""
    name, home = f"{BROKER_PREFIX}{broker}", context.home()
    is_ours = bootstrap is None and not context.in_containers() and lifecycle.is_running(home)
    if (host := runs_elsewhere(broker, bootstrap)) is not None:
        say(f"on {host}: `./millrace down`. This command waits until broker {broker} has stopped")
        return
    try:
        if is_ours:
            with waiting(f"stopping {name}"):
                lifecycle.stop_part(home, name, STOP_TIMEOUT_S)
            return
    except lifecycle.StillStopping as error:
        raise CommandError(
            f"{error}; run the same command again to continue", Exit.TIMEOUT
        ) from error
    except KeyError:
        pass
    raise CommandError(
        f"broker {broker} has no replica and no vote any more. This mill cannot stop it, because "
        "it is not in cluster.brokers: stop its process, and run the same command again, which "
        "unregisters the broker",
        Exit.CONDITION,
    )


def _abort(
    broker: int,
    yes: bool,
    dry_run: bool,
    bootstrap: str | None,
    output: OutputFormat,
    as_json: bool,
    timeout: float,
) -> None:
    from appliance.kafka import reassign, removal
    from appliance.kafka.membership import uncordon
    from appliance.kafka.removal_plan import way_back

    async def survey(cluster: "Cluster") -> Any:
        _, min_isr = await reassign.look_for_cancel(cluster)
        return await removal.look(cluster, broker), min_isr

    state, min_isr = with_cluster(bootstrap, timeout, survey)
    back = way_back(state)
    cancelled = [cancellation(state.replicas, tp, min_isr.get(tp.topic)) for tp in back.cancelled]
    rows = [row for row, _ in cancelled]
    emit("broker-remove-abort/1", rows, output, as_json, nothing="there is no move to cancel")
    if not rows and not back.is_cordoned:
        say(f"there is no removal to undo: broker {broker} is not cordoned, and gets new replicas")
        return
    lines = [f"this move will be cancelled: {line}" for _, line in cancelled]
    if back.is_cordoned:
        lines.append(f"broker {broker} will get new replicas again")
    lines += back.notes
    if dry_run:
        say("\n".join([*lines, "nothing was changed"]))
        return
    confirm(lines, yes)

    async def take_back(cluster: "Cluster") -> Any:
        errors = await reassign.start(cluster, dict.fromkeys(back.cancelled))
        if back.is_cordoned:
            await uncordon(cluster, broker)
        return errors

    errors = with_cluster(bootstrap, timeout, take_back)
    remove_throttle(bootstrap, timeout, state.replicas.topics)
    reassign.refuse_errors(errors)
    say(f"the removal of broker {broker} is undone")
