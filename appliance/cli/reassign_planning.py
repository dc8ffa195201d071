"""`millrace reassign generate`: plan the smallest move of replicas, and write it to a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from appliance.cli.cluster import (
    TIMEOUT_S,
    BootstrapOption,
    JsonOption,
    OutputFormat,
    OutputOption,
    Row,
    TimeoutOption,
    complete_topics,
    emit,
    with_cluster,
)
from appliance.output import CommandError, Exit, say

if TYPE_CHECKING:
    from appliance.kafka.move_plan import MovePlan, PlanGoal
    from appliance.kafka.reassign import ClusterReplicas
    from protocol.client.cluster import Cluster
    from protocol.types import TopicPartition


def generate(
    topics_file: Annotated[
        str | None, typer.Option("--topics-file", help="Kafka's JSON file of topics to move.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Only this topic.", autocompletion=complete_topics),
    ] = None,
    brokers: Annotated[
        str | None, typer.Option("--brokers", help="Place replicas only on these brokers: 1,2,3.")
    ] = None,
    add: Annotated[
        list[int] | None, typer.Option("--add", help="A new broker, which gets its share.")
    ] = None,
    remove: Annotated[
        list[int] | None, typer.Option("--remove", help="A broker whose replicas all move away.")
    ] = None,
    factor: Annotated[
        int | None, typer.Option("--rf", help="The new number of replicas.", min=1)
    ] = None,
    write: Annotated[Path, typer.Option("--write", help="The file for the plan.")] = Path(
        "reassignment.json"
    ),
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Plan the smallest move, and write it to a file; nothing is moved.

    Without --brokers, --add and --remove the plan balances the replicas over all brokers in
    service.
    """
    from appliance.kafka import reassign, reassignment_files
    from appliance.kafka.move_plan import make_plan

    if brokers is not None and (add or remove):
        raise CommandError("--brokers excludes --add and --remove", Exit.USAGE)
    listed = None if brokers is None else reassignment_files.parse_brokers(brokers, "--brokers")
    names = list(topic or [])
    if topics_file is not None:
        names += reassignment_files.parse_topics(reassignment_files.read(topics_file), topics_file)

    async def work(cluster: "Cluster") -> Any:
        everything = await reassign.look(cluster)
        return everything, await reassign.cordoned(cluster, everything.brokers)

    everything, cordoned = with_cluster(bootstrap, timeout, work)
    if missing := [name for name in names if name not in everything.topics]:
        raise CommandError(f"topic {missing[0]!r} does not exist", Exit.NOT_FOUND)
    found = everything.only(names) if names else everything
    goal = goal_of(everything, cordoned, listed, add or [], remove or [], factor)
    plan = make_plan(found.placed(), goal)
    rows = move_rows(found, plan.targets)
    errors = [f"{tp}: {why}" for tp, why in sorted(plan.refused.items())]
    nothing = "nothing to move: all brokers have their share of replicas"
    emit("reassign-plan/1", rows, output, as_json, errors=errors, nothing=nothing)
    if errors:
        raise CommandError(
            "no plan was written: name more brokers, or plan fewer replicas with --rf"
        )
    _write(plan, found, write)


def _write(plan: "MovePlan", found: "ClusterReplicas", path: Path) -> None:
    """Write the plan and the plan that undoes it. Print their paths and the notes."""
    from appliance.kafka import reassignment_files

    if plan.targets:
        before = {tp: found.original(tp, one) for tp, one in found.partitions()}
        reassignment_files.write(path, plan.targets)
        back = rollback_file(path)
        try:
            reassignment_files.write(back, {tp: before[tp] for tp in plan.targets})
        except CommandError:
            path.unlink()
            raise
        say(f"wrote the plan to {path}, and the plan that undoes it to {back}; nothing was moved")
    for note in plan.notes:
        say(f"note: {note}")


def goal_of(
    found: "ClusterReplicas",
    cordoned: frozenset[int],
    listed: Sequence[int] | None,
    add: Sequence[int],
    remove: Sequence[int],
    factor: int | None,
) -> "PlanGoal":
    """Return the goal of a plan: the brokers that it can use, and those that it must empty.

    Raises CommandError for brokers that it cannot use.
    """
    from appliance.kafka.move_plan import PlanGoal
    from appliance.kafka.reassign import CORDON

    holding = {one for tp, partition in found.partitions() for one in found.future(tp, partition)}
    for broker in (*(listed or ()), *add):
        if broker not in found.brokers:
            raise CommandError(found.absence(broker), Exit.NOT_FOUND)
        if broker in cordoned:
            raise CommandError(
                f"broker {broker} is cordoned ({CORDON}), so it gets no new replicas: "
                "delete the setting, or leave the broker out"
            )
    for broker in remove:
        if broker not in found.brokers and broker not in holding:
            raise CommandError(f"broker {broker} is not in this cluster", Exit.NOT_FOUND)
    if both := sorted(set(add) & set(remove)):
        raise CommandError(f"broker {both[0]} is in --add and in --remove", Exit.USAGE)
    if listed is not None:
        usable, leaving = set(listed), holding - set(listed)
    else:
        # A plan for an added broker must not fill other brokers that are empty.
        usable = (holding & set(found.brokers)) | set(add) if add else set(found.brokers)
        leaving = set(remove)
        usable -= leaving | cordoned
    racks = {one: found.brokers[one].rack for one in sorted(usable)}
    return PlanGoal(racks, frozenset(leaving), factor)


def rollback_file(plan: Path) -> Path:
    """Return the file with the assignment before a plan."""
    return plan.with_suffix(".rollback.json")


def move_rows(
    found: "ClusterReplicas", targets: "Mapping[TopicPartition, Sequence[int]]"
) -> list[Row]:
    """Return one row for each partition of a plan."""
    rows = []
    for tp, target in sorted(targets.items()):
        partition = found.find(tp)
        assert partition is not None, "plans are checked against the cluster"
        before = found.future(tp, partition)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(before),
                "target": list(target),
                "copied_to": [one for one in target if one not in partition.in_sync_replicas],
                "leader": target[0] if target[0] != before[0] else None,
            }
        )
    return rows
