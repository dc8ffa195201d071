"""`millrace group`: lists, describes, moves and deletes groups."""

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
    complete_groups,
    confirm,
    emit,
    remember,
    with_cluster,
)
from appliance.cli.help_lines import group_of_commands
from appliance.cli.options import EnvelopeOption
from appliance.output import CommandError, Exit, counted, say, tell

if TYPE_CHECKING:
    from appliance.kafka.groups import Group
    from protocol.client.cluster import Cluster

app = group_of_commands("Groups of readers and their offsets.")

GroupsArgument = Annotated[list[str], typer.Argument(autocompletion=complete_groups)]
GroupArgument = Annotated[str, typer.Argument(autocompletion=complete_groups)]
ScopeOption = Annotated[
    list[str] | None, typer.Option("--topic", help="Only this topic, or topic:0,1.")
]


@app.command("list")
def list_groups(
    state: Annotated[
        str | None, typer.Option("--state", help="Only groups in these states: stable, empty, …")
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """List the groups of all coordinators."""
    from appliance.kafka.groups import STATES
    from protocol.client.group_admin import list_groups as ask

    wanted = {word.strip().lower() for word in (state or "").split(",") if word.strip()}
    if wanted - {name.lower() for name in STATES}:
        text = f"--state {state}: expected some of {', '.join(STATES)}"
        raise CommandError(text, Exit.USAGE)
    found = with_cluster(bootstrap, timeout, ask)
    if bootstrap is None:
        remember("groups", [one.group_id for one in found.groups])
    rows = [
        {
            "group": one.group_id,
            "state": one.state,
            "protocol_type": one.protocol_type,
            "coordinator": one.coordinator_id,
        }
        for one in found.groups
        if not wanted or one.state.lower() in wanted
    ]
    errors = [f"broker {node_id}: {why}" for node_id, why in found.failures.items()]
    emit(
        "groups/1",
        rows,
        output,
        as_json,
        heads=("group", "state"),
        nothing="no groups",
        errors=errors,
    )
    if errors:
        raise typer.Exit(Exit.FAILED)


@app.command()
def describe(
    groups: GroupsArgument,
    members: Annotated[
        bool, typer.Option("--members", help="Show the members in place of the partitions.")
    ] = False,
    state: Annotated[bool, typer.Option("--state", help="Show one row for each group.")] = False,
    only_lag: Annotated[
        bool, typer.Option("--only-lag", help="Show only partitions that lag.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show the offsets and lag of groups by partition; or their members, or their state."""
    from appliance.kafka.groups import describe as ask

    if members and state:
        raise CommandError("--members and --state exclude each other", Exit.USAGE)
    found = with_cluster(bootstrap, timeout, lambda cluster: ask(cluster, groups))
    there = [group for group in found if group.exists]
    if members:
        rows, heads = _member_rows(there), ("group", "member", "host")
    elif state:
        rows, heads = _state_rows(there), ("group", "state", "members")
    else:
        rows, heads = _offset_rows(there), ("group", "topic", "partition")
        rows = [row for row in rows if not only_lag or row["lag"] != 0]
    missing = [group.group_id for group in found if not group.exists]
    errors = [f"group {name!r} does not exist" for name in missing]
    emit("group/1", rows, output, as_json, heads=heads, nothing="nothing to show", errors=errors)
    if missing:
        raise typer.Exit(Exit.NOT_FOUND)


def _offset_rows(groups: "list[Group]") -> list[Row]:
    return [
        {
            "group": row.group_id,
            "topic": row.topic,
            "partition": row.partition,
            "current_offset": row.current_offset,
            "log_end_offset": row.log_end_offset,
            "lag": row.lag,
            "member": None if row.member is None else row.member.member_id,
            "host": None if row.member is None else row.member.client_host,
        }
        for group in groups
        for row in group.rows
    ]


def _member_rows(groups: "list[Group]") -> list[Row]:
    return [
        {
            "group": group.group_id,
            "member": member.member_id,
            "instance": member.group_instance_id,
            "client": member.client_id,
            "host": member.client_host,
            "partitions": [str(tp) for tp in sorted(group.assignments[member.member_id])],
        }
        for group in groups
        for member in group.description.members
    ]


def _state_rows(groups: "list[Group]") -> list[Row]:
    return [
        {
            "group": group.group_id,
            "state": group.state,
            "assignor": group.description.protocol or None,
            "coordinator": group.description.coordinator_id,
            "members": len(group.description.members),
        }
        for group in groups
    ]


@app.command()
def seek(
    group: GroupArgument,
    to: Annotated[
        str, typer.Option("--to", help="start, end, an offset, +N or -N, 1h (ago), or a time.")
    ],
    topic: ScopeOption = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without this option it is only shown.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Move a group's committed offsets; without --execute it only shows them.

    The group must have no members.
    """
    from appliance.kafka import reset
    from appliance.kafka.groups import describe as ask
    from protocol.client import group_offset_reset

    target = reset.target_of(to)

    async def work(cluster: "Cluster") -> Any:
        (found,) = await ask(cluster, [group])
        reset.refuse_active(found)
        tps = await reset.partitions_of(cluster, group, topic or [], all_topics=not topic)
        plan = await group_offset_reset.plan(
            cluster, group, tps, target, lambda text: say(text.strip())
        )
        if execute:
            await group_offset_reset.execute(cluster, group, plan)
        return found, plan

    found, plan = with_cluster(bootstrap, timeout, work)
    if not plan:
        text = f"group {group!r} has committed nothing; name the topic with --topic"
        raise CommandError(text, Exit.NOT_FOUND)
    before = {(row.topic, row.partition): row.current_offset for row in found.rows}
    rows = [
        {
            "group": group,
            "topic": tp.topic,
            "partition": tp.partition,
            "current_offset": before.get((tp.topic, tp.partition)),
            "new_offset": offset,
        }
        for tp, offset in plan.items()
    ]
    emit("seek/1", rows, output, as_json)
    unchanged = "nothing was changed; add --execute to do it"
    say(f"{group} continues from there" if execute else unchanged)


@app.command()
def delete(
    groups: GroupsArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Delete groups without members, with their committed offsets, after asking."""
    from appliance.kafka.groups import describe as ask
    from appliance.kafka.transactions import words_of
    from protocol.client.group_admin import delete_groups

    found = with_cluster(bootstrap, timeout, lambda cluster: ask(cluster, groups))
    if missing := [one.group_id for one in found if not one.exists]:
        raise CommandError(f"group {missing[0]!r} does not exist", Exit.NOT_FOUND)
    plan = [f"{one.group_id} ({one.state}): {counted(len(one.rows), 'offset')}" for one in found]
    if dry_run:
        undone: list[Row] = [_outcome("group", one.group_id, None, False) for one in found]
        words = "\n".join(f"would delete {line}" for line in plan)
        tell(words, "deleted/1", undone, as_json)
        return
    confirm([f"will be deleted: {line}" for line in plan], yes)
    outcomes = with_cluster(bootstrap, timeout, lambda cluster: delete_groups(cluster, groups))
    _tell_deleted(
        "group",
        {name: None if error is None else words_of(error) for name, error in outcomes.items()},
        as_json,
    )


@app.command("delete-offsets")
def delete_offsets(
    group: GroupArgument,
    topic: ScopeOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Delete a group's committed offsets of topics that no member reads, after asking."""
    from appliance.kafka.reset import partitions_of
    from protocol.client.group_admin import delete_group_offsets

    if not topic:
        raise CommandError("name the topic with --topic", Exit.USAGE)

    tps = with_cluster(
        bootstrap,
        timeout,
        lambda cluster: partitions_of(cluster, group, topic, all_topics=False),
    )
    plan = [f"the committed offset of {group} for {tp}" for tp in tps]
    if dry_run:
        undone: list[Row] = [_outcome("partition", str(tp), None, False) for tp in tps]
        words = "\n".join(f"would delete {line}" for line in plan)
        tell(words, "deleted/1", undone, as_json)
        return
    confirm([f"will be deleted: {line}" for line in plan], yes)
    outcomes = with_cluster(
        bootstrap, timeout, lambda cluster: delete_group_offsets(cluster, group, tps)
    )
    _tell_deleted(
        "partition",
        {str(tp): code.description if code else None for tp, code in sorted(outcomes.items())},
        as_json,
    )


def _tell_deleted(what: str, outcomes: dict[str, str | None], as_json: bool) -> None:
    """Report the result for each name, with the reason if it was not deleted. Raises Exit."""
    words = [
        f"{name}: {error}" if error else f"{name} is deleted" for name, error in outcomes.items()
    ]
    rows = [_outcome(what, name, error, error is None) for name, error in outcomes.items()]
    tell("\n".join(words), "deleted/1", rows, as_json)
    if any(outcomes.values()):
        raise typer.Exit(Exit.FAILED)


def _outcome(what: str, name: str, error: str | None, is_deleted: bool) -> Row:
    return {what: name, "deleted": is_deleted, "error": error}
