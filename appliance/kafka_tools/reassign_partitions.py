"""`kafka-reassign-partitions`: moves replicas by a plan. The plans that it generates move nearly
all replicas, as in Kafka."""

import argparse
import random
from collections.abc import Mapping, Sequence

from appliance.kafka import reassign, replica_copies
from appliance.kafka.kafka_deal import deal
from appliance.kafka.reassignment_files import (
    Folders,
    parse_brokers,
    parse_folders,
    parse_plan,
    parse_topics,
    plan_text,
    read,
)
from appliance.kafka.session import open_cluster, run
from appliance.kafka.throttles import clear_throttle, plan_throttle, set_throttle
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.output import CommandError, Exit, out
from protocol.client.cluster import Cluster
from protocol.errors import ApiError
from protocol.types import TopicPartition

ACTIONS = ("generate", "execute", "verify", "cancel", "list")
REQUIRED = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
PERMITTED = {
    "generate": ("disable-rack-aware",),
    "execute": ("additional", "timeout", "throttle", "disallow-replication-factor-change"),
    "verify": ("preserve-throttles",),
    "cancel": ("preserve-throttles", "timeout"),
    "list": (),
}
OPTIONS = tuple(
    dict.fromkeys(name for names in (*REQUIRED.values(), *PERMITTED.values()) for name in names)
)

RUNNING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to"
    " override this and create a new partition assignment in addition to the existing one. The"
    " --additional flag can also be used to change the throttle by resubmitting the current"
    " reassignment."
)
VERIFY_LATER = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the"
    " throttle is removed."
)

Replicas = Mapping[TopicPartition, Sequence[int]]


class TerseError(CommandError):
    """An error that Kafka's tool prints without the word Error in front."""


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work, failed=_tell)


def _tell(error: CommandError) -> None:
    out(str(error) if isinstance(error, TerseError) else f"Error: {error}")


def _parser() -> ToolParser:
    parser = ToolParser("reassign-partitions", "Move topic partitions between replicas.")
    parser.connects()
    parser.refuses("--bootstrap-controller", "is a port for controllers only: ask a broker")
    for action in ACTIONS:
        parser.add_argument(f"--{action}", action="store_true")
    parser.add_argument("--reassignment-json-file", metavar="FILE", help="The plan.")
    parser.add_argument("--topics-to-move-json-file", metavar="FILE")
    parser.add_argument("--broker-list", metavar="1,2,3", help="The brokers for --generate.")
    parser.add_argument("--disable-rack-aware", action="store_true")
    parser.add_argument("--additional", action="store_true", help="Beside those under way.")
    parser.add_argument("--preserve-throttles", action="store_true")
    parser.add_argument("--timeout", type=int, metavar="MS", help="For folders; without effect.")
    parser.add_argument("--throttle", type=int, metavar="B/S", help="Of each broker and direction.")
    parser.refuses("--replica-alter-log-dirs-throttle", "is not supported: a broker has one folder")
    parser.add_argument(
        "--disallow-replication-factor-change",
        action="store_true",
        help="Refuse another number of replicas.",
    )
    return parser


