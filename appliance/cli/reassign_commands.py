"""`millrace reassign`: plan, start, follow and cancel moves of replicas."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    confirm,
    emit,
    with_cluster,
)
from appliance.cli.help_lines import group_of_commands
from appliance.cli.progress import progress_line
from appliance.cli.reassign_planning import generate, move_rows, rollback_file
from appliance.cli.reassign_throttle import (
    ForceCopiesOption,
    Limits,
    ThrottleOption,
    copies_text,
    parse_rate,
    remove_throttle,
)
from appliance.output import CommandError, Exit, counted, say, size_text

if TYPE_CHECKING:
    from appliance.kafka.reassign import ClusterReplicas
    from appliance.kafka.reassignment_files import Targets
    from protocol.client.cluster import Cluster
    from protocol.copy_progress import CopyEstimate
    from protocol.errors import ApiError
    from protocol.types import TopicPartition

app = group_of_commands("Move replicas between brokers.")

PlanOption = Annotated[
    Path, typer.Option("--plan", help="A plan: the file of `generate`, or Kafka's JSON file.")
]
KeepOption = Annotated[
    bool, typer.Option("--keep-throttle", help="Keep the throttle, even when nothing moves.")
]

app.command()(generate)


@app.command()
def execute(
    plan: PlanOption,
    throttle: ThrottleOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Do not wait until the moves are complete.")
    ] = False,
    force: ForceCopiesOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Start the moves of a plan, after asking, and follow them; Ctrl-C ends only the following.

    With the same plan the command continues an interrupted reassignment, and can change the
    throttle.
    """
    from appliance.kafka import reassign, reassignment_files, replica_copies

    rate = None if throttle is None else parse_rate(throttle)
    text = reassignment_files.read(str(plan))
    targets = reassignment_files.parse_plan(text, str(plan))
    folders = reassignment_files.parse_folders(text)

    async def survey(cluster: "Cluster") -> Any:
        found = await reassign.look(cluster, {tp.topic for tp in targets})
        if folders:
            replica_copies.check_folders(
                folders, await replica_copies.folders_of(cluster, found.brokers)
            )
        reassign.check_targets(targets, found, await reassign.cordoned(cluster, found.brokers))
        return found, await replica_copies.disk_use(cluster, found.brokers)

    found, disks = with_cluster(bootstrap, timeout, survey)
    states = {tp: found.state(tp, target) for tp, target in targets.items()}
    new = {tp: target for tp, target in targets.items() if states[tp] is reassign.MoveState.OTHER}
    emit("reassign-execute/1", move_rows(found, new), output, as_json, nothing="nothing to start")
    is_running = any(state is reassign.MoveState.MOVING for state in states.values())
    if new or (is_running and rate is not None):
        short = replica_copies.check_room(targets, found, disks) if new else []
        if short and not force:
            raise CommandError("\n".join([*short, "free room, or add --force"]), Exit.CONDITION)
        lines = [*_summary(found, new, disks.largest), *short]
        limits = None if rate is None else Limits.of(found, new, rate)
        if limits is not None:
            lines += limits.sentences
        if dry_run:
            say("\n".join([*lines, "nothing was started"]))
            return
        confirm(lines, yes)
        before = {tp: found.original(tp, one) for tp, one in found.partitions() if tp in targets}
        _keep_rollback(rollback_file(plan), before)
        errors = with_cluster(bootstrap, timeout, lambda cluster: _start(cluster, new, limits))
        say(f"started {counted(len(new) - len(errors), 'move')}")
        reassign.refuse_errors(errors)
    if not (detach or dry_run):
        _follow(bootstrap, timeout, targets, plan)


async def _start(
    cluster: "Cluster", new: "Targets", limits: Limits | None
) -> "Mapping[TopicPartition, ApiError]":
    from appliance.kafka import reassign

    if limits is not None:
        await limits.set(cluster)
    return await reassign.start(cluster, new)


def _summary(
    found: "ClusterReplicas", new: "Targets", largest: "Mapping[TopicPartition, int]"
) -> list[str]:
    """Return the sentences about a plan before it starts."""
    copied: dict[int, list[TopicPartition]] = {}
    replaced = []
    for tp, target in sorted(new.items()):
        partition = found.find(tp)
        assert partition is not None, "plans are checked against the cluster"
        for broker in target:
            if broker not in partition.in_sync_replicas:
                copied.setdefault(broker, []).append(tp)
        if tp in found.moving:
            future = ",".join(map(str, found.future(tp, partition)))
            replaced.append(f"{tp} moves to {future} now; the plan replaces that move")
    return [
        f"will change: {counted(len(new), 'partition')}",
        *(
            f"will be copied to broker {broker}: {counted(len(tps), 'replica')}, "
            f"{size_text(sum(largest.get(tp, 0) for tp in tps))}"
            for broker, tps in sorted(copied.items())
        ),
        *replaced,
    ]


def _keep_rollback(path: Path, before: "Mapping[TopicPartition, Sequence[int]]") -> None:
    """Write the present assignment as the rollback plan, unless an earlier start has already done
    so."""
    from appliance.kafka import reassignment_files

    if not path.exists():
        reassignment_files.write(path, before)
    say(f"{path} is the plan of the present replicas: `reassign execute` of it undoes the moves")


