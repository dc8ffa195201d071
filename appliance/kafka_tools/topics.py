"""`kafka-topics`: list, describe, create, alter and delete topics."""

import argparse
from collections.abc import Sequence

from appliance.kafka import topics
from appliance.kafka.session import open_cluster, run
from appliance.kafka.topics import DescribedTopic, PartitionFilter
from appliance.kafka_tools.base import (
    ToolParser,
    UsageFault,
    one_of,
    properties_of,
    read_properties,
    run_tool,
    servers_of,
)
from appliance.output import CommandError, Exit, out
from protocol.client.admin import Admin
from protocol.client.admin_types import TopicSpec
from protocol.client.cluster import Cluster
from protocol.client.topic_details import PartitionDetails
from protocol.errors import ApiError, ErrorCode

ACTIONS = ("list", "describe", "create", "alter", "delete")
COMPLAINT = (
    "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
)

PROBLEMS = tuple(
    f"{problem}-partitions"
    for problem in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr")
)
OVERRIDES = "topics-with-overrides"
ACTIONS_OF = {
    "config": ("create",),
    "partitions": ("create", "alter"),
    "replication-factor": ("create",),
    "replica-assignment": ("create", "alter"),
    **dict.fromkeys((*PROBLEMS, OVERRIDES), ("describe",)),
    "if-exists": ("alter", "delete", "describe"),
    "if-not-exists": ("create",),
    "exclude-internal": ("list", "describe"),
}
"""The actions to which each option belongs. With any other action the option would have no effect,
so it is refused."""


def main(arguments: Sequence[str]) -> int:
    """Run the tool."""
    return run_tool(_parser(), arguments, _work, failed=_failed)


def _parser() -> ToolParser:
    parser = ToolParser("topics", "Create, delete, describe, or change a topic.")
    parser.connects()
    for action in ACTIONS:
        parser.add_argument(f"--{action}", action="store_true")
    add = parser.add_argument
    add("--topic", help="With --create the name, else a regular expression.")
    add("--topic-id", help="With --describe: the id of a topic.")
    add("--partitions", type=int)
    add("--replication-factor", type=int)
    add("--replica-assignment", metavar="1:2,2:3", help="The replicas of each partition.")
    add("--config", action="append", default=[], metavar="NAME=VALUE")
    add("--if-exists", action="store_true")
    add("--if-not-exists", action="store_true")
    add("--exclude-internal", action="store_true")
    for flag in (OVERRIDES, *PROBLEMS):
        add(f"--{flag}", action="store_true")
    add("--delete-config", action="append", help="Accepted, without effect, as in Kafka.")
    add("--partition-size-limit-per-response", type=int, help="Accepted, without effect.")
    return parser


def _failed(error: CommandError) -> None:
    out(f"Error while executing topic command : {error}")


def _work(options: argparse.Namespace) -> None:
    action = one_of(options, ACTIONS, COMPLAINT)
    if action in ("create", "alter", "delete") and not options.topic:
        raise UsageFault('Missing required argument "[topic]"')
    if action == "alter" and options.partitions is None:
        raise UsageFault('Missing required argument "[partitions]"')
    _check(options, action)
    servers = servers_of(options, read_properties(options.command_config))

    async def work() -> None:
        async with open_cluster(servers) as cluster:
            await _ACTIONS[action](cluster, options)

    run(work())


def _check(options: argparse.Namespace, action: str) -> None:
    """Raise UsageFault for options of another action, and for two that exclude each other.

    Raises CommandError for a bad replica assignment.
    """
    given = [name for name in ACTIONS_OF if getattr(options, name.replace("-", "_"))]
    for name in given:
        if action not in ACTIONS_OF[name]:
            raise _excluding(name, action)
        if name in PROBLEMS and OVERRIDES in given:
            raise _excluding(name, OVERRIDES)
    if action == "create" and "replica-assignment" in given:
        for name in ("partitions", "replication-factor"):
            if name in given:
                raise _excluding("replica-assignment", name)
    if action == "describe" and options.if_exists and not (options.topic or options.topic_id):
        raise UsageFault("--topic or --topic-id is required to describe a topic")
    topics.assignments_of(options.replica_assignment)


def _excluding(option: str, other: str) -> UsageFault:
    text = f'Option "[{option}]" can\'t be used with option "[{other}]"'
    if (option, other) == ("config", "alter"):
        text += " (To alter topic configurations, the kafka-configs tool can be used.)"
    return UsageFault(text)


async def _list(cluster: Cluster, options: argparse.Namespace) -> None:
    for name in await _matching(cluster, options):
        out(name)