def _work(options: argparse.Namespace) -> None:
    chosen = [action for action in ACTIONS if getattr(options, action)]
    if len(chosen) != 1:
        names = ", ".join(f"--{action}" for action in ACTIONS)
        raise UsageFault(f"Command must include exactly one action: {names}")
    (action,) = chosen
    properties = read_properties(options.command_config)
    if not options.bootstrap_server and not properties.get("bootstrap.servers"):
        raise UsageFault("Please specify either --bootstrap-server or --bootstrap-controller")
    for name in REQUIRED[action]:
        if not getattr(options, name.replace("-", "_")):
            raise UsageFault(f'Missing required argument "[{name}]"')
    for name in OPTIONS:
        if name not in (*REQUIRED[action], *PERMITTED[action]) and getattr(
            options, name.replace("-", "_")
        ):
            raise UsageFault(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    if options.throttle is not None and options.throttle < 1:
        raise UsageFault(f"--throttle: found {options.throttle}, expected at least 1 byte a second")
    servers = servers_of(options, properties)

    async def work() -> None:
        async with open_cluster(servers) as cluster:
            await _act(cluster, action, options)

    run(work())


async def _act(cluster: Cluster, action: str, options: argparse.Namespace) -> None:
    if action == "list":
        await _list(cluster)
        return
    if action == "generate":
        await _generate(cluster, options)
        return
    path = options.reassignment_json_file
    text = read(path)
    targets, folders = parse_plan(text, path), parse_folders(text)
    if action == "execute":
        await _execute(cluster, targets, folders, options)
    elif action == "verify":
        await _verify(cluster, targets, folders, keeps_throttles=options.preserve_throttles)
    else:
        await _cancel(cluster, targets, keeps_throttles=options.preserve_throttles)


async def _generate(cluster: Cluster, options: argparse.Namespace) -> None:
    brokers = parse_brokers(options.broker_list, "--broker-list")
    path = options.topics_to_move_json_file
    names = parse_topics(read(path), path)
    found = await reassign.look(cluster, names)
    _refuse_missing(found, names)
    there = [one for one in brokers if one in found.brokers]
    racks = {one: rack for one in there if (rack := found.brokers[one].rack) is not None}
    if options.disable_rack_aware or not racks:
        chosen = None
    elif len(racks) < len(there):
        raise CommandError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to"
            " make replica assignment without rack information."
        )
    else:
        chosen = racks
    current = {tp: one.replicas for tp, one in found.partitions()}
    proposed: dict[TopicPartition, Sequence[int]] = {}
    for name in names:
        details = found.topics[name]
        try:
            dealt = deal(
                there,
                len(details.partitions),
                len(details.partitions[0].replicas),
                start=random.randrange(max(len(there), 1)),
                shift=random.randrange(max(len(there), 1)),
                racks=chosen,
            )
        except ValueError as error:
            raise CommandError(str(error)) from error
        proposed |= {TopicPartition(name, number): one for number, one in enumerate(dealt)}
    folders = (await replica_copies.folders_of(cluster, found.brokers)).replicas
    out(f"Current partition replica assignment\n{plan_text(current, folders)}\n")
    out(f"Proposed partition reassignment configuration\n{plan_text(proposed)}")


def _refuse_missing(found: reassign.ClusterReplicas, names: Sequence[str]) -> None:
    for name in names:
        if found.topics[name].error:
            raise CommandError(f"Topic {name} not found.", Exit.NOT_FOUND)


async def _execute(
    cluster: Cluster, targets: Replicas, folders: Folders, options: argparse.Namespace
) -> None:
    names = sorted({tp.topic for tp in targets})
    found = await reassign.look(cluster, names)
    if found.moving and not options.additional:
        raise TerseError(RUNNING)
    for broker in sorted({one for replicas in targets.values() for one in replicas}):
        if broker not in found.brokers:
            raise CommandError(f"Unknown broker id {broker}")
    _refuse_missing(found, names)
    if missing := [str(tp) for tp in sorted(targets) if found.find(tp) is None]:
        raise CommandError(f"Unable to find partition: {', '.join(missing)}", Exit.NOT_FOUND)
    current = {tp: one.replicas for tp, one in found.partitions() if tp in targets}
    there = await replica_copies.folders_of(cluster, found.brokers)
    replica_copies.check_folders(folders, there)
    out(f"Current partition replica assignment\n\n{plan_text(current, there.replicas)}\n")
    out("Save this to use as the --reassignment-json-file option during rollback")
    if options.throttle is not None:
        out(VERIFY_LATER)
        limits = plan_throttle(found.moving, targets, current, found.brokers)
        await set_throttle(cluster, limits, options.throttle)
        out(f"The inter-broker throttle limit was set to {options.throttle} B/s")
    may_resize = not options.disallow_replication_factor_change
    errors = await reassign.start(cluster, targets, may_resize=may_resize)
    if errors:
        raise TerseError("\n".join(["Error reassigning partition(s):", *_lines(errors)]))
    out(f"Successfully started partition reassignment{_s(targets)} for {_names(targets)}")