def _follow(bootstrap: str | None, timeout: float, targets: "Targets", plan: Path) -> None:
    from appliance.kafka import replica_copies

    try:
        with progress_line() as line:

            def left(count: int, estimate: "CopyEstimate | None") -> None:
                all_of_them = counted(len(targets), "partition")
                moved = f"{len(targets) - count} of {all_of_them} moved"
                line.show(moved if estimate is None else f"{moved}; {copies_text(estimate)}")

            ended = with_cluster(
                bootstrap, timeout, lambda cluster: replica_copies.follow(cluster, targets, left)
            )
    except KeyboardInterrupt:
        say(
            "the brokers go on moving replicas. `millrace reassign verify "
            f"--plan {plan}` shows the progress, `millrace reassign cancel --plan {plan}` "
            "cancels the moves"
        )
        raise
    if ended:
        raise CommandError(
            f"the plan is not complete: {counted(len(ended), 'partition')} do not move and have "
            f"other replicas than in the plan, such as {ended[0]}: the moves were cancelled, or "
            "another plan replaced this one"
        )
    say("all partitions have their targets")
    remove_throttle(bootstrap, timeout, {tp.topic for tp in targets})


@app.command()
def verify(
    plan: PlanOption,
    keep_throttle: KeepOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show the progress of a plan; exit code 3 unless all partitions have their targets.

    When no partition of the cluster moves any more, the throttle is removed.
    """
    from appliance.kafka import reassign, reassignment_files

    targets = reassignment_files.parse_plan(reassignment_files.read(str(plan)), str(plan))
    names = {tp.topic for tp in targets}
    found = with_cluster(bootstrap, timeout, lambda cluster: reassign.look(cluster, names))
    rows: list[Row] = []
    for tp, target in sorted(targets.items()):
        partition = found.find(tp)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "target": list(target),
                "replicas": None if partition is None else list(partition.replicas),
                "in_sync": None if partition is None else list(partition.in_sync_replicas),
                "state": found.state(tp, target).value,
            }
        )
    emit("reassign-verify/1", rows, output, as_json)
    unfinished = sum(row["state"] != reassign.MoveState.DONE for row in rows)
    say(f"{len(rows) - unfinished} of {counted(len(rows), 'partition')} are done")
    if not keep_throttle:
        remove_throttle(bootstrap, timeout, names)
    if unfinished:
        raise typer.Exit(Exit.CONDITION)


@app.command("list")
def list_moves(
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """List the partitions that move, and the replicas that are still copied, with their bytes."""
    from appliance.kafka import replica_copies

    found, disks = with_cluster(bootstrap, timeout, replica_copies.look_at_copies)
    rows: list[Row] = []
    for tp, moving in sorted(found.moving.items()):
        partition = found.find(tp)
        in_sync = () if partition is None else partition.in_sync_replicas
        away = [one for one in moving.adding if one not in found.brokers]
        copying = [one for one in moving.adding if one not in in_sync]
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(moving.replicas),
                "adding": list(moving.adding),
                "removing": list(moving.removing),
                "copying": copying,
                "to_copy_bytes": sum(disks.missing(tp, one) for one in copying),
                "waits_for": away,
            }
        )
    emit("reassignments/1", rows, output, as_json, nothing="no partition moves")


@app.command()
def cancel(
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Only the partitions of this plan.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All partitions that move.")] = False,
    keep_throttle: KeepOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Cancel moves, after asking: the added replicas are removed, the former ones stay."""
    from appliance.kafka import reassign, reassignment_files

    if (plan is None) is not everything:
        raise CommandError("expected --plan FILE or --all", Exit.USAGE)
    chosen = None
    if plan is not None:
        chosen = reassignment_files.parse_plan(reassignment_files.read(str(plan)), str(plan))
    found, min_isr = with_cluster(bootstrap, timeout, reassign.look_for_cancel)
    tps = [tp for tp in sorted(found.moving) if chosen is None or tp in chosen]
    cancelled = [cancellation(found, tp, min_isr.get(tp.topic)) for tp in tps]
    rows = [row for row, _ in cancelled]
    emit("reassign-cancel/1", rows, output, as_json, nothing="none of these partitions moves")
    if not rows or dry_run:
        return
    confirm([f"this move will be cancelled: {line}" for _, line in cancelled], yes)
    targets: dict[TopicPartition, Sequence[int] | None] = dict.fromkeys(tps)
    errors = with_cluster(bootstrap, timeout, lambda cluster: reassign.start(cluster, targets))
    say(f"cancelled {counted(len(tps) - len(errors), 'move')}")
    if not keep_throttle:
        remove_throttle(bootstrap, timeout, {tp.topic for tp in tps})
    reassign.refuse_errors(errors)


def cancellation(
    found: "ClusterReplicas", tp: "TopicPartition", min_isr: int | None
) -> tuple[Row, str]:
    """Return a row and a sentence about a partition after its move is cancelled."""
    from protocol.reassignment import effective_min_isr, original_replicas

    moving = found.moving[tp]
    partition = found.find(tp)
    stay = list(original_replicas(moving.replicas, moving.adding))
    in_sync = (
        [] if partition is None else [one for one in partition.in_sync_replicas if one in stay]
    )
    needed = effective_min_isr(min_isr or 0, moving.replicas, moving.adding)
    line = f"{tp} keeps the replicas {','.join(map(str, stay))}, preferred leader {stay[0]}"
    if len(in_sync) < needed:
        line += f"; only {len(in_sync)} of them in sync, so writes with acks=all wait"
    row = {
        "topic": tp.topic,
        "partition": tp.partition,
        "replicas": stay,
        "preferred_leader": stay[0],
        "in_sync": in_sync,
        "min_insync": min_isr,
    }
    return row, line
