"""`kafka-metadata-quorum`: shows the leader of the metadata quorum and the lag of each replica, and
changes the voters."""

import argparse
import json
import time
from collections.abc import Iterator, Sequence

from appliance.kafka.session import open_cluster, run
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    print_columns,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.kafka_tools.controller_properties import CONTROLLER_PROPERTIES, controller_of
from appliance.output import CommandError, Exit, out
from protocol.client.quorum_admin import (
    QuorumInfo,
    QuorumReplica,
    add_voter,
    describe_quorum,
    remove_voter,
)
from protocol.types import ZERO_UUID, uuid_from_base64, uuid_to_base64

HEADS = (
    "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp",
    "Status",
)  # fmt: skip
UNKNOWN = -1
COMMANDS = ("describe", "add-controller", "remove-controller")
NO_CONFIG = (
    "You must supply the configuration file of the controller you are adding when using"
    " add-controller."
)


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser(
        "metadata-quorum", "Show the metadata quorum, or add or remove one of its voters."
    )
    parser.connects()
    parser.add_argument("command", choices=COMMANDS, metavar="|".join(COMMANDS), nargs="?")
    parser.refuses("--bootstrap-controller", "is a port for controllers only: ask a broker")
    parser.add_argument("--status", action="store_true", help="Leader, voters, greatest lag.")
    parser.add_argument("--replication", action="store_true", help="One line for each replica.")
    parser.add_argument("--human-readable", action="store_true", help="Show times as ages.")
    parser.add_argument(
        "--controller-id", "-i", type=int, metavar="ID", help="The id of the controller to remove."
    )
    parser.add_argument(
        "--controller-directory-id",
        "-d",
        metavar="ID",
        help="The directory id of the controller to remove.",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="Print what would be done, but do not do it."
    )
    return parser


def _work(options: argparse.Namespace) -> None:
    if options.command is None:
        raise UsageFault(f"expected a command: {', '.join(COMMANDS)}")
    if options.command == "add-controller":
        _add(options)
    elif options.command == "remove-controller":
        _remove(options)
    else:
        _describe(options)


def _add(options: argparse.Namespace) -> None:
    if options.command_config is None:
        raise CommandError(NO_CONFIG, Exit.USAGE)
    properties = read_properties(options.command_config, CONTROLLER_PROPERTIES)
    servers = servers_of(options, properties)
    node = controller_of(properties)

    async def work() -> None:
        async with open_cluster(servers) as cluster:
            endpoints = [(one.name, one.host, one.port) for one in node.endpoints]
            await add_voter(cluster, node.node_id, node.directory_id, endpoints)

    if not options.dry_run:
        run(work())
    out(
        f"{'DRY RUN of adding' if options.dry_run else 'Added'} controller {node.node_id}"
        f" with directory id {uuid_to_base64(node.directory_id)}"
        f" and endpoints: {', '.join(map(str, node.endpoints))}"
    )


def _remove(options: argparse.Namespace) -> None:
    node_id, folder = options.controller_id, options.controller_directory_id
    for option, value in (
        ("--controller-id/-i", node_id),
        ("--controller-directory-id/-d", folder),
    ):
        if value is None:
            raise UsageFault(f"argument {option} is required")
    if node_id < 0:
        raise CommandError(f"Invalid negative --controller-id: {node_id}", Exit.USAGE)
    try:
        directory_id = uuid_from_base64(folder)
    except ValueError as error:
        text = f"Failed to parse --controller-directory-id: {error}"
        raise CommandError(text, Exit.USAGE) from None
    servers = servers_of(options, read_properties(options.command_config))

    async def work() -> None:
        async with open_cluster(servers) as cluster:
            await remove_voter(cluster, node_id, directory_id)

    if not options.dry_run:
        run(work())
    # Kafka's tool prints two spaces at this place.
    done = "DRY RUN of removing " if options.dry_run else "Removed "
    out(f"{done} KRaft controller {node_id} with directory id {folder}")


def _describe(options: argparse.Namespace) -> None:
    if options.status and options.replication:
        raise UsageFault(
            "Only one of --status or --replication should be specified with describe sub-command"
        )
    if not options.status and not options.replication:
        raise UsageFault(
            "One of --status or --replication must be specified with describe sub-command"
        )
    if options.human_readable and options.status:
        raise UsageFault("The option --human-readable is only supported along with --replication")
    servers = servers_of(options, read_properties(options.command_config))

    async def work() -> None:
        async with open_cluster(servers) as cluster:
            found = await describe_quorum(cluster)
            if options.status:
                out("\n".join(status_lines(found, cluster.current.cluster_id)))
                return
        now_ms = time.time_ns() // 1_000_000 if options.human_readable else None
        print_columns(HEADS, list(replication_rows(found, now_ms)))

    run(work())


def status_lines(quorum: QuorumInfo, cluster_id: str | None) -> Iterator[str]:
    """Return the output of `--status`. As in Kafka, it shows only the largest lag of all voters."""
    leader = quorum.leader
    last = min(quorum.voters, key=_end_of, default=None)
    lag = lag_ms = UNKNOWN
    if leader is not None and last is not None:
        lag = _end_of(leader) - _end_of(last)
        if last is leader:
            lag_ms = 0
        elif leader.caught_up_at_ms is not None and last.caught_up_at_ms is not None:
            lag_ms = leader.caught_up_at_ms - last.caught_up_at_ms
    yield f"ClusterId:              {cluster_id}"
    yield f"LeaderId:               {quorum.leader_id}"
    yield f"LeaderEpoch:            {quorum.leader_epoch}"
    yield f"HighWatermark:          {quorum.high_watermark}"
    yield f"MaxFollowerLag:         {lag}"
    yield f"MaxFollowerLagTimeMs:   {lag_ms}"
    yield f"CurrentVoters:          {_listed(quorum.voters, quorum)}"
    yield f"CurrentObservers:       {_listed(quorum.observers, quorum)}"


def _listed(replicas: Sequence[QuorumReplica], quorum: QuorumInfo) -> str:
    return json.dumps([_node(one, quorum) for one in replicas])


def _node(replica: QuorumReplica, quorum: QuorumInfo) -> dict[str, object]:
    node: dict[str, object] = {"id": replica.node_id}
    if replica.directory_id is not None:
        node["directoryId"] = uuid_to_base64(replica.directory_id)
    if endpoints := quorum.endpoints.get(replica.node_id):
        node["endpoints"] = list(endpoints)
    return node


def replication_rows(quorum: QuorumInfo, now_ms: int | None) -> Iterator[tuple[str, ...]]:
    """Return the rows of `--replication`. With `now_ms`, times are shown as ages."""
    leader = quorum.leader
    followers = [one for one in quorum.voters if one is not leader]
    named = [
        *((one, "Leader") for one in (leader,) if one is not None),
        *((one, "Follower") for one in followers),
        *((one, "Observer") for one in quorum.observers),
    ]
    for replica, status in named:
        yield (
            str(replica.node_id),
            uuid_to_base64(replica.directory_id or ZERO_UUID),
            str(_end_of(replica)),
            str(_end_of(leader) - _end_of(replica) if leader is not None else UNKNOWN),
            _time(replica.fetched_at_ms, now_ms),
            _time(replica.caught_up_at_ms, now_ms),
            status,
        )


def _end_of(replica: QuorumReplica) -> int:
    return UNKNOWN if replica.log_end_offset is None else replica.log_end_offset


def _time(moment_ms: int | None, now_ms: int | None) -> str:
    if moment_ms is None:
        return str(UNKNOWN)
    return str(moment_ms) if now_ms is None else f"{now_ms - moment_ms} ms ago"