async def _verify(
    cluster: Cluster, targets: Replicas, folders: Folders, *, keeps_throttles: bool
) -> None:
    found = await reassign.look(cluster, {tp.topic for tp in targets})
    out("Status of partition reassignment:")
    for tp, target in sorted(targets.items()):
        out(_status(found, tp, target))
    there = await replica_copies.folders_of(cluster, found.brokers) if folders else None
    # Kafka's tool prints an empty line if the plan names no folders.
    out("\n".join(_folder_status(key, folder, there) for key, folder in sorted(folders.items())))
    if not found.moving and not keeps_throttles:
        await _clear_throttles(cluster, found, targets)


def _status(found: reassign.ClusterReplicas, tp: TopicPartition, target: Sequence[int]) -> str:
    if tp in found.moving:
        return f"Reassignment of partition {tp} is still in progress."
    partition = found.find(tp)
    replicas = () if partition is None else partition.replicas
    if list(replicas) == list(target):
        return f"Reassignment of partition {tp} is completed."
    return (
        f"There is no active reassignment of partition {tp}, but replica set is"
        f" {_ids(replicas)} rather than {_ids(target)}."
    )


def _folder_status(
    replica: tuple[TopicPartition, int], folder: str, there: replica_copies.ReplicaFolders | None
) -> str:
    tp, broker = replica
    found = None if there is None else there.replicas.get(replica)
    if found is None:
        return f"Partition {tp} cannot be found in any live log directory on broker {broker}."
    if found == folder:
        return f"Reassignment of replica {tp}-{broker} completed successfully."
    return f"Partition {tp} on broker {broker} is not being moved from log dir {found} to {folder}."


async def _clear_throttles(
    cluster: Cluster, found: reassign.ClusterReplicas, targets: Replicas
) -> None:
    """Delete the settings of earlier throttles. Brokers and topics that do not exist any more are
    left out."""
    brokers = {*found.brokers, *(one for replicas in targets.values() for one in replicas)}
    topics = sorted({tp.topic for tp in targets})
    out(f"Clearing broker-level throttles on broker{_s(brokers)} {_ids(sorted(brokers))}")
    await clear_throttle(cluster, found.brokers, ())
    out(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}")
    await clear_throttle(cluster, (), [name for name in topics if not found.topics[name].error])


async def _cancel(cluster: Cluster, targets: Replicas, *, keeps_throttles: bool) -> None:
    found = await reassign.look(cluster, {tp.topic for tp in targets})
    active: dict[TopicPartition, Sequence[int] | None] = {
        tp: None for tp in targets if tp in found.moving
    }
    if active:
        errors = await reassign.start(cluster, active)
        if errors:
            head = f"Error cancelling partition reassignment{_s(errors)} for:"
            raise TerseError("\n".join([head, *_lines(errors)]))
        out(f"Successfully cancelled partition reassignment{_s(active)} for: {_names(active)}")
    else:
        out("None of the specified partition reassignments are active.")
    out("None of the specified partition moves are active.")
    if not keeps_throttles:
        await _clear_throttles(cluster, found, targets)


async def _list(cluster: Cluster) -> None:
    found = await reassign.look_at_moves(cluster)
    if not found.moving:
        out("No partition reassignments found.")
        return
    out("Current partition reassignments:")
    for tp, one in sorted(found.moving.items()):
        adding = f" adding: {_ids(one.adding)}." if one.adding else ""
        removing = f" removing: {_ids(one.removing)}." if one.removing else ""
        out(f"{tp}: replicas: {_ids(one.replicas)}.{adding}{removing}")


def _lines(errors: Mapping[TopicPartition, ApiError]) -> list[str]:
    return [f"{tp}: {error.message}" for tp, error in sorted(errors.items())]


def _names(tps: Mapping[TopicPartition, object]) -> str:
    return ",".join(map(str, sorted(tps)))


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _s(things: Sequence[object] | Mapping[TopicPartition, object] | set[int]) -> str:
    return "" if len(things) == 1 else "s"
