"""`millrace broker replace-disk`: bring a broker back whose disk was lost or exchanged."""

from typing import TYPE_CHECKING

from appliance.cli import context
from appliance.cli.broker_addition import START_TIMEOUT_S
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
from appliance.cli.other_hosts import how_to_start, own_hosts, runs_elsewhere, waits_text
from appliance.mill.parts import BROKER_PREFIX, broker_ids, main_broker
from appliance.mill.voter_folders import NEWCOMER_MARK, is_empty_folder, mark_newcomer
from appliance.operate import lifecycle
from appliance.output import CommandError, Exit, counted, say

if TYPE_CHECKING:
    from appliance.kafka.disk_plan import DiskState


def replace_disk(
    broker: BrokerArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Bring a broker back whose disk is empty: it copies its replicas again, after asking.

    The same command continues where it was interrupted. Ctrl-C ends only the following.
    """
    from appliance.kafka import disk_replacement
    from appliance.kafka.disk_plan import refuse_replacement, steps_to_replace

    state = with_cluster(bootstrap, timeout, lambda asked: disk_replacement.look(asked, broker))
    refuse_replacement(state)
    _refuse_full_folder(state, bootstrap)
    steps = steps_to_replace(state)
    elsewhere = runs_elsewhere(broker, bootstrap)
    there = "" if elsewhere is None else f" on {elsewhere}"
    nothing = (
        f"broker {broker} is in service with all its replicas. To exchange its disk, stop it first "
        f"(`{context.typed(f'stop {BROKER_PREFIX}{broker}')}`{there})"
    )
    show_steps(steps, "broker-replace-disk/1", output, as_json, nothing=nothing)
    lines = [*_remarks(state), *_remarks_on_old_disk(state, elsewhere, bootstrap)]
    if dry_run:
        say("\n".join([*lines, "nothing was changed"]))
        return
    if not steps:
        return
    confirm(lines, yes)
    try:
        _proceed(broker, elsewhere, bootstrap, timeout)
    except KeyboardInterrupt:
        say(
            "\nthe broker continues to copy; run the same command again to follow it and to take "
            "the remaining steps"
        )
        raise
    say(f"broker {broker} has all its replicas in sync again")


def _refuse_full_folder(state: "DiskState", bootstrap: str | None) -> None:
    """Raise CommandError if this mill's broker votes, is away, and has data in its folder."""
    if bootstrap is not None or context.in_containers() or state.is_in_service:
        return
    name = f"{BROKER_PREFIX}{state.node_id}"
    folder = context.home().part_data(name)
    if state.vote is None or is_empty_folder(context.home(), state.node_id):
        return
    raise CommandError(
        f"{folder} is not empty. If its files are complete, run `./millrace start {name}`. If "
        "files are missing or damaged, move the folder away, and run the same command again",
        Exit.CONDITION,
    )


def _remarks(state: "DiskState") -> list[str]:
    """Return the sentences before the question."""
    from appliance.kafka.reassign import named_partitions

    lines = []
    if state.to_copy:
        count = counted(len(state.to_copy), "replica")
        lines.append(f"broker {state.node_id} copies {count} from the others")
    if state.lost:
        lines.append(
            "the records of these partitions are lost, because their only replica was on the disk:"
            f" {named_partitions(state.lost)}. Delete these topics, or start the partitions empty "
            f"with `{context.typed('elect-leader --type unclean')}`"
        )
    if not state.is_in_service and state.vote is not None and len(state.voters) == 3:
        lines.append(
            f"only two brokers vote until broker {state.node_id} has all metadata: do not stop "
            "either of them in the meantime"
        )
    return lines


def _remarks_on_old_disk(
    state: "DiskState", elsewhere: str | None, bootstrap: str | None
) -> list[str]:
    """Return the sentences about the disk of a broker that is away, if this command cannot see the
    disk: it is on another host or in another container."""
    number = state.node_id
    if state.is_in_service or state.vote is None:
        return []
    up = context.home().up
    if elsewhere is not None:
        remedy = f"start {elsewhere} again, and type `{up}` there"
    elif _is_other_container(number, bootstrap):
        remedy = f"type `{up} {BROKER_PREFIX}{number}`"
    else:
        return []
    return [
        f"if the disk of broker {number} is whole, do not go on: {remedy}",
        "once its vote is removed, its broker cannot come back with the old disk",
    ]


def _proceed(broker: int, elsewhere: str | None, bootstrap: str | None, timeout: float) -> None:
    """Take the steps. `elsewhere` is the other host of the broker; None if it runs on this one.
    Raises CommandError, also if a broker of another mill must be started."""
    from appliance.kafka.disk_replacement import DiskReplacement

    with step_progress() as progress:
        replacement = DiskReplacement(broker, progress.begin, progress.wait)
        start = with_cluster(bootstrap, timeout, replacement.proceed)
        if start is None:
            return
        say(str(start))
        if elsewhere is None:
            _start(broker, bootstrap)
        else:
            say(_what_to_type(broker, elsewhere))
        replacement.has_started = True
        with_cluster(bootstrap, timeout, replacement.proceed)


def _what_to_type(broker: int, host: str) -> str:
    """Return how the broker of another host is started with an empty disk."""
    if broker == main_broker(context.mill_as_it_runs().config):
        same = context.typed(f"broker replace-disk {broker}")
        text = f"on {host}: `{same}`"
        if not context.in_containers():
            text += (
                " if only the disk was lost. If the host was lost, on the new machine with this"
                " name: `./millrace restore FOLDER` with its last backup, and"
                f" `{context.home().up}`"
            )
        return f"{text}\n{waits_text(broker)}"
    return how_to_start(broker, host, "which can be a new machine with this name")


def _is_other_container(broker: int, bootstrap: str | None) -> bool:
    """Return whether the broker is a container of this mill, whose volume `cli` does not see."""
    return (
        bootstrap is None
        and context.in_containers()
        and broker in broker_ids(context.mill_as_it_runs().config)
    )


def _start(broker: int, bootstrap: str | None) -> None:
    """Start a broker of this mill. Raises CommandError for another broker."""
    from appliance.cli.mill_commands import start_part

    name, home = f"{BROKER_PREFIX}{broker}", context.home()
    if _is_other_container(broker, bootstrap):
        mark = home.part_data(name) / NEWCOMER_MARK
        raise CommandError(
            f"broker {broker} does not vote any more, and this container cannot start it. Its"
            " volume must be empty. Type"
            f" `docker compose run --rm --no-deps --entrypoint touch {name} {mark}` and"
            f" `docker compose up -d --wait --no-deps --force-recreate {name}`, and then run the"
            " same command again",
            Exit.CONDITION,
        )
    is_ours = bootstrap is None and not context.in_containers() and lifecycle.is_running(home)
    if is_ours and any(one["part"] == name for one in lifecycle.snapshot(home)["parts"]):
        if own_hosts(bootstrap) is not None:
            # The folders of the other brokers, which show that the cluster exists, are elsewhere.
            mark_newcomer(home, broker)
        start_part(name, START_TIMEOUT_S)
        return
    raise CommandError(
        f"broker {broker} does not vote any more. This mill cannot start it, because it is not in "
        "cluster.brokers: start it with an empty folder and with `joins: true` in its settings, "
        "and then run the same command again",
        Exit.CONDITION,
    )
