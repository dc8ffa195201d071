"""`kafka-metadata-quorum describe`: the leader of the metadata quorum, and each replica's lag."""

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
from appliance.output import CommandError, Exit, out
from protocol.client.quorum_admin import QuorumInfo, QuorumReplica, describe_quorum
from protocol.types import ZERO_UUID, uuid_to_base64

HEADS = (
    "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp",
    "Status",
)  # fmt: skip
UNKNOWN = -1
COMMANDS = ("describe", "add-controller", "remove-controller")
NOT_YET = "this version does not have"


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work)


def _parser() -> ToolParser:
    parser = ToolParser(
        "metadata-quorum", "Show the metadata quorum: its leader, and the lag of each replica."
    )
    parser.connects()
    parser.add_argument("command", choices=COMMANDS, metavar="describe", nargs="?")
    parser.refuses("--bootstrap-controller", "is a port for controllers only: ask a broker")
    for option in ("--controller-id", "--controller-directory-id", "--dry-run"):
        parser.refuses(option, f"belongs to {' and '.join(COMMANDS[1:])}, which {NOT_YET}")
    parser.add_argument("--status", action="store_true", help="Leader, voters, greatest lag.")
    parser.add_argument("--replication", action="store_true", help="One line for each replica.")
    parser.add_argument("--human-readable", action="store_true", help="Show times as ages.")
    return parser


def _work(options: argparse.Namespace) -> None:
    if options.command is None:
        raise UsageFault("expected a command: describe")
    if options.command != "describe":
        raise CommandError(f"{NOT_YET} {options.command}", Exit.USAGE)
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
    """Return the output of `--status`. As in Kafka, the lag shown is the lag of the voter with
    the shortest log."""
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
    """Return the rows of `--replication`; with `now_ms`, times are ages."""
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
