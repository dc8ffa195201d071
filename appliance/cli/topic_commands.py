"""`millrace topic`: list, describe, create, change and delete topics."""

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
    complete_topics,
    confirm,
    emit,
    remember,
    settings_of,
    with_cluster,
)
from appliance.cli.help_lines import group_of_commands
from appliance.cli.options import EnvelopeOption
from appliance.output import CommandError, Exit, counted, say, tell

if TYPE_CHECKING:
    from appliance.kafka.topics import DescribedTopic
    from protocol.client.cluster import Cluster
    from protocol.client.topic_details import TopicDetails

app = group_of_commands("Topics of the cluster.")

TopicsArgument = Annotated[list[str], typer.Argument(autocompletion=complete_topics)]
TopicArgument = Annotated[str, typer.Argument(autocompletion=complete_topics)]
ConfigOption = Annotated[
    list[str] | None, typer.Option("--config", "-c", help="key=value, Kafka's own topic keys.")
]


@app.command("list")
def list_topics(
    regex: Annotated[
        str | None,
        typer.Option("-r", "--regex", help="Only names that this regular expression matches."),
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also Kafka's internal topics.")
    ] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """List the topics, with partitions and replicas."""
    from appliance.kafka.topics import Matcher, with_reassignments
    from protocol.client.topic_details import list_topics as ask_topics

    async def ask(cluster: "Cluster") -> dict[str, "TopicDetails"]:
        return await with_reassignments(cluster, await ask_topics(cluster))

    matches = Matcher(regex)
    found = with_cluster(bootstrap, timeout, ask)
    if bootstrap is None:
        remember("topics", list(found))
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": topic.replication_factor,
            "under_replicated": sum(one.is_under_replicated for one in topic.partitions),
            "internal": topic.is_internal,
        }
        for name, topic in sorted(found.items())
        if matches(name) and (internal or not topic.is_internal)
    ]
    emit("topics/1", rows, output, as_json, heads=("topic", "partitions"), nothing="no topics")


