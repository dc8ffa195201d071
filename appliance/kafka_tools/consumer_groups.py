"""`kafka-consumer-groups`: list, describe, move and delete groups."""

import argparse
from collections.abc import Sequence

from appliance.kafka import groups
from appliance.kafka.groups import Group
from appliance.kafka.session import NOT_FOUND, open_cluster, run
from appliance.kafka_tools import group_reset
from appliance.kafka_tools.base import (
    AlreadyTold,
    ToolParser,
    UsageFault,
    one_of,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.kafka_tools.group_tables import members_table, offsets_table, state_table
from appliance.output import CommandError, Exit, out, say
from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError
from protocol.client.group_admin import delete_group_offsets, delete_groups, list_groups
from protocol.client.group_offset_reset import DEAD, EMPTY
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition

ACTIONS = ("list", "describe", "delete", "delete-offsets", "reset-offsets")
COMPLAINT = f"Command must include exactly one action: --{', --'.join(ACTIONS)}."
TIMEOUT_MS = 5_000
TYPES = ("Consumer", "Classic")
TYPE_UNKNOWN = "Unknown"
"""The group type to print, because the ListGroups versions used here do not report it."""


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work, failed=_failed)


def _parser() -> ToolParser:
    parser = ToolParser("consumer-groups", "List, describe, move or delete consumer groups.")
    parser.connects()
    add = parser.add_argument
    for action in ACTIONS:
        add(f"--{action}", action="store_true")
    add("--group", action="append", default=[])
    add("--all-groups", action="store_true")
    add("--topic", action="append", default=[], metavar="TOPIC[:0,1]")
    add("--all-topics", action="store_true")
    add("--offsets", action="store_true")
    add("--members", action="store_true")
    add("--state", nargs="?", const="", metavar="STATE,…")
    add("--type", nargs="?", const="", metavar="TYPE,…")
    add("--verbose", action="store_true")
    add("--timeout", type=int, default=TIMEOUT_MS, metavar="MS")
    parser.refuses("--validate-regex", "is of KIP-848, which this version does not have")
    group_reset.add_options(parser)
    return parser


def _failed(error: CommandError) -> None:
    out(f"\nError: {error}")


def _work(options: argparse.Namespace) -> None:
    action = one_of(options, ACTIONS, COMPLAINT)
    if action != "list" and not options.group and not options.all_groups:
        raise UsageFault(f"Option [{action}] takes one of these options: --all-groups, --group")
    if action == "describe" and (
        sum((options.members, options.offsets, options.state is not None)) > 1
    ):
        raise UsageFault("Option [describe] takes at most one of --members, --offsets, --state")
    if action == "reset-offsets":
        group_reset.check(options)
    if action == "list":
        _named("state", options.state, groups.STATES)
        _named("types", options.type, TYPES)
    servers = servers_of(options, read_properties(options.command_config))

    async def work() -> None:
        async with open_cluster(servers, timeout_ms=options.timeout) as cluster:
            await _ACTIONS[action](cluster, options)

    run(work())


async def _list(cluster: Cluster, options: argparse.Namespace) -> None:
    wanted = _named("state", options.state, groups.STATES)
    listed = await list_groups(cluster)
    for node_id, why in listed.failures.items():
        say(f"broker {node_id} did not answer: {why}")
    found = [one for one in listed.groups if not wanted or one.state.lower() in wanted]
    with_state, with_type = options.state is not None, options.type is not None
    if not (with_state or with_type):
        for one in found:
            out(one.group_id)
    else:
        width = max([15, *(len(one.group_id) for one in found)]) + 10
        for name, kind, state in [
            ("GROUP", "TYPE", "STATE"),
            *((one.group_id, TYPE_UNKNOWN, one.state) for one in found),
        ]:
            columns = [f"{name:<{width}}"]
            columns += [f"{kind:<20}"] if with_type else []
            columns += [f"{state:<20}"] if with_state else []
            out(" ".join(columns))
    if listed.failures:
        raise CommandError("not every broker has answered", Exit.FAILED)


def _named(what: str, text: str | None, names: Sequence[str]) -> set[str]:
    """Parse a list of words, in lower case. Raises UsageFault for a word that is not in `names`."""
    wanted = {word.strip().lower() for word in (text or "").split(",") if word.strip()}
    if wanted - {name.lower() for name in names}:
        valid = f"Valid {what.removesuffix('s')}s are: {', '.join(names)}"
        raise UsageFault(f"Invalid {what} list '{text}'. {valid}")
    return wanted