async def _describe(cluster: Cluster, options: argparse.Namespace) -> None:
    names = await _matching(cluster, options)
    if not names and options.topic and not options.if_exists:
        raise _missing(options.topic)
    problem = PartitionFilter(
        options.under_replicated_partitions,
        options.unavailable_partitions,
        options.under_min_isr_partitions,
        options.at_min_isr_partitions,
    )
    live = set(cluster.current.brokers)
    views = await topics.views(cluster, names)
    if options.topic_id:
        views = [view for view in views if view.topic_id == options.topic_id]
        if not views and not options.if_exists:
            text = f"TopicId '{options.topic_id}' does not exist as expected"
            raise CommandError(text, Exit.NOT_FOUND)
    for view in views:
        if options.topics_with_overrides and not view.overrides:
            continue
        if not problem.is_any:
            out(topic_line(view))
        if options.topics_with_overrides:
            continue
        for partition in view.details.partitions:
            if not problem.is_any or problem.has(partition, view.min_isr, live):
                out(partition_line(view.name, partition))


def topic_line(view: DescribedTopic) -> str:
    """Return the line about a topic in `--describe`."""
    words = [f"Topic: {view.name}"]
    if view.topic_id is not None:
        words.append(f"TopicId: {view.topic_id}")
    settings = ",".join(f"{key}={value}" for key, value in view.overrides.items())
    words += [
        f"PartitionCount: {len(view.details.partitions)}",
        f"ReplicationFactor: {view.details.replication_factor}",
        f"Configs: {settings}",
    ]
    return "\t".join(words)


def partition_line(topic: str, partition: PartitionDetails) -> str:
    """Return the line about a partition in `--describe`."""
    leader = "none" if partition.leader_id is None else str(partition.leader_id)
    moves: tuple[str, ...] = ()
    if partition.adding_replicas or partition.removing_replicas:
        moves = (
            f"Adding Replicas: {_ids(partition.adding_replicas)}",
            f"Removing Replicas: {_ids(partition.removing_replicas)}",
        )
    return "\t".join(
        (
            f"\tTopic: {topic}",
            f"Partition: {partition.partition}",
            f"Leader: {leader}",
            f"Replicas: {_ids(partition.replicas)}",
            f"Isr: {_ids(partition.in_sync_replicas)}",
            *moves,
            f"Elr: {_ids(partition.eligible_leader_replicas)}",
            f"LastKnownElr: {_ids(partition.last_known_elr)}",
        )
    )


def _ids(node_ids: tuple[int, ...] | None) -> str:
    return "N/A" if node_ids is None else ",".join(map(str, node_ids))


async def _create(cluster: Cluster, options: argparse.Namespace) -> None:
    if warning := topics.name_warning(options.topic):
        out(warning)
    spec = TopicSpec(
        options.topic,
        options.partitions,
        options.replication_factor,
        properties_of(options.config),
        topics.assignments_of(options.replica_assignment),
    )
    try:
        await Admin(cluster).create_topics([spec])
    except ApiError as error:
        if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            if options.if_not_exists:
                return
            text = f"Topic '{options.topic}' already exists."
            raise CommandError(text, Exit.FAILED) from error
        raise _without_name(options.topic, error) from error
    out(f"Created topic {options.topic}.")


async def _alter(cluster: Cluster, options: argparse.Namespace) -> None:
    names = await _matching(cluster, options)
    if not names and not options.if_exists:
        raise _missing(options.topic)
    assignments = topics.assignments_of(options.replica_assignment)
    for name in names:
        try:
            await topics.grow(cluster, name, options.partitions, assignments)
        except ApiError as error:
            raise _without_name(name, error) from error


async def _delete(cluster: Cluster, options: argparse.Namespace) -> None:
    names = await _matching(cluster, options)
    if not names and not options.if_exists:
        raise _missing(options.topic)
    if names:
        await Admin(cluster).delete_topics(names)


async def _matching(cluster: Cluster, options: argparse.Namespace) -> list[str]:
    return await topics.names(cluster, options.topic, with_internal=not options.exclude_internal)


def _missing(pattern: str) -> CommandError:
    return CommandError(f"Topic '{pattern}' does not exist as expected", Exit.NOT_FOUND)


def _without_name(name: str, error: ApiError) -> CommandError:
    """Return the broker's error, without the topic's name that our client puts in front."""
    return CommandError(str(error.detail or error).removeprefix(f"{name}: "), Exit.FAILED)


_ACTIONS = {
    "list": _list,
    "describe": _describe,
    "create": _create,
    "alter": _alter,
    "delete": _delete,
}