@app.command()
def describe(
    topics: TopicsArgument,
    under_replicated: Annotated[bool, typer.Option("--under-replicated")] = False,
    unavailable: Annotated[bool, typer.Option("--unavailable")] = False,
    under_min_isr: Annotated[bool, typer.Option("--under-min-isr")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show partitions with their replicas, and the changed settings of topics."""
    from appliance.kafka.topics import PartitionFilter, views

    problem = PartitionFilter(under_replicated, unavailable, under_min_isr)

    async def work(cluster: "Cluster") -> tuple[list["DescribedTopic"], set[int]]:
        return await views(cluster, topics), set(cluster.current.brokers)

    found, live = with_cluster(bootstrap, timeout, work)
    rows: list[Row] = [
        {
            "topic": view.name,
            "partition": one.partition,
            "leader": one.leader_id,
            "epoch": one.leader_epoch,
            "replicas": list(one.replicas),
            "isr": list(one.in_sync_replicas),
            "elr": None
            if one.eligible_leader_replicas is None
            else list(one.eligible_leader_replicas),
        }
        for view in found
        for one in view.details.partitions
        if not problem.is_any or problem.has(one, view.min_isr, live)
    ]
    missing = [name for name in topics if name not in {view.name for view in found}]
    errors = [f"topic {name!r} does not exist" for name in missing]
    if output is OutputFormat.TABLE and not as_json:
        for view in found:
            settings = ", ".join(f"{key}={value}" for key, value in view.overrides.items())
            say(f"{view.name}: id {view.topic_id or 'unknown'}; {settings or 'all by default'}")
    emit("topic/1", rows, output, as_json, heads=("topic", "partition"), errors=errors)
    if missing:
        raise typer.Exit(Exit.NOT_FOUND)


@app.command()
def create(
    topic: Annotated[str, typer.Argument()],
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1)] = None,
    replicas: Annotated[int | None, typer.Option("--replicas", "-r", min=1)] = None,
    config: ConfigOption = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists")] = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Create a topic; partitions and replicas are the cluster's defaults if left out."""
    from protocol.client.admin import Admin
    from protocol.client.admin_types import TopicSpec
    from protocol.errors import ApiError, ErrorCode

    spec = TopicSpec(topic, partitions, replicas, settings_of(config or []))

    async def work(cluster: "Cluster") -> bool:
        try:
            await Admin(cluster).create_topics([spec], validate_only=dry_run)
        except ApiError as error:
            if if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    is_made = with_cluster(bootstrap, timeout, work)
    done = "could be made" if dry_run else "is made"
    words = f"{topic} {done}" if is_made else f"{topic} exists already"
    data = {"topic": topic, "made": is_made and not dry_run, "existed": not is_made}
    tell(words, "topic-made/1", data, as_json)


@app.command()
def alter(
    topic: TopicArgument,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1)] = None,
    config: ConfigOption = None,
    delete_config: Annotated[list[str] | None, typer.Option("--delete-config")] = None,
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Give a topic more partitions, or other settings."""
    from appliance.kafka.configs import alter as change
    from appliance.kafka.topics import grow
    from protocol.client.admin_types import ConfigResource

    changes: dict[str, str | None] = dict.fromkeys(delete_config or [])
    changes.update(settings_of(config or []))
    if partitions is None and not changes:
        raise CommandError(
            "nothing to change: expected --partitions, --config or --delete-config", Exit.USAGE
        )

    async def work(cluster: "Cluster") -> None:
        if changes:
            await change(cluster, ConfigResource.topic(topic), changes)
        if partitions is not None:
            await grow(cluster, topic, partitions)

    with_cluster(bootstrap, timeout, work)
    data = {"topic": topic, "partitions": partitions, "settings": changes}
    tell(f"{topic} is changed", "topic-changed/1", data, as_json)


@app.command()
def delete(
    topics: TopicsArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    bootstrap: BootstrapOption = None,
    as_json: EnvelopeOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Delete topics with all their records, after asking."""
    from protocol.client.admin import Admin
    from protocol.client.topic_details import describe_topics

    names = list(dict.fromkeys(topics))

    async def look(cluster: "Cluster") -> Any:
        return await describe_topics(cluster, names)

    found = with_cluster(bootstrap, timeout, look)
    if missing := [name for name in names if found[name].error]:
        raise CommandError(f"topic {missing[0]!r} does not exist", Exit.NOT_FOUND)
    plan = [
        f"{name}: {counted(len(found[name].partitions), 'partition')}, all records"
        for name in names
    ]
    rows = [
        {"topic": name, "partitions": len(found[name].partitions), "deleted": not dry_run}
        for name in names
    ]
    if dry_run:
        tell("\n".join(f"would delete {line}" for line in plan), "deleted/1", rows, as_json)
        return
    confirm([f"will be deleted: {line}" for line in plan], yes)

    async def work(cluster: "Cluster") -> None:
        await Admin(cluster).delete_topics(names)

    with_cluster(bootstrap, timeout, work)
    tell(f"deleted {', '.join(names)}", "deleted/1", rows, as_json)


@app.command()
def offsets(
    topic: TopicArgument,
    time: Annotated[
        str, typer.Option("--time", help="start, end, max, a duration ago such as 1h, or a time.")
    ] = "end",
    bootstrap: BootstrapOption = None,
    output: OutputOption = OutputFormat.TABLE,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Show the offsets of a topic's partitions by time."""
    from appliance.kafka.moments import offset_time
    from appliance.kafka.offsets import offsets as ask

    timestamp = offset_time(time)

    async def work(cluster: "Cluster") -> Any:
        return await ask(cluster, lambda tp: tp.topic == topic, timestamp)

    found = with_cluster(bootstrap, timeout, work)
    if not found:
        raise CommandError(f"topic {topic!r} does not exist", Exit.NOT_FOUND)
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": None if at.error or at.offset < 0 else at.offset,
        }
        for tp, at in sorted(found.items())
    ]
    errors = [f"{tp}: {at.error.description}" for tp, at in found.items() if at.error]
    emit("offsets/1", rows, output, as_json, errors=errors)
    if errors:
        raise typer.Exit(Exit.FAILED)