async def group_ids_of(cluster: Cluster, options: argparse.Namespace) -> list[str]:
    """Return the groups that the options name."""
    if not options.all_groups:
        return list(dict.fromkeys(options.group))
    listed = await list_groups(cluster)
    return [one.group_id for one in listed.groups]


async def _describe(cluster: Cluster, options: argparse.Namespace) -> None:
    missing = []
    for group in await groups.describe(cluster, await group_ids_of(cluster, options)):
        if not group.exists:
            missing.append(group.group_id)
            out(f"\nError: Consumer group '{group.group_id}' does not exist.")
            continue
        _say_state(group)
        if options.state is not None:
            lines = state_table(group, _address(cluster, group), options.verbose)
        elif options.members:
            lines = members_table(group, options.verbose)
        else:
            lines = offsets_table(group, options.verbose)
            for row in group.rows:
                if row.is_past_end:
                    where = f"{TopicPartition(row.topic, row.partition)}"
                    say(f"{where}: the commit {row.current_offset} lies past the end of the log")
        if lines:
            out()
            for line in lines:
                out(line)
    if missing:
        raise AlreadyTold(Exit.NOT_FOUND)


def _say_state(group: Group) -> None:
    if group.state in (EMPTY, DEAD):
        say(f"\nConsumer group '{group.group_id}' has no active members.")
    elif group.state in groups.REBALANCING:
        say(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.")


def _address(cluster: Cluster, group: Group) -> str:
    node_id = group.description.coordinator_id
    broker = cluster.current.brokers.get(node_id)
    return f"{broker.host}:{broker.port}  ({node_id})" if broker else f"-  ({node_id})"


async def _delete(cluster: Cluster, options: argparse.Namespace) -> None:
    outcomes = await delete_groups(cluster, await group_ids_of(cluster, options))
    good = [name for name, error in outcomes.items() if error is None]
    bad = {name: error for name, error in outcomes.items() if error is not None}
    if bad:
        lines = "\n".join(
            f"* Group '{name}' could not be deleted due to: {_words(error)}"
            for name, error in bad.items()
        )
        out(f"\nError: Deletion of some consumer groups failed:\n{lines}")
        if good:
            out(f"\nThese consumer groups were deleted successfully: {_quoted(good)}")
        codes = {error.code for error in bad.values() if isinstance(error, ApiError)}
        is_gone = codes == {ErrorCode.GROUP_ID_NOT_FOUND}
        raise AlreadyTold(Exit.NOT_FOUND if is_gone else Exit.FAILED)
    out(f"Deletion of requested consumer groups ({_quoted(good)}) was successful.")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _words(error: ApiError | ClientError) -> str:
    return error.message if isinstance(error, ApiError) else str(error)


async def _delete_offsets(cluster: Cluster, options: argparse.Namespace) -> None:
    if len(options.group) != 1 or not options.topic:
        raise UsageFault("Option [delete-offsets] takes the following options: [group], [topic]")
    group_id = options.group[0]
    tps, unknown = await group_reset.known_partitions(cluster, options.topic)
    try:
        outcomes = await delete_group_offsets(cluster, group_id, tps) if tps else {}
    except ApiError as error:
        # The error is about the whole group, so print it for each named partition.
        outcomes = dict.fromkeys(tps, error.code)
        out(f"\nError: {error.message}")
    else:
        if any(outcomes.values()):
            out("\nError: Encountered some partition-level error, see the follow-up details.")
        else:
            out(f"Request succeeded for deleting offsets from group {group_id}.")
    out()
    rows = [(tp.topic, str(tp.partition), code) for tp, code in sorted(outcomes.items())]
    rows += [(name, "-", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in unknown]
    width = max([15, *(len(row[0]) for row in rows)])
    out(f"{'TOPIC':<{width}} {'PARTITION':<10} {'STATUS':<15}")
    for topic, partition, code in rows:
        status = f"Error: {code.description}" if code else "Successful"
        out(f"{topic:<{width}} {partition:<10} {status:<15}")
    codes = {code for _, _, code in rows if code}
    if codes:
        raise AlreadyTold(Exit.NOT_FOUND if codes <= NOT_FOUND else Exit.FAILED)


_ACTIONS = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "delete-offsets": _delete_offsets,
    "reset-offsets": group_reset.work,
}
